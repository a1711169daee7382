// Two connected queue pairs, all operations; named after what rust-ibverbs's own device tests show.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "support/device.h"
#include "support/needs.h"
#include "verbs/pair.h"

namespace weft::verbs::testing {
namespace {

void fill(std::span<std::uint8_t> bytes) {
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
}

TEST(Transfer, send_recv) {
  Pair pair;
  fill(pair.a->region.elements());
  ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(0, 100), 1), 0);
  ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(0, 50), 2), 0);
  const Completion sent = pair.a->await();
  EXPECT_TRUE(sent.ok()) << sent.status_name();
  EXPECT_EQ(sent.id(), 2U);
  EXPECT_EQ(sent.opcode(), IBV_WC_SEND);
  const Completion received = pair.b->await();
  EXPECT_EQ(received.id(), 1U);
  EXPECT_TRUE(received.is_receive());
  EXPECT_EQ(received.size_bytes(), 50U);
  EXPECT_FALSE(received.immediate());
  EXPECT_EQ(received.queue_pair_number(), pair.b->queue_pair.number());
  EXPECT_TRUE(
      std::ranges::equal(pair.b->region.elements().first(50), pair.a->region.elements().first(50)));
}

TEST(Transfer, send_recv_large) {
  Pair pair({.bytes = 8 << 20});
  fill(pair.a->region.elements());
  ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(), 1), 0);
  ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(), 2), 0);
  EXPECT_TRUE(pair.a->await().ok());
  EXPECT_EQ(pair.b->await().size_bytes(), 8U << 20);
  EXPECT_TRUE(std::ranges::equal(pair.b->region.elements(), pair.a->region.elements()));
}

TEST(Transfer, scatter_gather) {
  Pair pair;
  fill(pair.a->region.elements());
  const std::array into{pair.b->region.slice(100, 3), pair.b->region.slice(0, 7)};
  const std::array from{pair.a->region.slice(10, 4), pair.a->region.slice(0, 4),
                        pair.a->region.slice(50, 2)};
  ASSERT_EQ(pair.b->queue_pair.post_receive(into, 1), 0);
  ASSERT_EQ(pair.a->queue_pair.post_send(from, 2), 0);
  EXPECT_TRUE(pair.a->await().ok());
  EXPECT_EQ(pair.b->await().size_bytes(), 10U);
  const auto got = pair.b->region.elements();
  const std::array<std::uint8_t, 10> wanted{11, 12, 13, 14, 1, 2, 3, 4, 51, 52};
  EXPECT_TRUE(std::ranges::equal(got.subspan(100, 3), std::span(wanted).first(3)));
  EXPECT_TRUE(std::ranges::equal(got.first(7), std::span(wanted).subspan(3)));
}

TEST(Transfer, rdma_write) {
  Pair pair;
  fill(pair.a->region.elements());
  const auto target = pair.b->region.remote().slice(1000, 96);
  ASSERT_EQ(pair.a->queue_pair.post_write(pair.a->region.slice(0, 96), target, 3), 0);
  const Completion written = pair.a->await();
  EXPECT_TRUE(written.ok()) << written.status_name();
  EXPECT_EQ(written.opcode(), IBV_WC_RDMA_WRITE);
  EXPECT_EQ(pair.b->region[999], 0);
  EXPECT_TRUE(std::ranges::equal(pair.b->region.elements().subspan(1000, 96),
                                 pair.a->region.elements().first(96)));
  EXPECT_EQ(pair.a->queue_pair.post_write(pair.a->region.slice(0, 97), target, 4), EMSGSIZE);
}

TEST(Transfer, rdma_write_with_imm) {
  Pair pair;
  fill(pair.a->region.elements());
  ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(0, 8), 1), 0);
  const int posted = pair.a->queue_pair.post_write_with_immediate(
      pair.a->region.slice(0, 16), pair.b->region.remote().slice(64, 16), 0xCAFE0001, 2);
  if (test::is_refusal(posted)) GTEST_SKIP() << "the device has no immediate data";
  ASSERT_EQ(posted, 0);
  EXPECT_TRUE(pair.a->await().ok());
  const Completion received = pair.b->await();
  EXPECT_EQ(received.opcode(), IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.immediate(), 0xCAFE0001);
  EXPECT_EQ(received.size_bytes(), 16U);
}

TEST(Transfer, rdma_read) {
  Pair pair;
  fill(pair.b->region.elements());
  ASSERT_EQ(pair.a->queue_pair.post_read(pair.a->region.slice(0, 200),
                                         pair.b->region.remote().slice(5, 200), 9),
            0);
  const Completion read = pair.a->await();
  EXPECT_TRUE(read.ok()) << read.status_name();
  EXPECT_EQ(read.opcode(), IBV_WC_RDMA_READ);
  EXPECT_TRUE(std::ranges::equal(pair.a->region.elements().first(200),
                                 pair.b->region.elements().subspan(5, 200)));
}

TEST(Transfer, atomic_operations) {
  Pair pair;
  if (!test::has_atomics(pair.a->context)) GTEST_SKIP() << "the device has no atomics";
  auto words = pair.b->domain.allocate<std::uint64_t>(2, Access::all);
  words[0] = 40;
  auto before = pair.a->domain.allocate<std::uint64_t>(2);
  const auto target = words.remote().slice(0, 8);
  ASSERT_EQ(pair.a->queue_pair.post_fetch_and_add(before.slice(0, 1), target, 2, 1), 0);
  EXPECT_EQ(pair.a->await().opcode(), IBV_WC_FETCH_ADD);
  EXPECT_EQ(before[0], 40U);
  EXPECT_EQ(words[0], 42U);
  ASSERT_EQ(pair.a->queue_pair.post_compare_and_swap(before.slice(1, 1), target, 42, 7, 2), 0);
  EXPECT_EQ(pair.a->await().opcode(), IBV_WC_COMP_SWAP);
  EXPECT_EQ(before[1], 42U);
  EXPECT_EQ(words[0], 7U);
}

TEST(Transfer, batched_post) {
  Pair pair;
  fill(pair.a->region.elements());
  auto batch = pair.a->queue_pair.batch<3>();
  const auto target = pair.b->region.remote();
  EXPECT_TRUE(batch.write(pair.a->region.slice(0, 4), target.slice(0, 4), 1, SendFlags::none));
  EXPECT_TRUE(batch.write(pair.a->region.slice(4, 4), target.slice(4, 4), 2, SendFlags::none));
  // The kernel's siw never executes a Read with a fence.
  const auto fence = test::is_foreign_iwarp(pair.a->context) ? SendFlags::none : SendFlags::fence;
  EXPECT_TRUE(
      batch.read(pair.a->region.slice(100, 4), target.slice(0, 4), 3, SendFlags::signaled | fence));
  EXPECT_FALSE(batch.send(pair.a->region.slice(0, 4), 4));
  EXPECT_EQ(batch.size(), 3U);
  ASSERT_EQ(batch.submit(), 0);
  EXPECT_EQ(batch.posted(), 3U);
  EXPECT_EQ(batch.size(), 0U);
  EXPECT_EQ(pair.a->await().id(), 3U);  // unsignaled requests have no completion
  EXPECT_TRUE(std::ranges::equal(pair.a->region.elements().subspan(100, 4),
                                 pair.a->region.elements().first(4)));
  std::array<Completion, 4> more;
  EXPECT_TRUE(pair.a->queue.poll(more).empty());
}

TEST(Transfer, BatchSaysHowManyWerePosted) {
  EndSettings settings;
  settings.capacity.max_send_wr = 2;
  Pair pair(settings);
  auto batch = pair.a->queue_pair.batch<8>();
  const auto target = pair.b->region.remote().slice(0, 8);
  for (std::uint64_t id = 0; id < 8; ++id) batch.write(pair.a->region.slice(0, 8), target, id);
  const int error = batch.submit();
  if (!test::own_device() && batch.posted() > 2) GTEST_SKIP() << "the device's queues are larger";
  EXPECT_EQ(error, ENOMEM);
  EXPECT_EQ(batch.posted(), 2U);
}

// Some providers return a negative errno, such as that of the kernel's siw.
TEST(Transfer, ErrorsOfAProviderArePositive) {
  Pair pair;
  ibv_context_ops& operations = pair.a->queue_pair.raw()->context->ops;
  const ibv_context_ops before = operations;
  operations.post_send = [](ibv_qp*, ibv_send_wr* first, ibv_send_wr** bad) {
    *bad = first;
    return -ENOMEM;
  };
  operations.post_recv = [](ibv_qp*, ibv_recv_wr* first, ibv_recv_wr** bad) {
    *bad = first;
    return -EINVAL;
  };
  auto batch = pair.a->queue_pair.batch<1>();
  auto receives = pair.a->queue_pair.receive_batch<1>();
  const LocalSlice slice = pair.a->region.slice(0, 8);
  batch.write(slice, pair.b->region.remote().slice(0, 8), 1);
  receives.receive(slice, 2);
  const std::array errors{pair.a->queue_pair.post_send(slice, 3), batch.submit(),
                          pair.a->queue_pair.post_receive(slice, 4), receives.submit()};
  operations = before;
  EXPECT_EQ(errors, (std::array{ENOMEM, ENOMEM, EINVAL, EINVAL}));
  EXPECT_EQ(batch.posted(), 0U);
}

TEST(Transfer, multiple_outstanding) {
  Pair pair;
  for (std::uint64_t id = 0; id < 32; ++id) {
    ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(id * 8, 8), id), 0);
  }
  for (std::uint64_t id = 0; id < 32; ++id) {
    ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(id * 8, 8), 100 + id), 0);
  }
  for (std::uint64_t id = 0; id < 32; ++id) EXPECT_EQ(pair.a->await().id(), 100 + id);
  for (std::uint64_t id = 0; id < 32; ++id) EXPECT_EQ(pair.b->await().id(), id);
}

TEST(Transfer, inline_send) {
  Pair pair;
  std::array<char, 8> text{'i', 'n', ' ', 'l', 'i', 'n', 'e', 0};
  ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(0, 8), 1), 0);
  // No key: inline bytes need no registration.
  const LocalSlice unregistered(reinterpret_cast<std::uint64_t>(text.data()), 8, 0);
  ASSERT_EQ(pair.a->queue_pair.post_send(unregistered, 2, SendFlags::signaled | SendFlags::copied),
            0);
  text.fill('x');
  EXPECT_TRUE(pair.a->await().ok());
  EXPECT_TRUE(pair.b->await().ok());
  EXPECT_STREQ(reinterpret_cast<const char*>(pair.b->region.elements().data()), "in line");
}

TEST(Transfer, inline_send_list) {
  Pair pair;
  std::array<char, 4> first{'i', 'n', ' ', 'a'};
  std::array<char, 4> second{' ', 'l', 'i', 0};
  const auto unregistered = [](std::array<char, 4>& text) {
    return LocalSlice(reinterpret_cast<std::uint64_t>(text.data()), 4, 0);
  };
  const std::array list{unregistered(first), unregistered(second)};
  ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(0, 8), 1), 0);
  ASSERT_EQ(pair.a->queue_pair.post_send(list, 2, SendFlags::signaled | SendFlags::copied), 0);
  first.fill('x');
  second.fill('x');
  EXPECT_TRUE(pair.a->await().ok());
  EXPECT_TRUE(pair.b->await().ok());
  EXPECT_STREQ(reinterpret_cast<const char*>(pair.b->region.elements().data()), "in a li");
}

TEST(Transfer, batched_recv) {
  EndSettings settings;
  settings.capacity.max_recv_wr = 3;
  Pair pair(settings);
  auto batch = pair.b->queue_pair.receive_batch<4>();
  EXPECT_EQ(batch.submit(), 0) << "of none";
  const std::array parts{pair.b->region.slice(100, 3), pair.b->region.slice(8, 5)};
  EXPECT_TRUE(batch.receive(pair.b->region.slice(0, 8), 1));
  EXPECT_TRUE(batch.receive(parts, 2));
  EXPECT_EQ(batch.size(), 2U);
  ASSERT_EQ(batch.submit(), 0);
  EXPECT_EQ(batch.posted(), 2U);
  fill(pair.a->region.elements());
  for (std::uint64_t id = 1; id <= 2; ++id) {
    ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(0, 8), id), 0);
    EXPECT_EQ(pair.b->await().id(), id);
  }
  EXPECT_EQ(pair.b->region[7], 8);
  EXPECT_EQ(pair.b->region[102], 3);
  EXPECT_EQ(pair.b->region[8], 4);

  for (std::uint64_t id = 0; id < 4; ++id) {
    EXPECT_TRUE(batch.receive(pair.b->region.slice(0, 8), id));
  }
  EXPECT_FALSE(batch.receive(pair.b->region.slice(0, 8), 5)) << "it is full";
  const int error = batch.submit();
  if (!test::own_device() && batch.posted() > 3) return;  // its queues are larger
  EXPECT_EQ(error, ENOMEM);
  EXPECT_EQ(batch.posted(), 3U);
}

TEST(Transfer, wait_for_completion) {
  Pair pair;
  std::array<Completion, 4> some;
  EXPECT_TRUE(pair.a->queue.wait(some, std::chrono::milliseconds(1)).empty());
  ASSERT_EQ(pair.a->queue_pair.post_write(pair.a->region.slice(0, 8), pair.b->region.remote(), 6),
            0);
  const auto got = pair.a->queue.wait(some, patience);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].id(), 6U);
}

TEST(Transfer, debug_formatting) {
  Pair pair;
  WEFT_NEEDS_STATES(pair.a->context);
  using verbs::to_string;
  const bool embedded = pair.a->context.backend() == Backend::embedded;
  const std::string name = pair.a->context.device_name() + (embedded ? " (embedded)" : " (system)");
  EXPECT_EQ(to_string(devices().front()), name);
  EXPECT_EQ(to_string(pair.a->context), name);
  EXPECT_TRUE(to_string(pair.a->queue_pair).ends_with("(RC, RTS)"));
  EXPECT_TRUE(to_string(pair.a->region).starts_with("4096 bytes at 0x"));
  ASSERT_EQ(pair.a->queue_pair.post_write(pair.a->region.slice(0, 8), pair.b->region.remote(), 6),
            0);
  const std::string said = to_string(pair.a->await());
  EXPECT_TRUE(said.starts_with("request 6 of queue pair 0x")) << said;
  EXPECT_TRUE(said.ends_with(": success")) << said;
}

TEST(Transfer, NoReceiveEndsAfterTheRetriesThatWereAllowed) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(16);
  const auto region = domain.allocate<char>(16);
  auto builder = domain.queue_pair(queue, queue);
  builder.rnr_retry(1).min_rnr_timer(1);
  auto one = builder.build();
  auto other = builder.build();
  const Endpoint of_one = one.endpoint();
  const Endpoint of_other = other.endpoint();
  const QueuePair a = std::move(one).handshake(of_other);
  const QueuePair b = std::move(other).handshake(of_one);
  ASSERT_EQ(a.post_send(region.slice(0, 8), 1), 0);
  std::array<Completion, 1> done;
  ASSERT_EQ(queue.wait(done, patience).size(), 1U);
  EXPECT_EQ(done[0].status(), IBV_WC_RNR_RETRY_EXC_ERR) << done[0].status_name();
}

TEST(Transfer, send_flags) {
  Pair pair;
  ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(0, 8), 1), 0);
  ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(8, 8), 2), 0);
  pair.b->queue.arm(/*solicited_only=*/true);
  ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(0, 8), 1), 0);
  EXPECT_TRUE(pair.a->await().ok());
  EXPECT_FALSE(pair.b->channel.wait(Deadline::now()));
  ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(0, 8), 2,
                                         SendFlags::signaled | SendFlags::solicited),
            0);
  EXPECT_TRUE(pair.b->channel.wait(patience));
}

TEST(Transfer, event_driven_completion) {
  Pair pair;
  int seen = 0;
  pair.a->queue.arm();
  ASSERT_EQ(pair.a->queue_pair.post_write(pair.a->region.slice(0, 8),
                                          pair.b->region.remote().slice(0, 8), 5),
            0);
  ASSERT_TRUE(pair.a->channel.wait(patience));
  EXPECT_EQ(pair.a->queue.for_each([&](const Completion& completion) {
    EXPECT_EQ(completion.id(), 5U);
    ++seen;
  }),
            1U);
  EXPECT_EQ(seen, 1);
}

TEST(Transfer, shared_completion_channel) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto channel = context.create_channel();
  int first = 0;
  int second = 0;
  const auto one =
      context.create_completion_queue(4, {.channel = &channel, .user_context = &first});
  const auto two =
      context.create_completion_queue(4, {.channel = &channel, .user_context = &second});
  EXPECT_FALSE(channel.wait(Deadline::now()));
  const auto domain = context.create_domain();
  const auto region = domain.allocate<char>(16, Access::all);
  auto prepared = domain.queue_pair(one, two).access(Access::all).build();
  const Endpoint endpoint = prepared.endpoint();
  const QueuePair itself = std::move(prepared).handshake(endpoint);
  one.arm();
  two.arm();
  ASSERT_EQ(itself.post_receive(region.slice(0, 8), 1), 0);
  ASSERT_EQ(itself.post_send(region.slice(8, 8), 2), 0);
  std::set<void*> heard;
  for (int event = 0; event < 2; ++event) heard.insert(channel.wait(patience).value_or(nullptr));
  EXPECT_EQ(heard, (std::set<void*>{&first, &second}));
}

TEST(Transfer, modify_and_query_queue_pair) {
  Pair pair;
  WEFT_NEEDS_STATES(pair.a->context);
  EXPECT_EQ(pair.a->queue_pair.state(), IBV_QPS_RTS);
  const auto attributes = pair.a->queue_pair.query(IBV_QP_CAP);
  EXPECT_GE(attributes.initial.cap.max_send_wr, 64U);
  EXPECT_EQ(attributes.initial.qp_type, IBV_QPT_RC);
  ASSERT_EQ(pair.a->queue_pair.post_receive(pair.a->region.slice(0, 8), 77), 0);
  pair.a->queue_pair.fail();
  EXPECT_EQ(pair.a->queue_pair.state(), IBV_QPS_ERR);
  const Completion flushed = pair.a->await();
  EXPECT_EQ(flushed.status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.id(), 77U);
  EXPECT_EQ(flushed.status_name(), "Work Request Flushed Error");
}

TEST(Transfer, InTheErrorStateEverythingIsFlushedOnce) {
  Pair pair;
  WEFT_NEEDS_PEER_ERRORS(pair.a->context);
  constexpr std::uint64_t each = 5;
  std::map<std::uint64_t, int> wanted;
  for (std::uint64_t id = 0; id < each; ++id) {
    // The peer has posted no receive, so the sends stay in flight.
    ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(0, 8), id), 0);
    ASSERT_EQ(pair.a->queue_pair.post_receive(pair.a->region.slice(8, 8), 100 + id), 0);
    wanted[id] = wanted[100 + id] = 1;
  }
  pair.a->queue_pair.fail();
  std::map<std::uint64_t, int> flushed;
  for (std::uint64_t i = 0; i < 2 * each; ++i) {
    const Completion completion = pair.a->await();
    EXPECT_EQ(completion.status(), IBV_WC_WR_FLUSH_ERR) << completion.status_name();
    ++flushed[completion.id()];
  }
  EXPECT_EQ(flushed, wanted);
  // A request that is posted in the error state is flushed too, and no request completes twice.
  ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(0, 8), 999), 0);
  EXPECT_EQ(pair.a->await().id(), 999U);
  std::array<Completion, 4> more;
  EXPECT_TRUE(pair.a->queue.poll(more).empty());
}

TEST(Transfer, raw_handles) {
  Pair pair;
  EXPECT_EQ(pair.a->queue_pair.raw()->pd, pair.a->domain.raw());
  EXPECT_EQ(pair.a->queue_pair.raw()->send_cq, pair.a->queue.raw());
  EXPECT_EQ(pair.a->region.raw()->pd, pair.a->domain.raw());
  EXPECT_EQ(pair.a->id.raw()->qp, pair.a->queue_pair.raw());
  EXPECT_EQ(pair.a->id.peer_address(), pair.b->id.local_address());
}

TEST(Transfer, AWrongKeyFailsBothSides) {
  Pair pair;
  WEFT_NEEDS_PEER_ERRORS(pair.a->context);
  const RemoteSlice wrong(pair.b->region.remote().address(), 8, pair.b->region.rkey() ^ 0x5500);
  ASSERT_EQ(pair.a->queue_pair.post_write(pair.a->region.slice(0, 8), wrong, 1), 0);
  EXPECT_EQ(pair.a->await().status(), IBV_WC_REM_ACCESS_ERR);
}

TEST(Transfer, AShortReceiveFailsBothSides) {
  Pair pair;
  WEFT_NEEDS_PEER_ERRORS(pair.a->context);
  ASSERT_EQ(pair.b->queue_pair.post_receive(pair.b->region.slice(0, 4), 1), 0);
  ASSERT_EQ(pair.a->queue_pair.post_send(pair.a->region.slice(0, 8), 2), 0);
  EXPECT_EQ(pair.b->await().status(), IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(pair.a->await().status(), IBV_WC_REM_INV_REQ_ERR);
}

TEST(Transfer, MemoryOfAnotherDomainIsRefused) {
  Pair pair;
  WEFT_NEEDS_PEER_ERRORS(pair.a->context);
  const auto foreign = pair.b->context.create_domain();
  const auto region = foreign.allocate<std::uint8_t>(64, Access::all);
  ASSERT_EQ(
      pair.a->queue_pair.post_write(pair.a->region.slice(0, 8), region.remote().slice(0, 8), 1), 0);
  EXPECT_EQ(pair.a->await().status(), IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace weft::verbs::testing
