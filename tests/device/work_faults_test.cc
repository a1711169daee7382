// Rules of faults that act on completions and on messages that need a receive.
#include <poll.h>

#include <chrono>

#include "device/raw_end.h"

namespace weft::device {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds pause{60};

PairOptions with(std::string_view rules) {
  PairOptions options;
  auto parsed = faults::parse(rules);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error());
  if (parsed.ok()) options.settings.faults = *parsed;
  options.weft_peers = true;
  options.hold_bytes = 64 * 1024;
  return options;
}

ibv_event_type next_event(Context& context) {
  pollfd entry{context.verbs()->async_fd, POLLIN, 0};
  if (poll(&entry, 1, 10'000) != 1) return IBV_EVENT_DEVICE_FATAL;
  ibv_async_event event{};
  EXPECT_EQ(context.next_event(event), 0);
  context.acknowledge(event);
  return event.event_type;
}

TEST(WorkFaults, ACompletionIsLateAndHoldsBackThoseBehindIt) {
  Pair pair(with("DELAY:60ms at completion nth=1"));
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  const auto begin = steady_clock::now();
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(pair.a.write(i, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    const ibv_wc done = pair.a.await();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.wr_id, i);
    EXPECT_GE(steady_clock::now() - begin, pause);
  }
  EXPECT_EQ(pair.device->faults()->plan().counts()[0].faults, 1U);
}

// The progress thread makes it visible where the program makes no call.
TEST(WorkFaults, ALateCompletionRaisesItsEvent) {
  PairOptions options = with("DELAY:60ms at completion nth=1");
  options.ends.channel = true;
  Pair pair(options);
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  ASSERT_EQ(pair.a.queue.request_notification(false), 0);
  const auto begin = steady_clock::now();
  ASSERT_EQ(pair.a.write(1, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  pollfd entry{pair.a.channel->verbs()->fd, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  EXPECT_GE(steady_clock::now() - begin, pause);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
}

// ibv_get_async_event(3): programs free what the completions need when they get the event.
TEST(WorkFaults, TheEventOfTheLastReceiveComesBehindItsCompletion) {
  PairOptions options = with("DELAY:300ms at completion nth=1");
  options.ends.shared_receives = true;
  Pair pair(options);
  auto from = pair.a.buffer(8);
  auto to = pair.b.buffer(8);
  ASSERT_EQ(pair.b.post_receive(1, {to->sge(0, 8)}), 0);
  ASSERT_EQ(pair.a.send(2, {from->sge(0, 8)}, 0), 0);
  while (pair.device->faults()->plan().counts()[0].faults == 0) EXPECT_FALSE(pair.b.look());
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(pair.b.queue_pair->modify(attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(next_event(pair.b.context), IBV_EVENT_QP_LAST_WQE_REACHED);
  const auto completion = pair.b.look();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion->wr_id, 1U);
}

TEST(WorkFaults, OtherQueuePairsOvertakeALateCompletion) {
  Pair pair(with("DELAY:40s at completion nth=1"));
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  ASSERT_EQ(pair.a.write(1, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  // Its completion has met the rule; the other queue pair's comes second.
  while (pair.device->faults()->plan().counts()[0].faults == 0) EXPECT_FALSE(pair.a.look());
  ASSERT_EQ(pair.b.write(2, {remote->sge(0, 8)}, local->address(), local->rkey()), 0);
  EXPECT_EQ(pair.b.await().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(pair.a.look());
}

TEST(WorkFaults, ACompletionQueueOverruns) {
  Pair pair(with("OVERRUN at completion nth=2"));
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  ASSERT_EQ(pair.a.write(0, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(pair.a.await().wr_id, 0U);
  ASSERT_EQ(pair.a.write(1, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  while (pair.device->faults()->plan().counts()[0].faults == 0) (void)pair.a.look();
  EXPECT_EQ(next_event(pair.a.context), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(next_event(pair.a.context), IBV_EVENT_QP_FATAL);
  EXPECT_EQ(pair.a.queue_pair->verbs()->state, IBV_QPS_ERR);
}

class UnreadyReceiver : public testing::Test {
 protected:
  void send(const PairOptions& options, std::uint64_t count) {
    pair = std::make_unique<Pair>(options);
    from = pair->a.buffer(8);
    to = pair->b.buffer(8 * count);
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(pair->b.post_receive(i, {to->sge(8 * i, 8)}), 0);
    }
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(pair->a.send(i, {from->sge(0, 8)}), 0);
  }

  std::unique_ptr<Pair> pair;
  std::unique_ptr<Buffer> from;
  std::unique_ptr<Buffer> to;
};

TEST_F(UnreadyReceiver, TakesTheMessagesInOrderWhenItsTimeIsOver) {
  const auto begin = steady_clock::now();
  send(with("RNR:60ms at arrival nth=2"), 4);
  EXPECT_EQ(pair->b.await().wr_id, 0U);
  for (std::uint64_t i = 1; i < 4; ++i) {
    const ibv_wc received = pair->b.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, i);
    EXPECT_GE(steady_clock::now() - begin, pause);
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pair->a.await().status, IBV_WC_SUCCESS);
}

TEST_F(UnreadyReceiver, LetsEachMessageThroughOnce) {
  send(with("RNR:2ms at arrival"), 5);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(pair->b.await().wr_id, i);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(pair->a.await().status, IBV_WC_SUCCESS);
  EXPECT_GE(pair->device->faults()->plan().counts()[0].faults, 3U);
}

TEST_F(UnreadyReceiver, EndsTheSendersRetries) {
  const auto receiving = std::move(*Device::create([] {
    Settings settings = with("RNR at arrival nth=2").settings;
    settings.address = "127.0.0.1";
    return settings;
  }()));
  const auto sending = make_roce_device();
  RawEnd a(*sending);
  RawEnd b(*receiving);
  a.connect(b, 1);
  b.connect(a, 1);
  auto buffer = a.buffer(8);
  auto target = b.buffer(8);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(b.post_receive(i, {target->sge(0, 8)}), 0);
  ASSERT_EQ(a.send(1, {buffer->sge(0, 8)}), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  ASSERT_EQ(a.send(2, {buffer->sge(0, 8)}), 0);
  EXPECT_EQ(a.await().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

// iWARP has no retries: RFC 5041 §7.2.
TEST_F(UnreadyReceiver, EndsAConnectionWithoutAHold) {
  PairOptions options = with("RNR at arrival nth=1");
  options.hold_bytes = 0;
  send(options, 1);
  EXPECT_EQ(pair->a.await().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace weft::device
