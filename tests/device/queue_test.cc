// Completion queues, their events, shared receive queues, states and lifetimes.
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "device/pair_fixture.h"
#include "device/queue_pair/transitions.h"

namespace weft::device {
namespace {

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

bool becomes_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 10'000) == 1;
}

void acknowledge(CompletionQueue& queue, unsigned count) {
  ibv_cq* cq = queue.verbs();
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

std::size_t depth(CompletionQueue& queue) {
  const std::lock_guard lock(queue.mutex());
  return queue.depth_locked();
}

PairOptions with_channels() {
  PairOptions options;
  options.ends.channel = true;
  return options;
}

TEST(CompletionEvents, WakeASleeperThatNeverPolled) {
  Pair pair(with_channels());
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  ASSERT_EQ(pair.b.post_receive(1, {remote->sge(0, 8)}), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.b.queue.verbs(), 0), 0);
  ASSERT_EQ(pair.a.send(1, {local->sge(0, 8)}), 0);
  CompletionQueue* queue = nullptr;
  ASSERT_EQ(pair.b.channel->next(queue), 0);
  EXPECT_EQ(queue, &pair.b.queue);
  EXPECT_EQ(pair.b.await().status, IBV_WC_SUCCESS);
  acknowledge(pair.b.queue, 1);
}

TEST(CompletionEvents, SolicitedOnlyIgnoresTheRest) {
  Pair pair(with_channels());
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(pair.b.post_receive(i, {remote->sge(0, 8)}), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.b.queue.verbs(), 1), 0);
  ASSERT_EQ(pair.a.send(1, {local->sge(0, 8)}), 0);
  EXPECT_EQ(pair.b.await().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(readable(pair.b.channel->verbs()->fd));
  ASSERT_EQ(pair.a.send(2, {local->sge(0, 8)}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
  EXPECT_TRUE(becomes_readable(pair.b.channel->verbs()->fd));
  CompletionQueue* queue = nullptr;
  ASSERT_EQ(pair.b.channel->next(queue), 0);
  acknowledge(pair.b.queue, 1);
}

TEST(CompletionEvents, NonBlockingChannelAnswersAgain) {
  Pair pair(with_channels());
  fcntl(pair.a.channel->verbs()->fd, F_SETFL, O_NONBLOCK);
  CompletionQueue* queue = nullptr;
  EXPECT_EQ(pair.a.channel->next(queue), EAGAIN);
}

// Arm, drain, sleep: a completion that arrives in between must wake the sleeper.
TEST(CompletionEvents, NoneIsLostBetweenArmingAndSleeping) {
  Pair pair(with_channels());
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  constexpr int messages = 2000;
  for (std::uint64_t i = 0; i < 32; ++i) pair.b.post_receive(i, {remote->sge(0, 8)});
  std::atomic<int> credits{32};
  // Arm before the first message: arming covers later completions only.
  ibv_req_notify_cq(pair.b.queue.verbs(), 0);
  std::thread sender([&] {
    for (int i = 0; i < messages; ++i) {
      while (credits.load() == 0) std::this_thread::yield();
      --credits;
      pair.a.send(1, {local->sge(0, 8)});
      pair.a.await();
    }
  });
  int received = 0;
  unsigned events = 0;
  while (received < messages) {
    CompletionQueue* queue = nullptr;
    ASSERT_TRUE(becomes_readable(pair.b.channel->verbs()->fd)) << received;
    ASSERT_EQ(pair.b.channel->next(queue), 0);
    ++events;
    ibv_req_notify_cq(pair.b.queue.verbs(), 0);
    while (pair.b.look()) {
      ++received;
      pair.b.post_receive(1, {remote->sge(0, 8)});
      ++credits;
    }
  }
  sender.join();
  acknowledge(pair.b.queue, events);
}

// perftest's latency tests take an event, arm, and poll only then.
TEST(CompletionEvents, ArmingDoesNotTellOfWhatIsThereAlready) {
  Pair pair(with_channels());
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  ASSERT_EQ(ibv_req_notify_cq(pair.a.queue.verbs(), 0), 0);
  ASSERT_EQ(pair.a.write(1, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  ASSERT_TRUE(becomes_readable(pair.a.channel->verbs()->fd));
  CompletionQueue* queue = nullptr;
  ASSERT_EQ(pair.a.channel->next(queue), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.a.queue.verbs(), 0), 0);
  EXPECT_EQ(pair.a.await().wr_id, 1U);
  EXPECT_FALSE(readable(pair.a.channel->verbs()->fd));
  acknowledge(pair.a.queue, 1);
}

// perftest's bandwidth tests poll one batch per event and sleep although more completions are in
// the queue.
TEST(CompletionEvents, ArmingTellsOfWhatCameAfterTheLastEvent) {
  Pair pair(with_channels());
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  ASSERT_EQ(ibv_req_notify_cq(pair.a.queue.verbs(), 0), 0);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.a.write(i, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  }
  EXPECT_EQ(pair.a.await().wr_id, 0U);
  EXPECT_EQ(pair.a.await().wr_id, 1U);
  ibv_send_wr last{};
  last.opcode = IBV_WR_RDMA_READ;
  last.send_flags = IBV_SEND_SIGNALED;
  last.wr.rdma = {remote->address(), remote->rkey()};
  ASSERT_EQ(pair.a.post(last, {local->sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.await().wr_id, 2U);
  // The read may be complete already; its event arrives in either case.
  CompletionQueue* queue = nullptr;
  ASSERT_EQ(pair.a.channel->next(queue), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.a.queue.verbs(), 0), 0);
  ASSERT_TRUE(becomes_readable(pair.a.channel->verbs()->fd));
  ASSERT_EQ(pair.a.channel->next(queue), 0);
  EXPECT_EQ(pair.a.await().opcode, IBV_WC_RDMA_READ);
  acknowledge(pair.a.queue, 2);
}

TEST(CompletionQueueLimits, OverrunRaisesTheAsynchronousEvent) {
  PairOptions options;
  options.ends.completions = 2;
  Pair pair(options);
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(pair.a.write(i, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  }
  ASSERT_TRUE(becomes_readable(pair.a.context.verbs()->async_fd));
  ibv_async_event event{};
  ASSERT_EQ(pair.a.context.next_event(event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, pair.a.queue.verbs());
  pair.a.context.acknowledge(event);
}

TEST(CompletionQueueLimits, ResizeKeepsWhatIsThere) {
  PairOptions options;
  options.ends.completions = 4;
  Pair pair(options);
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.a.write(i, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  }
  EXPECT_EQ(pair.a.await().wr_id, 0U);
  EXPECT_EQ(pair.a.queue.resize(100), 0);
  EXPECT_EQ(pair.a.queue.verbs()->cqe, 100);
  EXPECT_EQ(pair.a.await().wr_id, 1U);
  EXPECT_EQ(pair.a.await().wr_id, 2U);
  EXPECT_EQ(pair.a.queue.resize(0), EINVAL);
}

// The ring has fewer places than the queue at first. It grows here while its oldest completion is
// in the middle, so that what is there lies across its end.
TEST(CompletionQueueLimits, GrowsByNeedAndKeepsTheOrder) {
  PairOptions options;
  options.ends.completions = 40;
  Pair pair(options);
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  const std::uint64_t deadline = sys::now_ns() + 10'000'000'000U;
  std::uint64_t posted = 0;
  std::uint64_t next = 0;
  const auto write = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(pair.a.write(posted++, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
    }
    while (depth(pair.a.queue) < posted - next && sys::now_ns() < deadline) {
      pair.a.queue_pair->drive_inline();
    }
  };
  const auto poll = [&](std::uint64_t until) {
    while (next < until) {
      const ibv_wc completion = pair.a.await();
      EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
      EXPECT_EQ(completion.wr_id, next++);
    }
  };
  write(6);
  poll(3);
  write(37);
  EXPECT_EQ(pair.a.queue.counters().lost, 0U);
  poll(20);
  write(17);
  poll(posted);
  EXPECT_EQ(pair.a.queue.counters().lost, 0U);
}

TEST(SharedReceives, LimitEventFiresOnce) {
  PairOptions options;
  options.ends.shared_receives = true;
  Pair pair(options);
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(pair.b.post_receive(i, {remote->sge(0, 8)}), 0);
  ASSERT_EQ(pair.b.shared->modify({.max_wr = 0, .max_sge = 0, .srq_limit = 3}, IBV_SRQ_LIMIT), 0);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.a.send(i, {local->sge(0, 8)}), 0);
    EXPECT_EQ(pair.b.await().wr_id, i);
  }
  ibv_async_event event{};
  ASSERT_EQ(pair.b.context.next_event(event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, pair.b.shared->verbs());
  pair.b.context.acknowledge(event);
  EXPECT_FALSE(readable(pair.b.context.verbs()->async_fd));
  ibv_srq_attr attributes{};
  pair.b.shared->query(attributes);
  EXPECT_EQ(attributes.srq_limit, 0U);
  EXPECT_EQ(attributes.max_wr, 64U);
}

TEST(States, FollowTheManualPage) {
  constexpr int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, to_init, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, to_rtr, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, to_rts, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_STATE, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, IBV_QP_STATE, true), 0);
  for (const auto from : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
                          IBV_QPS_SQE, IBV_QPS_ERR}) {
    EXPECT_EQ(check_transition(IBV_QPT_RC, from, IBV_QPS_ERR, IBV_QP_STATE, true),
              from == IBV_QPS_RESET ? EINVAL : 0);
    EXPECT_EQ(check_transition(IBV_QPT_RC, from, IBV_QPS_ERR, IBV_QP_STATE, false), 0);
    EXPECT_EQ(check_transition(IBV_QPT_RC, from, IBV_QPS_RESET, IBV_QP_STATE, true), 0);
  }
  // Rejected: skipping a state, going back, wrong attributes.
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTR, to_rtr, true), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTS, to_rts, true), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_INIT, to_init, true), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RTS, IBV_QP_STATE, true), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, to_rtr & ~IBV_QP_AV, true),
            EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, to_rtr | IBV_QP_QKEY, true),
            EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE, false), 0);
}

TEST(States, UnreliableConnectionsHaveFewerAttributes) {
  constexpr int to_rtr =
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
  EXPECT_EQ(check_transition(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, to_rtr, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, to_rts, true), 0);
  EXPECT_EQ(
      check_transition(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, to_rtr | IBV_QP_MIN_RNR_TIMER, true),
      EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, to_rts | IBV_QP_TIMEOUT, true),
            EINVAL);
}

TEST(States, DatagramsHaveAKeyAndNoPeer) {
  constexpr int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  constexpr int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, to_init, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, to_rts, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_QKEY, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE, true), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, to_init & ~IBV_QP_QKEY, true),
            EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV, true),
            EINVAL);
}

TEST(States, ResetForgetsWhatWasPosted) {
  Pair pair;
  auto local = pair.a.buffer(8);
  ASSERT_EQ(pair.a.post_receive(1, {local->sge(0, 8)}), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(pair.a.queue_pair->modify(attributes, IBV_QP_STATE), 0);
  EXPECT_FALSE(pair.a.look());
  EXPECT_EQ(pair.a.send(1, {local->sge(0, 8)}), EINVAL);
}

TEST(States, ErrorFlushesReceivesInOrder) {
  Pair pair;
  auto local = pair.a.buffer(8);
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_EQ(pair.a.post_receive(i, {local->sge(0, 8)}), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(pair.a.queue_pair->modify(attributes, IBV_QP_STATE), 0);
  for (std::uint64_t i = 0; i < 5; ++i) {
    const ibv_wc flushed = pair.a.await();
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed.wr_id, i);
  }
}

// Deregistration waits for placements in progress; afterwards no byte arrives.
TEST(Lifetimes, DeregisterWhileThePeerWrites) {
  for (int round = 0; round < 20; ++round) {
    Pair pair;
    constexpr std::size_t size = 4 << 20;
    auto local = pair.a.buffer(size);
    auto remote = pair.b.buffer(size);
    ASSERT_EQ(pair.a.write(1, {local->sge(0, size)}, remote->address(), remote->rkey()), 0);
    std::this_thread::yield();
    remote->deregister();
    const std::vector<std::uint8_t> before(remote->bytes().begin(), remote->bytes().end());
    const ibv_wc done = pair.a.await();
    EXPECT_TRUE(done.status == IBV_WC_SUCCESS || done.status == IBV_WC_REM_ACCESS_ERR)
        << done.status;
    EXPECT_TRUE(std::equal(before.begin(), before.end(), remote->bytes().begin()));
  }
}

// Data of a region that is deregistered while it waits in the socket's queue is sent unchanged.
TEST(Lifetimes, DeregisterWhileReadResponsesWait) {
  PairOptions options;
  options.settings.crc = false;  // with CRCs responses are copies anyway
  Pair pair(options);
  constexpr std::size_t size = 8 << 20;
  auto local = pair.a.buffer(size);
  auto remote = pair.b.buffer(size);
  ASSERT_EQ(pair.a.read(1, {local->sge(0, size)}, remote->address(), remote->rkey()), 0);
  remote->deregister();
  const ibv_wc done = pair.a.await();
  EXPECT_TRUE(done.status == IBV_WC_SUCCESS || done.status == IBV_WC_REM_ACCESS_ERR) << done.status;
}

TEST(Threads, SeveralPostersAndPollersShareAQueuePair) {
  PairOptions options;
  options.ends.send_requests = 512;
  options.ends.completions = 4096;
  Pair pair(options);
  auto local = pair.a.buffer(4096);
  auto remote = pair.b.buffer(4096);
  constexpr int threads = 4;
  constexpr int each = 500;
  std::atomic<int> done{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      const auto offset = static_cast<std::size_t>(t) * 64;
      for (int i = 0; i < each; ++i) {
        while (pair.a.write(1, {local->sge(offset, 64)}, remote->address() + offset,
                            remote->rkey()) == ENOMEM) {
          if (pair.a.look()) ++done;
        }
        if (pair.a.look()) ++done;
      }
    });
  }
  for (auto& worker : workers) worker.join();
  while (done < threads * each) {
    ASSERT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
    ++done;
  }
  EXPECT_FALSE(pair.a.look());
}

// A program may wait for one queue while the peer writes by a connection of another queue.
TEST(CompletionQueue, APollerOfAnIdleQueueServesTheOthers) {
  PairOptions options;
  options.settings.progress.mode = ProgressMode::manual;
  Pair pair(options);
  CompletionQueue idle(pair.b.context, 16, nullptr, nullptr);
  const auto source = pair.a.buffer(4096);
  const auto target = pair.b.buffer(4096);
  source->fill(7);
  ASSERT_EQ(pair.a.write(1, {source->sge(0, 4096)}, target->address(), target->rkey()), 0);
  constexpr std::uint64_t hopeless_ns = 10'000'000'000;
  const std::uint64_t start_ns = sys::now_ns();
  ibv_wc completion{};
  while (!target->holds(7, 0, 4096)) {
    ASSERT_EQ(idle.poll(1, &completion), 0);
    ASSERT_LT(sys::now_ns() - start_ns, hopeless_ns);
  }
}

}  // namespace
}  // namespace weft::device
