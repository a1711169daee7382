// Small requests that nothing holds up take a shorter way than others
// (LocalRequester::post_promptly, LocalResponder::take_promptly). Whatever is not as usual ends as
// it would end there.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "device/local/same_host_test.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

constexpr std::uint32_t size = 64;

class PromptRequests : public SameHostTest {};

// As ibv_ack_cq_events(3).
void acknowledge(ibv_cq& cq) {
  pthread_mutex_lock(&cq.mutex);
  ++cq.comp_events_completed;
  pthread_cond_signal(&cq.cond);
  pthread_mutex_unlock(&cq.mutex);
}

// A Send whose own memory is refused.
struct Refused {
  const char* name;
  ibv_sge (*piece)(Buffer& source);
};

class RefusedPromptRequests : public PromptRequests, public testing::WithParamInterface<Refused> {};

ibv_sge with_other_key(Buffer& source) {
  ibv_sge piece = source.sge(0, size);
  piece.lkey ^= 1;
  return piece;
}

ibv_sge behind_the_end(Buffer& source) {
  ibv_sge piece = source.sge(0, size);
  piece.addr += 1;
  return piece;
}

ibv_sge before_the_beginning(Buffer& source) {
  ibv_sge piece = source.sge(0, size);
  piece.addr -= 1;
  return piece;
}

TEST_P(RefusedPromptRequests, FailAtTheirTurn) {
  Pair pair;
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  exchange_one(pair, *source, *target);
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_EQ(pair.b.post_receive(id, {target->sge(0, size)}), 0);
  }
  ASSERT_EQ(pair.a.send(0, {source->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(1, {GetParam().piece(*source)}), 0);
  expect_success(pair.a, 0);
  const ibv_wc failed = pair.a.await();
  EXPECT_EQ(failed.wr_id, 1U);
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
  expect_success(pair.b, 0);
  EXPECT_EQ(pair.b.await().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b.await().status, IBV_WC_WR_FLUSH_ERR);
}

INSTANTIATE_TEST_SUITE_P(OfOwnMemory, RefusedPromptRequests,
                         testing::Values(Refused{"Key", with_other_key},
                                         Refused{"End", behind_the_end},
                                         Refused{"Beginning", before_the_beginning}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_F(PromptRequests, FailWhereTheReceiveIsTooShort) {
  Pair pair;
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  exchange_one(pair, *source, *target);
  ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, size - 1)}), 0);
  ASSERT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.b.await().status, IBV_WC_LOC_LEN_ERR);
}

TEST_F(PromptRequests, FailWhereTheReceiveCannotBeWrittenTo) {
  Pair pair;
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  const auto read_only = pair.b.buffer(size, 0);
  exchange_one(pair, *source, *target);
  ASSERT_EQ(pair.b.post_receive(1, {read_only->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
  EXPECT_EQ(pair.b.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_OP_ERR);
}

TEST_F(PromptRequests, AreRefusedWhereInlineDataIsTooLong) {
  PairOptions options;
  options.ends.inline_bytes = size;
  Pair pair(options);
  const auto source = pair.a.buffer(2 * size);
  const auto target = pair.b.buffer(2 * size);
  exchange_one(pair, *source, *target);
  const std::uint32_t most = pair.a.queue_pair->inline_bytes();
  if (most >= 2 * size) GTEST_SKIP() << "more inline data is granted than the test sends";
  ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, 2 * size)}), 0);
  EXPECT_EQ(pair.a.send(1, {source->sge(0, most + 1)}, IBV_SEND_SIGNALED | IBV_SEND_INLINE),
            EINVAL);
  ibv_sge piece = source->sge(0, size);
  piece.lkey = 0;  // is not looked at
  source->fill(3);
  ASSERT_EQ(pair.a.send(2, {piece}, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
  source->fill(4);
  expect_success(pair.a, 2);
  expect_success(pair.b, 1);
  EXPECT_TRUE(target->holds(3, 0, size));
}

// A completion gives back the places of the unsignaled requests before it.
TEST_F(PromptRequests, KeepTheirPlacesUntilTheyArePolled) {
  PairOptions options;
  options.ends.send_requests = 4;
  Pair pair(options);
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  exchange_one(pair, *source, *target);
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t id = 0; id < 5; ++id) {
      ASSERT_EQ(pair.b.post_receive(id, {target->sge(0, size)}), 0);
    }
    for (std::uint64_t id = 0; id < 4; ++id) {
      const unsigned flags = id == 3 ? unsigned{IBV_SEND_SIGNALED} : 0U;
      ASSERT_EQ(pair.a.send(id, {source->sge(0, size)}, flags), 0);
    }
    EXPECT_EQ(pair.a.send(4, {source->sge(0, size)}), ENOMEM);
    expect_success(pair.a, 3);
    EXPECT_FALSE(pair.a.look());
    ASSERT_EQ(pair.a.send(4, {source->sge(0, size)}), 0);
    expect_success(pair.a, 4);
    for (std::uint64_t id = 0; id < 5; ++id) expect_success(pair.b, id);
  }
  const QueuePairCounters sent = pair.a.queue_pair->counters();
  EXPECT_EQ(sent.sends.operations, 16U);
  EXPECT_EQ(sent.sends.bytes, 16U * size);
  EXPECT_EQ(sent.send_completions[IBV_WC_SUCCESS], 7U);
  const QueuePairCounters received = pair.b.queue_pair->counters();
  EXPECT_EQ(received.received.operations, 16U);
  EXPECT_EQ(received.received.bytes, 16U * size);
  EXPECT_EQ(received.receive_completions[IBV_WC_SUCCESS], 16U);
}

// The completion raises the event that the program waits for, and is then in the queue.
TEST_F(PromptRequests, RaiseEvents) {
  PairOptions options;
  options.ends.channel = true;
  Pair pair(options);
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  exchange_one(pair, *source, *target);
  ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.queue.request_notification(false), 0);
  ASSERT_EQ(pair.b.queue.request_notification(true), 0);
  ASSERT_EQ(pair.a.send(1, {source->sge(0, size)}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
  for (End* const end : {&pair.a, &pair.b}) {
    CompletionQueue* queue = nullptr;
    ASSERT_EQ(end->channel->next(queue), 0);
    EXPECT_EQ(queue, &end->queue);
    expect_success(*end, 1);
    acknowledge(*queue->verbs());
  }
}

// The peer's messages are in the ring when this end stops: they have arrived.
TEST_F(PromptRequests, ArriveBeforeTheEnd) {
  Pair pair;
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  exchange_one(pair, *source, *target);
  for (std::uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(pair.b.post_receive(id, {target->sge(0, size)}), 0);
    ASSERT_EQ(pair.a.send(id, {source->sge(0, size)}), 0);
  }
  // The first one is taken alone by the poll; the others are in the queue by then.
  std::array<ibv_wc, 1> polled{};
  ASSERT_EQ(pair.b.queue.poll(1, polled.data()), 1);
  EXPECT_EQ(polled[0].wr_id, 0U);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(pair.b.queue_pair->modify(attributes, IBV_QP_STATE), 0);
  for (std::uint64_t id = 1; id < 4; ++id) expect_success(pair.b, id);
}

}  // namespace
}  // namespace weft::device
