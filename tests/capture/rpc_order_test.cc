// RPCs whose packets a capture holds in another order than they were sent: the reply before the
// last Read response, and the call after what belongs to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "capture/rpc_builder.h"
#include "capture/rpc_log.h"
#include "support/random.h"
#include "weft/capture/rpc_findings.hpp"

namespace weft::capture::test {
namespace {

using weft::test::pattern;

constexpr Side client = Side::a;
constexpr Side server = Side::b;
constexpr std::uint32_t program = 0x20000001;
constexpr std::uint32_t handle = 7;

// An exchange of XID 1, which shows that the connection carries RPCs, and one of XID 2.
struct RpcOrder : testing::Test {
  RpcOrder() {
    script.send(client, rdma_message({.xid = 1}, rpc_call(1, program, 1, 7)))
        .send(server, rdma_message({.xid = 1}, rpc_reply(1)));
  }

  // A call with a read chunk of two Reads and a write chunk: the events 2 to 8.
  void exchange(std::uint32_t xid) {
    const Buffer head = rpc_call(xid, program, 1, 7, Xdr().u32(content.size()));
    RdmaHeader asks{.xid = xid};
    const auto position = static_cast<std::uint32_t>(head.size());
    asks.lists.reads = {{position, {handle, 40, 0x1000}}, {position, {handle + 2, 60, 0x2000}}};
    asks.lists.writes = {{{handle + 1, 100, 0x3000}}};
    RdmaHeader answers{.xid = xid};
    answers.lists.writes = asks.lists.writes;
    call = joined(head, content);
    script.send(client, rdma_message(asks, head))
        .read(server, handle, 0x1000, Buffer(content.begin(), content.begin() + 40))
        .read(server, handle + 2, 0x2000, Buffer(content.begin() + 40, content.end()))
        .write(server, handle + 1, 0x3000, content)
        .send(server, rdma_message(answers, rpc_reply(xid, Xdr().u32(100))));
  }

  // Moves an event behind another one, and gives each the frame of its new place.
  void move(std::size_t from, std::size_t to) {
    auto& events = script.events;
    const auto at = [&](std::size_t i) { return events.begin() + static_cast<std::ptrdiff_t>(i); };
    std::rotate(at(from), at(from + 1), at(to + 1));
    for (std::size_t i = 0; i < events.size(); ++i) events[i].origin.stamp.frame = i + 1;
  }

  void expect_exact(const RpcLog& log) const {
    ASSERT_EQ(log.rpcs.size(), 2U);
    const Rpc& rpc = log.rpcs[1];
    ASSERT_TRUE(rpc.call && rpc.reply);
    EXPECT_EQ(rpc.call->message, Assembled(call));
    EXPECT_EQ(rpc.reply->chunks, std::vector{Assembled(content)});
    EXPECT_EQ(log.findings.size(), 0U) << log.all();
  }

  TrafficScript script;
  Buffer content = pattern(100);
  Buffer call;
};

TEST_F(RpcOrder, AReadResponseMayComeAfterTheReply) {
  exchange(2);
  ASSERT_EQ(script.events.size(), 9U);
  move(6, 8);
  expect_exact(followed(script));
  move(4, 8);
  expect_exact(followed(script));
}

TEST_F(RpcOrder, ACallMayComeAfterAnythingOfItsExchange) {
  exchange(2);
  for (std::size_t place = 3; place <= 8; ++place) {
    SCOPED_TRACE(place);
    move(place - 1, place);
    expect_exact(followed(script));
  }
}

TEST_F(RpcOrder, ResponsesThatNeverComeEndTheExchangeAfterAWhile) {
  exchange(2);
  script.events.erase(script.events.begin() + 6);
  RpcLog log;
  RpcTracker tracker(log, {.late_frames = 100});
  script.feed(tracker);
  EXPECT_EQ(log.rpcs.size(), 1U);
  TrafficScript later(0);
  for (int i = 0; i < 120; ++i) later.write(server, 0x900, 0, content);
  later.feed(tracker);
  ASSERT_EQ(log.rpcs.size(), 2U);
  EXPECT_FALSE(log.rpcs[1].call->message.whole());
  EXPECT_EQ(log.count(finding::incomplete), 1U) << log.all();
}

// After a loss, early traffic may belong to a call that was lost. A later call may name the same
// memory, but a reply names its call by the XID.
TEST_F(RpcOrder, ALossEndsTheWaitForTheCall) {
  exchange(2);
  RpcLog log;
  RpcTracker tracker(log);
  for (std::size_t i = 0; i < script.events.size(); ++i) {
    if (i != 2) script.events[i].feed(tracker);
  }
  tracker.on_gap({0, client, {9, 0}}, {.packets = 1});
  EXPECT_EQ(log.count(finding::without_call), 0U) << log.all();
  TrafficScript later(0);
  later.events = script.events;
  later.events.resize(3);
  later.events[2].feed(tracker);
  tracker.finish();
  ASSERT_EQ(log.rpcs.size(), 2U);
  EXPECT_TRUE(log.rpcs[1].reply);
  EXPECT_FALSE(log.rpcs[1].call->message.whole());
}

// The capture begins after a call, and before its Reads and its reply. The next call names the same
// memory, and only a part of it is read in the capture.
TEST_F(RpcOrder, WhatBelongsToACallBeforeTheCaptureIsNotTakenForALaterOne) {
  script.events.erase(script.events.begin());  // the call of XID 1: nothing is matched
  exchange(2);
  script.events.erase(script.events.begin() + 1);
  const std::size_t second = script.events.size();
  content = pattern(100, 9);
  exchange(3);
  const auto at = script.events.begin() + static_cast<std::ptrdiff_t>(second);
  ASSERT_TRUE(std::holds_alternative<ReadPart>(at[2].part));
  script.events.erase(at + 2);
  const RpcLog log = followed(script);
  const auto third = std::ranges::find(log.rpcs, 3U, &Rpc::xid);
  ASSERT_NE(third, log.rpcs.end());
  ASSERT_TRUE(third->call && third->reply);
  expect_never_silently_wrong(third->call->message, call);
  EXPECT_FALSE(third->call->message.whole());
  EXPECT_EQ(third->reply->chunks, std::vector{Assembled(content)});
}

TEST_F(RpcOrder, TrafficWithoutCallIsKeptWithinLimits) {
  RpcLog log;
  RpcTracker tracker(log, {.late_frames = 1'000'000, .early_bytes = 64 << 10});
  for (std::uint64_t i = 0; i < 1'000; ++i) {
    script.write(server, 0x900, i * 1'000, pattern(1'000));
  }
  script.feed(tracker);
  EXPECT_GT(tracker.counts().without_segment, 900'000U);
  tracker.finish();
  EXPECT_EQ(tracker.counts().without_segment, 1'000'000U);
}

}  // namespace
}  // namespace weft::capture::test
