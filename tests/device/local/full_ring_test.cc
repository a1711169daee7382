// Receivers within one host that make no calls: messages fill the ring, and what needs this end is
// done all the same.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "device/local/inbox.h"
#include "device/local/same_host_test.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

constexpr std::size_t size = 64;

class FullRing : public SameHostTest {
 protected:
  static PairOptions many() {
    PairOptions options;
    options.ends.completions = 16384;
    options.ends.send_requests = 8192;
    options.ends.receive_requests = 8192;
    options.hold_bytes = 1 << 16;
    options.weft_peers = true;
    return options;
  }
};

// The program of the receiver may wait for the Write behind them, in its memory.
TEST_F(FullRing, ReceiversTakeMessagesWithoutACall) {
  Pair pair(many());
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  exchange_one(pair, *source, *target);
  constexpr int count = 6000;
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(pair.b.post_receive(2, {target->sge(0, size)}), 0);
  }
  for (int i = 0; i < count; ++i) ASSERT_EQ(pair.a.send(2, {source->sge(0, size)}, 0), 0);
  ASSERT_EQ(pair.a.write(3, {source->sge(0, size)}, target->address(), target->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
}

// The end that answers makes no call either.
TEST_F(FullRing, AnAnswerWaitsForNoRoom) {
  Pair pair(many());
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  source->fill(0);
  exchange_one(pair, *source, *target);
  for (std::uint32_t i = 0; i < inbox::slots; ++i) {
    ASSERT_EQ(pair.b.post_receive(2, {target->sge(0, size)}), 0);
  }
  for (std::uint32_t i = 0; i < inbox::slots; ++i) {
    ASSERT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
    EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  }
  // Made by the other device, since only this process could map the memory.
  ibv_send_wr request{};
  request.wr_id = 7;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.atomic.remote_addr = source->address();
  request.wr.atomic.rkey = source->rkey();
  request.wr.atomic.compare_add = 1;
  ASSERT_EQ(pair.b.post(request, {target->sge(0, 8)}), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (pair.a.queue_pair->counters().peer_atomics.operations == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::yield();
  }
  ibv_wc completion{};
  for (std::uint32_t i = 0; i <= inbox::slots && completion.wr_id != 7; ++i) {
    completion = pair.b.await();
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(completion.wr_id, 7U);
}

}  // namespace
}  // namespace weft::device
