// Counters match the executed operations, to the operation and the byte.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <thread>

#include "support/device.h"
#include "verbs/pair.h"

namespace weft::verbs::testing {
namespace {

void expect_traffic(const Traffic& traffic, std::uint64_t operations, std::uint64_t bytes,
                    const char* what) {
  EXPECT_EQ(traffic.operations, operations) << what;
  EXPECT_EQ(traffic.bytes, bytes) << what;
}

TEST(Counters, SayExactlyWhatWasDone) {
  Pair pair({.bytes = 1 << 20});
  End& a = *pair.a;
  End& b = *pair.b;
  const auto remote = b.region.remote();
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(b.queue_pair.post_receive(b.region.slice(0, 100), i), 0);
    ASSERT_EQ(a.queue_pair.post_send(a.region.slice(0, 10), i), 0);
    ASSERT_TRUE(a.await().ok());
    ASSERT_TRUE(b.await().ok());
  }
  // Transfers of many segments each.
  ASSERT_EQ(a.queue_pair.post_write(a.region.slice(0, 300'000), remote, 10), 0);
  ASSERT_EQ(a.queue_pair.post_read(a.region.slice(0, 200'000), remote, 11), 0);
  ASSERT_EQ(a.queue_pair.post_fetch_and_add(a.region.slice(0, 8), remote, 1, 12), 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a.await().ok());

  const auto from = a.queue_pair.counters();
  expect_traffic(from.sends, 3, 30, "sends");
  expect_traffic(from.writes, 1, 300'000, "writes");
  expect_traffic(from.reads, 1, 200'000, "reads");
  expect_traffic(from.atomics, 1, 8, "atomics");
  expect_traffic(from.receives, 0, 0, "receives");
  EXPECT_EQ(from.send_completions[IBV_WC_SUCCESS], 6U);
  EXPECT_EQ(from.rnr_waits, 0U);

  const auto to = b.queue_pair.counters();
  expect_traffic(to.receives, 3, 300, "receives");
  expect_traffic(to.received, 3, 30, "received");
  expect_traffic(to.peer_writes, 1, 300'000, "peer_writes");
  expect_traffic(to.peer_reads, 1, 200'000, "peer_reads");
  expect_traffic(to.peer_atomics, 1, 8, "peer_atomics");
  EXPECT_EQ(to.receive_completions[IBV_WC_SUCCESS], 3U);

  const auto region = b.region.counters();
  expect_traffic(region.peer_writes, 1, 300'000, "writes to the region");
  expect_traffic(region.peer_reads, 1, 200'000, "reads from the region");
  expect_traffic(region.peer_atomics, 1, 8, "atomics in the region");
  expect_traffic(a.region.counters().peer_writes, 0, 0, "nobody wrote here");

  const auto queue = a.queue.counters();
  EXPECT_EQ(queue.completions[IBV_WC_SUCCESS], 6U);
  EXPECT_EQ(queue.polled, 6U);
  EXPECT_EQ(queue.lost, 0U);
}

TEST(Counters, UnsignaledRequestsCompleteNowhere) {
  Pair pair;
  End& a = *pair.a;
  for (int i = 0; i < 9; ++i) {
    const auto flags = i == 8 ? SendFlags::signaled : SendFlags::none;
    ASSERT_EQ(a.queue_pair.post_write(a.region.slice(0, 5), pair.b->region.remote(), 1, flags), 0);
  }
  ASSERT_TRUE(a.await().ok());
  const auto counted = a.queue_pair.counters();
  expect_traffic(counted.writes, 9, 45, "writes");
  EXPECT_EQ(counted.send_completions[IBV_WC_SUCCESS], 1U);
  expect_traffic(pair.b->queue_pair.counters().peer_writes, 9, 45, "placed before the completion");
}

TEST(Counters, FailuresAreCountedByStatus) {
  Pair pair;
  End& a = *pair.a;
  const auto remote = pair.b->region.remote();
  const RemoteSlice wrong(remote.address(), 8, remote.rkey() ^ 0x10000);
  ASSERT_EQ(pair.a->queue_pair.post_receive(a.region.slice(0, 8), 1), 0);
  ASSERT_EQ(a.queue_pair.post_write(a.region.slice(0, 8), wrong, 2), 0);
  EXPECT_EQ(a.await().status(), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(a.await().status(), IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(a.queue_pair.post_send(a.region.slice(0, 8), 3), 0);
  EXPECT_EQ(a.await().status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_NE(a.queue_pair.post_send(std::array<LocalSlice, 5>{}, 4), 0) << "more than max_send_sge";
  const auto counted = a.queue_pair.counters();
  EXPECT_EQ(counted.send_completions[IBV_WC_REM_ACCESS_ERR], 1U);
  EXPECT_EQ(counted.send_completions[IBV_WC_WR_FLUSH_ERR], 1U);
  EXPECT_EQ(counted.receive_completions[IBV_WC_WR_FLUSH_ERR], 1U);
  expect_traffic(counted.sends, 1, 8, "what was refused does not count");
  expect_traffic(counted.received, 0, 0, "received");
  expect_traffic(pair.b->queue_pair.counters().peer_writes, 0, 0, "what was not allowed");
  expect_traffic(pair.b->region.counters().peer_writes, 0, 0, "what was not allowed");
}

// In the roce personality a message without a receive waits for one.
TEST(Counters, WaitsForReceivesHaveTheirTime) {
  Pair pair;
  End& a = *pair.a;
  End& b = *pair.b;
  ASSERT_EQ(a.queue_pair.post_send(a.region.slice(0, 8), 1), 0);
  while (b.queue_pair.counters().rnr_waits == 0) std::this_thread::yield();
  const auto waiting = b.queue_pair.counters();
  EXPECT_EQ(waiting.rnr_waits, 1U);
  while (b.queue_pair.counters().rnr_wait_ns <= waiting.rnr_wait_ns) std::this_thread::yield();
  ASSERT_EQ(b.queue_pair.post_receive(b.region.slice(0, 8), 2), 0);
  ASSERT_TRUE(b.await().ok());
  ASSERT_TRUE(a.await().ok());
  const auto over = b.queue_pair.counters();
  EXPECT_EQ(over.rnr_waits, 1U);
  EXPECT_GT(over.rnr_wait_ns, waiting.rnr_wait_ns);
  EXPECT_EQ(b.queue_pair.counters().rnr_wait_ns, over.rnr_wait_ns) << "it has ended";
  EXPECT_EQ(a.queue_pair.counters().rnr_waits, 0U);
  a.id.disconnect();
  (void)expect(pair.events, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(b.queue_pair.counters().rnr_waits, 1U) << "the connection is gone, its counters not";
}

// Queue pairs connected by number: towards another Weft device the sender knows how much the
// receiver can hold.
class CountersOfNumbered : public ::testing::Test {
 protected:
  PreparedQueuePair prepare(const CompletionQueue& sends) {
    auto builder = domain.queue_pair(sends, queue);
    builder.max_send_requests(8).max_receive_requests(8).access(Access::all).rnr_retry(7);
    return builder.build();
  }
  void connect(const CompletionQueue& sends) {
    auto one = prepare(sends);
    auto other = prepare(queue);
    const Endpoint of_one = one.endpoint();
    const Endpoint of_other = other.endpoint();
    a.emplace(std::move(one).handshake(of_other));
    b.emplace(std::move(other).handshake(of_one));
  }
  // Completes more requests than the completion queue has room for, without polling.
  void overrun(const CompletionQueue& sends) {
    for (int i = 0; i < sends.capacity() + 2; ++i) {
      while (a->post_write(region.slice(0, 8), region.remote(), 1, SendFlags::signaled) == ENOMEM) {
        ASSERT_EQ(sends.counters().lost, 0U);
      }
    }
  }
  ibv_wc_status await() {
    std::array<Completion, 1> one;
    const auto got = queue.wait(one, patience);
    if (got.empty()) throw std::runtime_error("no completion");
    return got[0].status();
  }

  Context context = test::open_device();
  ProtectionDomain domain = context.create_domain();
  CompletionQueue queue = context.create_completion_queue(64);
  TypedRegion<std::uint8_t> region = domain.allocate<std::uint8_t>(4 << 20, Access::all);
  std::optional<QueuePair> a;
  std::optional<QueuePair> b;
};

TEST_F(CountersOfNumbered, WaitsForCreditHaveTheirTime) {
  connect(queue);
  // Larger than what the peer's device holds without a receive.
  ASSERT_EQ(a->post_send(region.slice(0, 2 << 20), 1), 0);
  while (a->counters().credit_waits == 0) std::this_thread::yield();
  const auto waiting = a->counters();
  EXPECT_EQ(waiting.credit_waits, 1U);
  while (a->counters().credit_wait_ns <= waiting.credit_wait_ns) std::this_thread::yield();
  ASSERT_EQ(b->post_receive(region.slice(2 << 20, 2 << 20), 2), 0);
  EXPECT_EQ(await(), IBV_WC_SUCCESS);
  EXPECT_EQ(await(), IBV_WC_SUCCESS);
  const auto over = a->counters();
  EXPECT_EQ(over.credit_waits, 1U);
  EXPECT_GT(over.credit_wait_ns, waiting.credit_wait_ns);
  EXPECT_EQ(a->counters().credit_wait_ns, over.credit_wait_ns) << "it has ended";
  EXPECT_EQ(b->counters().credit_waits, 0U);
}

TEST_F(CountersOfNumbered, ConnectionsThatAreTriedAgain) {
  auto prepared = prepare(queue);
  Endpoint nobody = prepared.endpoint();
  nobody.number ^= 1;  // a number in this process's slot that no queue pair has
  a.emplace(std::move(prepared).handshake(nobody));
  ASSERT_EQ(a->post_send(region.slice(0, 8), 1), 0);
  ASSERT_EQ(await(), IBV_WC_RETRY_EXC_ERR);
  const auto counted = a->counters();
  EXPECT_GE(counted.connection_retries, 1U) << "the attempts are over, what they counted stays";
  EXPECT_EQ(counted.sends.operations, 1U);
  EXPECT_EQ(counted.send_completions[IBV_WC_RETRY_EXC_ERR], 1U);
}

TEST_F(CountersOfNumbered, QueuesCountWhatFindsNoPlace) {
  const auto small = context.create_completion_queue(1);
  connect(small);
  EXPECT_EQ(small.counters().lost, 0U);
  overrun(small);
  const auto event = context.next_event(patience);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type(), IBV_EVENT_CQ_ERR) << event->name();
  EXPECT_GE(small.counters().lost, 1U);
  EXPECT_EQ(small.counters().polled, 0U);
}

// Assignment must acknowledge the first event; otherwise the object that it names could not be
// destroyed.
TEST_F(CountersOfNumbered, AnEventThatIsAssignedToIsAcknowledged) {
  const auto small = context.create_completion_queue(1);
  connect(small);
  overrun(small);
  auto event = context.next_event(patience);
  ASSERT_TRUE(event);
  event = context.next_event(patience);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type(), IBV_EVENT_QP_FATAL) << event->name();
}

TEST_F(CountersOfNumbered, AsynchronousEventsGoToACallback) {
  const auto small = context.create_completion_queue(1);
  connect(small);
  EXPECT_EQ(context.dispatch_events([](const AsyncEvent&) { FAIL() << "nothing happened yet"; }),
            0U);
  overrun(small);
  pollfd readable{context.event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, -1), 1);
  bool told = false;
  context.dispatch_events([&](const AsyncEvent& event) {
    told |= event.type() == IBV_EVENT_CQ_ERR && event.raw().element.cq == small.raw();
  });
  EXPECT_TRUE(told);
}

TEST(Counters, QueuesCountEventsAndPolls) {
  Pair pair;
  EXPECT_EQ(pair.a->queue.counters().events, 0U);
  pair.a->queue.arm();
  ASSERT_EQ(pair.a->queue_pair.post_write(pair.a->region.slice(0, 1), pair.b->region.remote(), 1),
            0);
  ASSERT_TRUE(pair.a->channel.wait(patience));
  EXPECT_EQ(pair.a->queue.counters().events, 1U);
  EXPECT_EQ(pair.a->queue.counters().polled, 0U);
  EXPECT_TRUE(pair.a->await().ok());
  EXPECT_EQ(pair.a->queue.counters().polled, 1U);
}

}  // namespace
}  // namespace weft::verbs::testing
