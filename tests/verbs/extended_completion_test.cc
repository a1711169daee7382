// Extended completion queues, one iteration at a time.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <type_traits>
#include <vector>

#include "support/device.h"
#include "support/needs.h"
#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

constexpr std::chrono::seconds patience{30};

static_assert(!std::is_copy_constructible_v<CompletionIteration>);
static_assert(!std::is_move_constructible_v<CompletionIteration>);

std::uint64_t wallclock_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// A queue pair that is connected to itself.
class ExtendedCompletion : public ::testing::Test {
 protected:
  void SetUp() override { WEFT_NEEDS(context.create_extended_completion_queue(4)); }

  QueuePair connect(const CompletionQueue& queue) {
    auto builder = domain.queue_pair(queue, queue);
    builder.max_send_requests(4).max_receive_requests(4).access(Access::all);
    auto prepared = builder.build();
    const Endpoint endpoint = prepared.endpoint();
    return std::move(prepared).handshake(endpoint);
  }
  // Calls `visit` with `count` completions.
  template <typename Visitor>
  void take(ExtendedCompletionQueue& queue, int count, Visitor visit) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (count > 0 && std::chrono::steady_clock::now() < until) {
      auto completions = queue.iterate();
      while (count > 0 && completions.next()) {
        visit(completions);
        --count;
      }
      EXPECT_EQ(completions.failure(), 0);
    }
    EXPECT_EQ(count, 0) << "no completion";
  }

  Context context = test::open_device();
  ProtectionDomain domain = context.create_domain();
  TypedRegion<std::uint8_t> region = domain.allocate<std::uint8_t>(64, Access::all);
};

TEST_F(ExtendedCompletion, extended_wc_fields) {
  auto queue = context.create_extended_completion_queue(
      8, {.fields = IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS});
  const QueuePair queue_pair = connect(queue);
  ASSERT_EQ(queue_pair.post_receive(region.slice(0, 16), 1), 0);
  ASSERT_EQ(queue_pair.post_send_with_immediate(region.slice(16, 8), 0xCAFE, 2), 0);
  std::vector<std::uint64_t> ids;
  take(queue, 2, [&](const CompletionIteration& completion) {
    ids.push_back(completion.id());
    EXPECT_TRUE(completion.ok()) << completion.status_name();
    EXPECT_EQ(completion.queue_pair_number(), queue_pair.number());
    EXPECT_EQ(completion.is_receive(), completion.id() == 1);
    EXPECT_EQ(completion.source_lid(), 0U);
    EXPECT_EQ(completion.service_level(), 0);
    EXPECT_EQ(completion.destination_path_bits(), 0);
    EXPECT_FALSE(completion.timestamp()) << "not asked for";
    EXPECT_FALSE(completion.wallclock_ns()) << "not asked for";
    EXPECT_FALSE(completion.invalidated_rkey());
    EXPECT_FALSE(completion.has_grh());
    EXPECT_EQ(completion.opcode(), completion.is_receive() ? IBV_WC_RECV : IBV_WC_SEND);
    if (!completion.is_receive()) return;
    EXPECT_EQ(completion.size_bytes(), 8U);
    EXPECT_EQ(completion.immediate(), 0xCAFEU);
  });
  EXPECT_EQ(ids.size(), 2U);
}

TEST_F(ExtendedCompletion, completion_timestamps) {
  WEFT_NEEDS(
      context.create_extended_completion_queue(8, {.fields = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP}));
  auto queue = context.create_extended_completion_queue(
      8, {.fields =
              IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK});
  const QueuePair queue_pair = connect(queue);
  const std::uint64_t before = context.query_clock();
  const std::uint64_t before_ns = wallclock_ns();
  ASSERT_EQ(queue_pair.post_receive(region.slice(0, 16), 1), 0);
  ASSERT_EQ(queue_pair.post_send(region.slice(16, 8), 2), 0);
  std::uint64_t last = before;
  take(queue, 2, [&](const CompletionIteration& completion) {
    ASSERT_TRUE(completion.timestamp() && completion.wallclock_ns());
    EXPECT_GE(*completion.timestamp(), last);
    EXPECT_LE(*completion.timestamp(), context.query_clock());
    EXPECT_GE(*completion.wallclock_ns(), before_ns);
    EXPECT_LE(*completion.wallclock_ns(), wallclock_ns());
    EXPECT_FALSE(completion.service_level()) << "not asked for";
    last = *completion.timestamp();
  });
  EXPECT_GT(context.query_extended().hca_core_clock, 0U);
}

TEST_F(ExtendedCompletion, FailuresSayWhy) {
  auto queue = context.create_extended_completion_queue(8);
  const QueuePair queue_pair = connect(queue);
  const LocalSlice wrong(region.slice().address(), 8, region.lkey() ^ 0x5500);
  ASSERT_EQ(queue_pair.post_write(wrong, region.remote(), 3), 0);
  take(queue, 1, [&](const CompletionIteration& completion) {
    EXPECT_FALSE(completion.ok());
    EXPECT_EQ(completion.id(), 3U);
    EXPECT_EQ(completion.status(), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(completion.status_name(), "local protection error");
    EXPECT_EQ(completion.queue_pair_number(), queue_pair.number());
    EXPECT_FALSE(completion.immediate());
  });
}

TEST_F(ExtendedCompletion, OneIterationAtATime) {
  auto queue = context.create_extended_completion_queue(8);
  {
    auto completions = queue.iterate();
    EXPECT_FALSE(completions.next());
    EXPECT_THROW((void)queue.iterate(), std::logic_error);
    EXPECT_FALSE(completions.next()) << "it goes on";
  }
  EXPECT_FALSE(queue.iterate().next());
}

// Completions that an iteration leaves in the queue are found by the next one and by plain polling.
TEST_F(ExtendedCompletion, NothingIsLostBetweenIterations) {
  auto queue = context.create_extended_completion_queue(8, {.single_threaded = true});
  const QueuePair queue_pair = connect(queue);
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_EQ(queue_pair.post_write(region.slice(0, 8), region.remote(), id), 0);
  }
  for (std::uint64_t id = 0; id < 2; ++id) {
    take(queue, 1, [&](const CompletionIteration& completion) { EXPECT_EQ(completion.id(), id); });
  }
  std::array<Completion, 4> rest;
  const auto got = queue.wait(rest, patience);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].id(), 2U);
}

TEST_F(ExtendedCompletion, WakesThroughItsChannel) {
  const auto channel = context.create_channel();
  int mine = 0;
  auto queue =
      context.create_extended_completion_queue(8, {.channel = &channel, .user_context = &mine});
  const QueuePair queue_pair = connect(queue);
  queue.arm();
  ASSERT_EQ(queue_pair.post_write(region.slice(0, 8), region.remote(), 1), 0);
  EXPECT_EQ(channel.wait(patience), &mine);
  take(queue, 1, [](const CompletionIteration& completion) { EXPECT_TRUE(completion.ok()); });
}

TEST_F(ExtendedCompletion, AFieldThatTheDeviceLacksIsAnErrorThatNamesIt) {
  try {
    (void)context.create_extended_completion_queue(8, {.fields = IBV_WC_EX_WITH_CVLAN});
    FAIL() << "created";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EOPNOTSUPP);
    EXPECT_NE(std::string(error.what()).find(context.device_name()), std::string::npos)
        << error.what();
  }
  EXPECT_THROW((void)context.create_extended_completion_queue(-1), Error);
}

}  // namespace
}  // namespace weft::verbs
