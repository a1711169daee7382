// Where the time of exchanges went: what a connection waited for, and how that divides the latency
// of calls and commands.
#include "capture/report/exchange_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "capture/made_rpcs.h"
#include "capture/nfs_exchanges.h"
#include "capture/rpc_builder.h"
#include "capture/rpc_log.h"
#include "support/random.h"
#include "weft/capture/rpc_tracker.hpp"

namespace weft::capture::test {
namespace {

constexpr std::int64_t ms = 1'000'000;

TEST(TimeSpans, JoinWhatOverlaps) {
  TimeSpans spans;
  EXPECT_EQ(spans.add(10, 20, 1), 1);
  EXPECT_EQ(spans.add(30, 40, 2), 1);
  EXPECT_EQ(spans.add(5, 5, 3), 0);
  EXPECT_EQ(spans.within(0, 100), 20);
  EXPECT_EQ(spans.within(15, 35), 10);
  EXPECT_EQ(spans.last_frame(0, 25), 1U);
  EXPECT_EQ(spans.last_frame(20, 30), 0U);
  EXPECT_EQ(spans.add(15, 32, 4), -1);
  EXPECT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans.within(0, 100), 30);
  EXPECT_EQ(spans.last_frame(0, 25), 2U);  // of what is joined, the frame of the latest end
  TimeSpans other;
  other.add(0, 12, 5);
  other.add(39, 50, 6);
  EXPECT_EQ(spans.within_but_not(0, 100, other), 27);
}

TEST(TimeSpans, AreAsIfEachMomentWereMarked) {
  for (const std::uint64_t seed : weft::test::seeds(200)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    TimeSpans spans;
    std::vector<bool> marked(64);
    std::ptrdiff_t count = 0;
    for (int one = 0; one < 12; ++one) {
      const std::uint64_t from = random.below(60);
      const std::uint64_t to = from + random.below(4);
      count += spans.add(static_cast<std::int64_t>(from), static_cast<std::int64_t>(to), 1);
      for (std::uint64_t at = from; at < to; ++at) marked[at] = true;
    }
    ASSERT_EQ(static_cast<std::size_t>(count), spans.size());
    const std::uint64_t from = random.below(64);
    const std::ptrdiff_t expected =
        std::count(marked.begin() + static_cast<std::ptrdiff_t>(from), marked.end(), true);
    ASSERT_EQ(spans.within(static_cast<std::int64_t>(from), 64), expected);
  }
}

// --- What captures show --------------------------------------------------------------------------

// The exchanges of a capture, as `weft dissect` follows them.
struct Timed final : RpcSink {
  Analysis analysis;
  WaitTimes waits{analysis.connections()};
  RpcTracker tracker{*this};
  ExchangeTimes times{analysis.connections(), waits, 16};
  std::vector<Rpc> rpcs;

  explicit Timed(const MadeCapture& capture) {
    analysis.add_sink(waits);
    analysis.add_sink(tracker);
    feed(analysis, capture);
    tracker.finish();
  }
  void on_rpc(const Rpc& rpc) override {
    rpcs.push_back(rpc);
    times.add(rpc);
  }
  void on_finding(const Finding& /*finding*/) override {}

  [[nodiscard]] const SlowExchange& slowest() {
    found_ = times.slowest();
    return found_.front();
  }

 private:
  std::vector<SlowExchange> found_;
};

// Adds time before a packet and all later ones.
void delay(MadeCapture& capture, std::size_t from, std::int64_t time_ns) {
  for (std::size_t one = from; one < capture.size(); ++one) capture[one].time_ns += time_ns;
}

MadeCapture nfs() {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  NfsExchanges().run(talk);
  return capture;
}

std::int64_t latency_parts(const TimeParts& parts) {
  return parts.transfer_ns + parts.receives_ns + parts.repeats_ns + parts.server_ns;
}

TEST(ExchangeTimes, WithoutTroubleThereIsOnlyServerAndData) {
  Timed timed(nfs());
  ASSERT_GE(timed.times.procedures().size(), 3U);
  for (const ProcedureTimes* one : timed.times.procedures()) {
    EXPECT_EQ(latency_parts(one->parts), one->total_ns) << one->name;
    EXPECT_EQ(one->parts.receives_ns + one->parts.repeats_ns + one->parts.credits_ns, 0);
  }
}

// The first copy reaches the capture, but not the server.
TEST(ExchangeTimes, ARepeatedPacketIsATimeOfItsOwn) {
  MadeCapture capture = nfs();
  const auto call = Timed(capture).rpcs.at(0).call->first.frame;
  const auto again = static_cast<std::ptrdiff_t>(call);  // the packet behind it
  capture.insert(capture.begin() + again, capture[call - 1]);
  delay(capture, call, 4 * ms);
  Timed timed(capture);
  const SlowExchange& slow = timed.slowest();
  EXPECT_EQ(slow.xid, 1U);
  EXPECT_EQ(slow.parts.repeats_ns, 4 * ms);
  EXPECT_EQ(slow.parts.receives_ns, 0);
  EXPECT_EQ(latency_parts(slow.parts), slow.latency_ns);
  EXPECT_LT(slow.parts.server_ns, ms);
  EXPECT_NE(slow.story.find("it waited up to 4.00 ms until packets had been sent again, in frame " +
                            std::to_string(call + 1)),
            std::string::npos)
      << slow.story;
}

// --- What is a wait, and what is not -------------------------------------------------------------

struct Waiting {
  ConnectionTable connections;
  WaitTimes waits{connections};

  explicit Waiting(Transport transport) { connections.add({.transport = transport}); }
  static Origin at(Side side, std::int64_t time_ns, std::uint64_t position = 0) {
    return {.connection = 0, .side = side, .stamp = {1, time_ns}, .position = position};
  }
  void sent(Side side, std::int64_t time_ns) { waits.on_send(at(side, time_ns), {}); }
  [[nodiscard]] WaitTimes::Parts all() const { return waits.between(0, 0, 1'000 * ms); }
};

TEST(WaitTimes, AProbeOfAnIdleConnectionIsNone) {
  Waiting probed(Transport::iwarp);
  probed.sent(Side::a, ms);
  probed.waits.on_repeat(Waiting::at(Side::a, 60 * ms), 1);
  probed.waits.on_repeat(Waiting::at(Side::a, 80 * ms), 0);
  EXPECT_EQ(probed.all().sum_ns(), 0);
  probed.waits.on_repeat(Waiting::at(Side::a, 90 * ms), 100);
  EXPECT_EQ(probed.all().repeats_ns, 89 * ms);
}

TEST(WaitTimes, ALossBeforeTheCaptureIsOneAndADetourIsNone) {
  Waiting late(Transport::rc);
  late.waits.on_late(Waiting::at(Side::a, 50 * ms), 2 * ms);
  EXPECT_EQ(late.all().sum_ns(), 0);
  EXPECT_FALSE(late.all().lost_before_capture);
  late.waits.on_late(Waiting::at(Side::a, 50 * ms), 20 * ms);
  EXPECT_EQ(late.all().repeats_ns, 20 * ms);
  EXPECT_TRUE(late.all().lost_before_capture);
  EXPECT_EQ(late.all().repeated_frame, 1U);
  EXPECT_FALSE(late.waits.between(0, 51 * ms, 60 * ms).lost_before_capture);
  EXPECT_EQ(late.waits.between(0, 40 * ms, 60 * ms).repeats_ns, 10 * ms);
}

TEST(WaitTimes, AClosedWindowIsAReceiverThatIsNotReady) {
  Waiting closed(Transport::iwarp);
  closed.waits.on_window(Waiting::at(Side::b, 10 * ms), false);
  closed.waits.on_window(Waiting::at(Side::b, 15 * ms), false);
  closed.waits.on_window(Waiting::at(Side::b, 40 * ms), true);
  EXPECT_EQ(closed.all().receives_ns, 30 * ms);
  // What is sent again meanwhile does not count a second time.
  closed.sent(Side::a, 5 * ms);
  closed.waits.on_repeat(Waiting::at(Side::a, 35 * ms), 100);
  EXPECT_EQ(closed.all().receives_ns, 30 * ms);
  EXPECT_EQ(closed.all().repeats_ns, 5 * ms);
}

TEST(WaitTimes, RnrNaksOfOnePacketAreOneWait) {
  Waiting refused(Transport::rc);
  const auto nak = [&](std::int64_t time_ns, std::uint32_t psn) {
    refused.waits.on_refusal(Waiting::at(Side::b, time_ns),
                             {.kind = Refusal::Kind::receiver_not_ready,
                              .psn = psn,
                              .timer_ns = static_cast<std::uint64_t>(ms)});
  };
  nak(10 * ms, 7);
  nak(20 * ms, 7);
  EXPECT_EQ(refused.all().receives_ns, 11 * ms);
  refused.waits.on_acknowledge(Waiting::at(Side::b, 25 * ms), 6);
  EXPECT_EQ(refused.all().receives_ns, 11 * ms);
  refused.waits.on_acknowledge(Waiting::at(Side::b, 30 * ms), 8);
  EXPECT_EQ(refused.all().receives_ns, 20 * ms);
  nak(50 * ms, 9);
  EXPECT_EQ(refused.all().receives_ns, 21 * ms);
  refused.waits.on_forget(0);
  EXPECT_EQ(refused.all().sum_ns(), 0);
}

TEST(WaitTimes, AreLimitedInNumber) {
  Waiting many(Transport::rc);
  const auto waits = static_cast<std::int64_t>(2 * WaitTimes::most_spans);
  for (std::int64_t one = 0; one < waits; ++one) {
    many.sent(Side::a, 10 * one);
    many.waits.on_repeat(Waiting::at(Side::a, 10 * one + 1), 100);
  }
  EXPECT_EQ(many.all().repeats_ns, static_cast<std::int64_t>(WaitTimes::most_spans));
  EXPECT_EQ(many.waits.between(0, 0, 10 * waits / 2).repeats_ns, 0);
}

// A call is answered by RNR NAKs, and accepted when it comes again.
TEST(ExchangeTimes, AReceiverThatIsNotReadyIsATimeOfItsOwn) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  const auto call = [&](std::uint32_t xid) {
    talk.send(Side::a, Bytes(rdma_message({.xid = xid}, rpc_call(xid, 100'003, 3, 0))));
    talk.send(Side::b, Bytes(rdma_message({.xid = xid}, rpc_reply(xid))));
  };
  call(1);
  const std::size_t second = capture.size();
  const std::uint32_t psn = talk.next_psn(Side::a);
  call(2);
  // Its call, an RNR NAK with a timer of 0.64 ms, and the call again after 2 ms.
  MadeCapture refused;
  RoceTalk refusal(refused, {});
  refusal.acknowledge(Side::b, psn, wire::Aeth::rnr_nak(14, 0));
  MadeCapture made(capture.begin(), capture.begin() + static_cast<std::ptrdiff_t>(second) + 1);
  refused[0].time_ns = made.back().time_ns + 1'000;
  made.push_back(refused[0]);
  for (std::size_t one = second; one < capture.size(); ++one) {
    made.push_back(capture[one]);
    made.back().time_ns += 2 * ms;
  }
  Timed timed(made);
  ASSERT_EQ(timed.rpcs.size(), 2U);
  const SlowExchange& slow = timed.slowest();
  ASSERT_EQ(slow.xid, 2U);
  EXPECT_EQ(latency_parts(slow.parts), slow.latency_ns);
  EXPECT_GT(slow.parts.receives_ns, 1'900'000);
  EXPECT_LT(slow.parts.repeats_ns, ms);
  EXPECT_NE(slow.story.find("for a receiver that was not ready"), std::string::npos) << slow.story;
}

// --- Before the call -----------------------------------------------------------------------------

constexpr Side client = Side::a;
constexpr Side server = Side::b;

Buffer call_of(std::uint32_t xid) {
  return rdma_message({.xid = xid}, rpc_call(xid, 100'003, 3, 0));
}
Buffer reply_of(std::uint32_t xid, std::uint32_t credits = 32) {
  return rdma_message({.xid = xid, .credits = credits}, rpc_reply(xid));
}

TEST(ExchangeTimes, TheClientsOwnTimeIsThatWithoutACall) {
  TrafficScript script;
  script.send(client, call_of(1)).wait_ns(3 * ms).send(server, reply_of(1));
  script.wait_ns(50 * ms).send(client, call_of(2)).send(client, call_of(3));
  script.send(server, reply_of(2)).wait_ns(7 * ms).send(client, call_of(4));
  script.send(server, reply_of(3)).send(server, reply_of(4));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 4U);
  EXPECT_EQ(log.rpcs[0].idle_ns, 0);  // nothing is known of the time before
  EXPECT_GE(log.rpcs[1].idle_ns, 50 * ms);
  EXPECT_LT(log.rpcs[1].idle_ns, 51 * ms);
  EXPECT_EQ(log.rpcs[2].idle_ns, 0);  // another call was open
  EXPECT_EQ(log.rpcs[3].idle_ns, 0);
}

TEST(ExchangeTimes, AWaitForACreditBelongsToTheCallBehindIt) {
  TrafficScript script;
  script.send(client, call_of(1)).send(server, reply_of(1, 1));
  script.send(client, call_of(2)).wait_ns(9 * ms).send(server, reply_of(2, 1));
  script.send(client, call_of(3)).send(server, reply_of(3, 1));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 3U);
  EXPECT_EQ(log.rpcs[1].credits_ns, 0);
  EXPECT_GE(log.rpcs[2].credits_ns, 9 * ms);
  EXPECT_LT(log.rpcs[2].credits_ns, 10 * ms);
}

}  // namespace
}  // namespace weft::capture::test
