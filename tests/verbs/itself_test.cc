// A queue pair that is connected to itself fails as any other: the faulty request reports its own
// error, the other requests and the receives are flushed.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <map>

#include "support/device.h"
#include "support/needs.h"
#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

constexpr std::chrono::seconds patience{30};

class ToItself : public ::testing::Test {
 protected:
  void SetUp() override { WEFT_NEEDS_NUMBERS(context); }

  using Statuses = std::map<std::uint64_t, ibv_wc_status>;

  // The status of each request by its id; fewer than `count` after a timeout.
  [[nodiscard]] Statuses await(std::size_t count) const {
    Statuses all;
    std::array<Completion, 1> one;
    while (all.size() < count) {
      const auto got = queue.wait(one, patience);
      if (got.empty()) break;
      EXPECT_TRUE(all.emplace(got[0].id(), got[0].status()).second) << "twice: " << got[0].id();
    }
    return all;
  }
  [[nodiscard]] QueuePair connected() const {
    auto builder = domain.queue_pair(queue, queue);
    builder.access(Access::all).max_send_requests(8).max_receive_requests(8);
    builder.rnr_retry(1).min_rnr_timer(1);
    auto prepared = builder.build();
    const Endpoint endpoint = prepared.endpoint();
    return std::move(prepared).handshake(endpoint);
  }
  [[nodiscard]] RemoteSlice wrong() const {
    return {region.remote().address(), 8, region.rkey() ^ 0x5500};
  }

  const Context context = test::open_device();
  const ProtectionDomain domain = context.create_domain();
  const CompletionQueue queue = context.create_completion_queue(32);
  const TypedRegion<std::uint64_t> region = domain.allocate<std::uint64_t>(64, Access::all);
};

TEST_F(ToItself, AWrongKeyIsARemoteAccessError) {
  const LocalSlice word = region.slice(0, 1);
  const auto fails = [&](auto post) {
    const QueuePair itself = connected();
    EXPECT_EQ(itself.post_receive(region.slice(8, 8), 9), 0);
    EXPECT_EQ(itself.post_read(word, region.remote().slice(8, 8), 1), 0);
    EXPECT_EQ(post(itself), 0);
    EXPECT_EQ(itself.post_write(word, region.remote().slice(8, 8), 3), 0);
    const Statuses wanted{{1, IBV_WC_SUCCESS},
                          {2, IBV_WC_REM_ACCESS_ERR},
                          {3, IBV_WC_WR_FLUSH_ERR},
                          {9, IBV_WC_WR_FLUSH_ERR}};
    EXPECT_EQ(await(4), wanted);
    EXPECT_EQ(itself.state(), IBV_QPS_ERR);
  };
  fails([&](const QueuePair& itself) { return itself.post_write(word, wrong(), 2); });
  fails([&](const QueuePair& itself) { return itself.post_read(word, wrong(), 2); });
  fails([&](const QueuePair& itself) { return itself.post_fetch_and_add(word, wrong(), 1, 2); });
}

TEST_F(ToItself, AShortReceiveFailsBothEnds) {
  const QueuePair itself = connected();
  ASSERT_EQ(itself.post_receive(LocalSlice(region.slice(8, 1)).slice(0, 4), 9), 0);
  ASSERT_EQ(itself.post_send(region.slice(0, 1), 1), 0);
  const Statuses wanted{{1, IBV_WC_REM_INV_REQ_ERR}, {9, IBV_WC_LOC_LEN_ERR}};
  EXPECT_EQ(await(2), wanted);
}

TEST_F(ToItself, WithoutAReceiveTheRetriesEnd) {
  const QueuePair itself = connected();
  ASSERT_EQ(itself.post_send(region.slice(0, 1), 1), 0);
  ASSERT_EQ(itself.post_write(region.slice(0, 1), region.remote().slice(8, 8), 2), 0);
  const Statuses wanted{{1, IBV_WC_RNR_RETRY_EXC_ERR}, {2, IBV_WC_WR_FLUSH_ERR}};
  EXPECT_EQ(await(2), wanted);
}

}  // namespace
}  // namespace weft::verbs
