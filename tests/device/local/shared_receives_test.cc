// Messages within one host to a queue pair with a shared receive queue: the receiver finds a
// receive for each when it takes the message, and the Send completes then.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <string>
#include <thread>

#include "device/local/same_host_test.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

constexpr std::size_t size = 64;

class SharedReceivesHere : public SameHostTest {
 protected:
  static PairOptions shared() {
    PairOptions options;
    options.ends.shared_receives = true;
    options.hold_bytes = 1 << 16;
    options.weft_peers = true;
    return options;
  }
  static int immediate(End& end, ibv_wr_opcode opcode, std::vector<ibv_sge> slices,
                       const Buffer* target = nullptr) {
    ibv_send_wr request{};
    request.wr_id = 9;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = 77;
    if (target) {
      request.wr.rdma.remote_addr = target->address();
      request.wr.rdma.rkey = target->rkey();
    }
    return end.post(request, std::move(slices));
  }
};

TEST_F(SharedReceivesHere, LeaveTcp) {
  Pair pair(shared());
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  source->fill(3);
  ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
  expect_success(pair.b, 1);
  expect_success(pair.a, 2);
  EXPECT_TRUE(target->holds(3, 0, size));
  EXPECT_EQ(std::string(pair.a.queue_pair->carrier_note().name), "same-host");
  EXPECT_EQ(std::string(pair.b.queue_pair->carrier_note().name), "same-host");
}

TEST_F(SharedReceivesHere, SeveralSendsAreUnderWay) {
  Pair pair(shared());
  constexpr std::uint64_t count = 50;
  const auto source = pair.a.buffer(count * size);
  const auto target = pair.b.buffer(count * size);
  source->fill(5);
  for (int round = 0; round < 20; ++round) {
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(pair.b.post_receive(i, {target->sge(i * size, size)}), 0);
    }
    // Unsignaled ones are covered by the next that is signaled.
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(pair.a.send(i, {source->sge(i * size, size)}, i % 2 == 1 ? IBV_SEND_SIGNALED : 0),
                0);
    }
    for (std::uint64_t i = 0; i < count; ++i) expect_success(pair.b, i);
    for (std::uint64_t i = 1; i < count; i += 2) expect_success(pair.a, i);
    EXPECT_TRUE(target->holds(5, 0, count * size));
  }
}

// Small ones lie in the ring; a larger one is fetched by the receiver's device.
TEST_F(SharedReceivesHere, SizesOfAllWays) {
  Pair pair(shared());
  constexpr std::size_t largest = 1 << 20;
  const auto source = pair.a.buffer(largest);
  const auto target = pair.b.buffer(largest);
  std::uint8_t seed = 0;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{4097},
        std::size_t{12 * 1024}, std::size_t{12 * 1024 + 1}, largest}) {
    source->fill(++seed);
    ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, largest)}), 0);
    ASSERT_EQ(pair.a.send(2, {source->sge(0, bytes)}), 0);
    const ibv_wc received = pair.b.await();
    ASSERT_EQ(received.status, IBV_WC_SUCCESS) << bytes;
    EXPECT_EQ(received.byte_len, bytes);
    expect_success(pair.a, 2);
    EXPECT_TRUE(target->holds(seed, 0, bytes)) << bytes;
  }
}

// Their payload is fetched in the order of the Sends, with small ones between them.
TEST_F(SharedReceivesHere, LargeSendsAreUnderWayTogether) {
  Pair pair(shared());
  constexpr std::size_t large = 50'000;
  constexpr std::uint64_t count = 16;
  const auto source = pair.a.buffer(count * large);
  const auto target = pair.b.buffer(count * large);
  const auto bytes_of = [](std::uint64_t i) { return i % 3 == 1 ? size : large; };
  for (std::uint8_t round = 1; round <= 20; ++round) {
    source->fill(round);
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(pair.a.send(i, {source->sge(i * large, bytes_of(i))}), 0);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(pair.b.post_receive(i, {target->sge(i * large, large)}), 0);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      expect_success(pair.b, i);
      expect_success(pair.a, i);
      EXPECT_TRUE(target->holds(round, i * large, i * large + bytes_of(i))) << i;
    }
  }
}

// Memory that is deregistered although a Send uses it: that Send fails, and none before it.
TEST_F(SharedReceivesHere, DeregisteredMemoryIsNotFetched) {
  Pair pair(shared());
  constexpr std::size_t large = 50'000;
  const auto first = pair.a.buffer(large);
  const auto second = pair.a.buffer(large);
  const auto target = pair.b.buffer(large);
  exchange_one(pair, *first, *target);
  first->fill(2);
  ASSERT_EQ(pair.a.send(1, {first->sge(0, large)}), 0);
  ASSERT_EQ(pair.a.send(2, {second->sge(0, large)}), 0);
  ASSERT_EQ(pair.a.send(3, {first->sge(0, large)}), 0);
  second->deregister();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(pair.b.post_receive(i, {target->sge(0, large)}), 0);
  }
  expect_success(pair.a, 1);
  expect_success(pair.b, 1);
  EXPECT_TRUE(target->holds(2, 0, large));
  const ibv_wc failed = pair.a.await();
  EXPECT_EQ(failed.wr_id, 2U);
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SharedReceivesHere, RequestsCompleteInTheirOrder) {
  Pair pair(shared());
  const auto source = pair.a.buffer(4 * size);
  const auto target = pair.b.buffer(4 * size);
  source->fill(1);
  for (int round = 0; round < 50; ++round) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(pair.b.post_receive(i, {target->sge(0, size)}), 0);
    }
    ASSERT_EQ(pair.a.send(1, {source->sge(0, size)}), 0);
    ASSERT_EQ(pair.a.write(2, {source->sge(0, size)}, target->address(), target->rkey()), 0);
    ASSERT_EQ(pair.a.send(3, {source->sge(0, size)}), 0);
    ASSERT_EQ(pair.a.read(4, {source->sge(size, size)}, target->address(), target->rkey()), 0);
    ASSERT_EQ(immediate(pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, {source->sge(0, size)}, target.get()),
              0);
    for (const std::uint64_t wr_id : {1, 2, 3, 4, 9}) expect_success(pair.a, wr_id);
    for (std::uint64_t i = 0; i < 3; ++i) expect_success(pair.b, i);
  }
}

TEST_F(SharedReceivesHere, CarryImmediates) {
  Pair pair(shared());
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  source->fill(8);
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, size)}), 0);
    ASSERT_EQ(immediate(pair.a, opcode, {source->sge(0, size)}, target.get()), 0);
    const ibv_wc received = pair.b.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.imm_data, 77U);
    expect_success(pair.a, 9);
    EXPECT_TRUE(target->holds(8, 0, size));
  }
}

// Receiver not ready: every kind of message waits until a receive is posted, and those behind it.
TEST_F(SharedReceivesHere, AMessageWaitsForAReceive) {
  Pair pair(shared());
  constexpr std::size_t large = 100'000;
  const auto source = pair.a.buffer(large);
  const auto target = pair.b.buffer(large);
  source->fill(4);
  // The receiver has looked at it: the waits are counted, at this end or at the sender.
  const auto waits = [&] {
    const auto at = [](End& end) {
      const QueuePairCounters counters = end.queue_pair->counters();
      return counters.rnr_waits + counters.credit_waits;
    };
    return at(pair.a) + at(pair.b);
  };
  for (const std::size_t bytes : {size, large}) {
    const auto before = waits();
    ASSERT_EQ(pair.a.send(1, {source->sge(0, bytes)}), 0);
    ASSERT_EQ(immediate(pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, {source->sge(0, bytes)}, target.get()),
              0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (waits() == before) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      EXPECT_FALSE(pair.b.look());
      EXPECT_FALSE(pair.a.look());
      std::this_thread::yield();
    }
    ASSERT_EQ(pair.b.post_receive(5, {target->sge(0, large)}), 0);
    expect_success(pair.b, 5);
    expect_success(pair.a, 1);
    ASSERT_EQ(pair.b.post_receive(6, {target->sge(0, large)}), 0);
    expect_success(pair.b, 6);
    expect_success(pair.a, 9);
    EXPECT_TRUE(target->holds(4, 0, bytes));
  }
}

// The answer to a request of this end comes behind messages that wait for its receives, and those
// may fill the ring.
TEST_F(SharedReceivesHere, AReplyDoesNotWaitForAReceive) {
  Pair pair(shared());
  constexpr std::size_t bytes = 4096;
  constexpr std::uint64_t count = 60;  // more than the ring holds
  const auto source = pair.b.buffer(bytes);
  const auto target = pair.a.buffer(bytes);
  const auto result = pair.a.buffer(8);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(pair.b.send(i, {source->sge(0, bytes)}), 0);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (pair.a.queue_pair->counters().rnr_waits + pair.b.queue_pair->counters().rnr_waits == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    EXPECT_FALSE(pair.a.look());
    EXPECT_FALSE(pair.b.look());
  }
  ibv_send_wr request{};
  request.wr_id = 7;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.atomic.remote_addr = source->address();
  request.wr.atomic.rkey = source->rkey();
  request.wr.atomic.compare_add = 1;
  // More than there could be answers in the ring.
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(pair.a.post(request, {result->sge(0, 8)}), 0);
    expect_success(pair.a, 7);
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(pair.a.post_receive(100 + i, {target->sge(0, bytes)}), 0);
    expect_success(pair.a, 100 + i);
    expect_success(pair.b, i);
  }
}

// Without a hold a missing receive ends the connection at once, as on iWARP adapters.
TEST_F(SharedReceivesHere, WithoutAHoldTheFirstMissingReceiveIsAnError) {
  PairOptions options = shared();
  options.hold_bytes = 0;
  Pair pair(options);
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(1, {source->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(3, {source->sge(0, size)}), 0);
  expect_success(pair.a, 1);
  const ibv_wc failed = pair.a.await();
  EXPECT_EQ(failed.wr_id, 2U);
  EXPECT_EQ(failed.status, IBV_WC_RNR_RETRY_EXC_ERR);
  const ibv_wc flushed = pair.a.await();
  EXPECT_EQ(flushed.wr_id, 3U);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SharedReceivesHere, TheMessageThatDoesNotFitFails) {
  constexpr std::size_t large = 100'000;
  for (const std::size_t bytes : {2 * size, large}) {
    Pair pair(shared());
    const auto source = pair.a.buffer(large);
    const auto target = pair.b.buffer(size);
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(pair.b.post_receive(i, {target->sge(0, size)}), 0);
    }
    ASSERT_EQ(pair.a.send(1, {source->sge(0, size)}), 0);
    ASSERT_EQ(pair.a.send(2, {source->sge(0, bytes)}), 0);
    ASSERT_EQ(pair.a.send(3, {source->sge(0, size)}), 0);
    expect_success(pair.a, 1);
    const ibv_wc failed = pair.a.await();
    EXPECT_EQ(failed.wr_id, 2U);
    EXPECT_EQ(failed.status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
    expect_success(pair.b, 0);
    EXPECT_EQ(pair.b.await().status, IBV_WC_LOC_LEN_ERR);
  }
}

// A program that sleeps until its Send completes is woken, also where the receiver does nothing.
TEST_F(SharedReceivesHere, ASleepingSenderIsWoken) {
  PairOptions options = shared();
  options.ends.channel = true;
  Pair pair(options);
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(pair.b.post_receive(i, {target->sge(0, size)}), 0);
    ASSERT_EQ(pair.a.queue.request_notification(false), 0);
    ASSERT_EQ(pair.a.send(i, {source->sge(0, size)}), 0);
    pollfd entry{.fd = pair.a.channel->verbs()->fd, .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&entry, 1, 10'000), 1);
    CompletionQueue* queue = nullptr;
    ASSERT_EQ(pair.a.channel->next(queue), 0);
    ++pair.a.queue.verbs()->comp_events_completed;
    expect_success(pair.a, i);
    expect_success(pair.b, i);
  }
}

// Receiver not ready: the message has arrived, or its Send has failed, and never both.
TEST_F(SharedReceivesHere, AReceiveThatComesTooLateTakesNothing) {
  PairOptions options = shared();
  options.hold_bytes = 0;
  for (int round = 0; round < 150; ++round) {
    Pair pair(options);
    const auto source = pair.a.buffer(size);
    const auto target = pair.b.buffer(size);
    exchange_one(pair, *source, *target);
    std::thread receiver([&] {
      for (int i = 0; i < round; ++i) std::this_thread::yield();
      EXPECT_EQ(pair.b.post_receive(2, {target->sge(0, size)}), 0);
    });
    EXPECT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
    const ibv_wc sent = pair.a.await();
    receiver.join();
    // The peer's progress thread may be about to complete what it has taken.
    if (sent.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(pair.b.await().status, IBV_WC_SUCCESS) << round;
      continue;
    }
    EXPECT_EQ(sent.status, IBV_WC_RNR_RETRY_EXC_ERR) << round;
    const auto received = pair.b.look();
    EXPECT_FALSE(received && received->status == IBV_WC_SUCCESS) << round;
  }
}

// rdma_disconnect(3): the peer has some time to take what was sent before.
TEST_F(SharedReceivesHere, WhatIsUnderWayIsProvenAfterADisconnection) {
  PairOptions options = shared();
  options.settings.disconnect.proofs_ns = 60'000'000'000;
  constexpr std::size_t large = 100'000;
  for (const std::size_t bytes : {size, large}) {
    Pair pair(options);
    const auto source = pair.a.buffer(large);
    const auto target = pair.b.buffer(large);
    source->fill(6);
    exchange_one(pair, *source, *target);
    ASSERT_EQ(pair.a.send(1, {source->sge(0, bytes)}), 0);
    ASSERT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
    pair.a.queue_pair->disconnect();
    EXPECT_EQ(pair.a.queue_pair->verbs()->state, IBV_QPS_ERR);
    ASSERT_EQ(pair.a.send(3, {source->sge(0, size)}), 0);
    EXPECT_FALSE(pair.a.look()) << "it waits for a receive";
    // Requests of the peer are not carried out any more.
    ASSERT_EQ(pair.b.write(9, {target->sge(0, size)}, source->address(), source->rkey()), 0);
    for (const std::uint64_t wr_id : {1, 2}) {
      ASSERT_EQ(pair.b.post_receive(wr_id, {target->sge(0, large)}), 0);
      expect_success(pair.b, wr_id);
      expect_success(pair.a, wr_id);
    }
    EXPECT_TRUE(target->holds(6, 0, size));
    const ibv_wc flushed = pair.a.await();
    EXPECT_EQ(flushed.wr_id, 3U);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_NE(pair.b.await().status, IBV_WC_SUCCESS);
  }
}

TEST_F(SharedReceivesHere, BothMayDisconnect) {
  PairOptions options = shared();
  options.settings.disconnect.proofs_ns = 60'000'000'000;
  Pair pair(options);
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  exchange_one(pair, *source, *target);
  ASSERT_EQ(pair.a.send(1, {source->sge(0, size)}), 0);
  ASSERT_EQ(pair.b.send(2, {target->sge(0, size)}), 0);
  pair.a.queue_pair->disconnect();
  pair.b.queue_pair->disconnect();
  EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b.await().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SharedReceivesHere, WhatIsUnderWayIsFlushedInOrder) {
  PairOptions options = shared();
  options.settings.disconnect.proofs_ns = 1'000'000;
  Pair pair(options);
  const auto source = pair.a.buffer(size);
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(pair.a.send(i, {source->sge(0, size)}), 0);
  pair.a.queue_pair->disconnect();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const ibv_wc flushed = pair.a.await();
    EXPECT_EQ(flushed.wr_id, i);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  }
}

}  // namespace
}  // namespace weft::device
