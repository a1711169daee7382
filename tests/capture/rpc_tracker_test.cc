#include "weft/capture/rpc_tracker.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "capture/rpc_builder.h"
#include "capture/rpc_log.h"
#include "support/random.h"
#include "weft/capture/rpc_findings.hpp"
#include "wire/xdr.h"

namespace weft::capture::test {
namespace {

using weft::test::pattern;
using wire::RpcRdmaProcedure;

constexpr Side client = Side::a;
constexpr Side server = Side::b;
constexpr std::uint32_t program = 0x20000001;  // that no standard assigns
constexpr std::uint32_t xid = 0x11223344;

Buffer call_of(std::uint32_t number, const Buffer& arguments = {}) {
  return rpc_call(number, program, 1, 7, arguments);
}

TrafficScript& exchange(TrafficScript& script, std::uint32_t number, Side caller = client) {
  return script.send(caller, rdma_message({.xid = number}, call_of(number)))
      .send(other(caller), rdma_message({.xid = number}, rpc_reply(number)));
}

TEST(RpcTracker, JoinsCallAndReply) {
  TrafficScript script;
  const Buffer call = call_of(xid, pattern(40));
  const Buffer reply = rpc_reply(xid, pattern(20));
  script.send(client, rdma_message({.xid = xid, .credits = 8}, call))
      .wait_ns(5'000'000)
      .send(server, rdma_message({.xid = xid, .credits = 16}, reply));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 1U);
  const Rpc& rpc = log.rpcs[0];
  EXPECT_EQ(rpc.xid, xid);
  EXPECT_EQ(rpc.caller, client);
  EXPECT_EQ(rpc.program, program);
  EXPECT_EQ(rpc.procedure, 7U);
  EXPECT_EQ(rpc.latency_ns, 5'001'000);
  EXPECT_EQ(rpc.call->first.frame, 1U);
  EXPECT_EQ(rpc.reply->first.frame, 2U);
  EXPECT_EQ(rpc.call->credits, 8U);
  EXPECT_EQ(rpc.reply->credits, 16U);
  EXPECT_EQ(rpc.call->message, Assembled(call));
  EXPECT_EQ(rpc.reply->message, Assembled(reply));
  EXPECT_EQ(*rpc.reply->whole, Assembled(reply));
  EXPECT_EQ(rpc.status, wire::RpcStatus::success);
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
  EXPECT_EQ(describe(rpc), "program 536870913 version 1 procedure 7");
}

TEST(RpcTracker, PutsSplitSendsTogether) {
  TrafficScript script(0, 50);
  const Buffer call = call_of(xid, pattern(400));
  script.send(client, rdma_message({.xid = xid}, call))
      .send(server, rdma_message({.xid = xid}, rpc_reply(xid, pattern(200))));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 1U);
  EXPECT_EQ(log.rpcs[0].call->message, Assembled(call));
  EXPECT_LT(log.rpcs[0].call->first.frame, log.rpcs[0].call->last.frame);
}

// Longer than what is kept of a Send: the beginning is there, the rest is reported missing.
TEST(RpcTracker, ShowsTheBeginningOfAVeryLongSend) {
  TrafficScript script(0, 60'000);
  exchange(script, 1);
  constexpr std::size_t long_bytes = (1U << 20) + 5'000;
  const Buffer call = call_of(xid, pattern(long_bytes));
  script.send(client, rdma_message({.xid = xid}, call))
      .send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 2U);
  const Rpc& rpc = log.rpcs[1];
  EXPECT_EQ(rpc.xid, xid);
  EXPECT_EQ(rpc.procedure, 7U);
  ASSERT_TRUE(rpc.reply.has_value());
  const Assembled& kept = rpc.call->message;
  EXPECT_FALSE(kept.whole());
  ASSERT_GT(kept.size(), 1'000'000U);
  EXPECT_TRUE(std::ranges::equal(kept.bytes(), Bytes(call).first(kept.bytes().size())));
}

// One to three read chunks of all remainders modulo four, each of one or two segments, and XDR
// behind the last one.
struct ReadChunks : testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(, ReadChunks, testing::Values(1, 2, 3));

struct Chunked {
  TrafficScript script{0, 7};
  Buffer call;
};

Chunked chunked_call(std::size_t chunks, std::size_t length) {
  Chunked made;
  RdmaHeader header{.xid = xid};
  Xdr whole;
  whole.raw(call_of(xid));
  Buffer inline_part = whole;
  std::vector<Buffer> contents;
  for (std::size_t i = 0; i < chunks; ++i) {
    const Buffer content = pattern(length + i, i + 1);
    whole.u32(content.size());
    inline_part = joined(inline_part, Xdr().u32(content.size()));
    const auto position = static_cast<std::uint32_t>(whole.size());
    const auto first = static_cast<std::uint32_t>(content.size() / 2);
    const auto rest = static_cast<std::uint32_t>(content.size()) - first;
    const auto handle = static_cast<std::uint32_t>(10 * i + 1);
    if (first != 0) header.lists.reads.push_back({position, {handle, first, 0x1000 * i}});
    header.lists.reads.push_back({position, {handle + 1, rest, 0x8000 + 0x1000 * i}});
    whole.fixed(content);
    whole.u32(0xABCD0000 + i);
    inline_part = joined(inline_part, Xdr().u32(0xABCD0000 + i));
    contents.push_back(content);
  }
  made.call = whole;
  made.script.send(client, rdma_message(header, inline_part));
  std::size_t at = 0;
  std::size_t last_position = 0;
  for (const auto& read : header.lists.reads) {
    const std::size_t chunk = read.target.handle / 10;
    at = read.position == last_position ? at : 0;
    last_position = read.position;
    const auto begin = contents[chunk].begin() + static_cast<std::ptrdiff_t>(at);
    made.script.read(server, read.target.handle, read.target.offset,
                     Buffer(begin, begin + read.target.length));
    at += read.target.length;
  }
  made.script.send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
  return made;
}

TEST_P(ReadChunks, GiveTheCallBack) {
  for (std::size_t length = 1; length <= 9; ++length) {
    const Chunked made = chunked_call(GetParam(), length);
    const RpcLog log = followed(made.script);
    ASSERT_EQ(log.rpcs.size(), 1U);
    EXPECT_EQ(log.rpcs[0].call->message, Assembled(made.call)) << "length " << length;
    EXPECT_EQ(log.findings.size(), 0U) << log.all();
  }
}

TEST_P(ReadChunks, AreNeverSilentlyWrong) {
  const Chunked made = chunked_call(GetParam(), 30);
  for (std::size_t drop = 0; drop < made.script.events.size(); ++drop) {
    RpcLog log;
    RpcTracker tracker(log);
    made.script.feed_without(drop, tracker);
    tracker.finish();
    for (const Rpc& rpc : log.rpcs) {
      if (!rpc.call || drop < 1) continue;
      SCOPED_TRACE("without event " + std::to_string(drop));
      expect_never_silently_wrong(rpc.call->message, made.call);
      if (!made.script.events[drop].data()) continue;
      const bool lost_data = std::holds_alternative<ReadPart>(made.script.events[drop].part);
      EXPECT_EQ(rpc.call->message.whole(), !lost_data) << "without event " << drop;
      EXPECT_EQ(log.count(finding::incomplete), lost_data ? 1U : 0U);
    }
  }
}

TEST_P(ReadChunks, TakeRepeatsAndAnyOrder) {
  const Chunked made = chunked_call(GetParam(), 30);
  for (const std::uint64_t seed : weft::test::seeds(10)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    TrafficScript shuffled = made.script;
    auto& events = shuffled.events;
    // What is between the call and the reply.
    auto reply = std::find_if(events.begin(), events.end(), [](const Event& event) {
      return !event.data() && event.origin.side == server;
    });
    auto data =
        std::find_if(events.begin(), reply, [](const Event& event) { return event.data(); });
    const std::vector<Event> twice(data, reply);
    const auto begin = data - events.begin();
    events.insert(reply, twice.begin(), twice.end());
    for (std::size_t i = 2 * twice.size(); i > 1; --i) {
      std::swap(events[begin + i - 1], events[begin + random.below(i)]);
    }
    const RpcLog log = followed(shuffled);
    ASSERT_EQ(log.rpcs.size(), 1U);
    EXPECT_EQ(log.rpcs[0].call->message, Assembled(made.call));
  }
}

// RFC 8166 §3.5.3: a whole call in the Position-Zero Read Chunk, here with another chunk in it.
TEST(RpcTracker, PutsLongCallsTogether) {
  const Buffer content = pattern(9);
  const Buffer head = joined(call_of(xid, pattern(100)), Xdr().u32(content.size()));
  const Buffer whole = joined(Xdr().raw(head).fixed(content), Xdr().u32(99));
  const Buffer zero = joined(head, Xdr().u32(99));
  const auto position = static_cast<std::uint32_t>(head.size());
  RdmaHeader header{.xid = xid, .procedure = RpcRdmaProcedure::nomsg};
  header.lists.reads = {{0, {1, static_cast<std::uint32_t>(zero.size()), 0}},
                        {position, {2, 9, 0}}};
  TrafficScript script(0, 50);
  script.send(client, rdma_message(header))
      .read(server, 1, 0, zero)
      .read(server, 2, 0, content)
      .send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 1U);
  EXPECT_EQ(log.rpcs[0].call->message, Assembled(whole));
  EXPECT_EQ(log.rpcs[0].program, program);
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
}

// More than is put together, in a chunk that was never read either.
TEST(RpcTracker, TooLongACallIsNotWhole) {
  RdmaHeader header{.xid = xid, .procedure = RpcRdmaProcedure::nomsg};
  header.lists.reads = {{0, {1, 0x4000'0000, 0}}, {0, {2, 0x4000'0000, 0}}};
  TrafficScript script;
  script.send(client, rdma_message({.xid = 1}, rpc_call(1, program, 1, 7)))
      .send(server, rdma_message({.xid = 1}, rpc_reply(1)))
      .send(client, rdma_message(header))
      .send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 2U);
  EXPECT_EQ(log.rpcs[1].call->message.flaws(),
            (std::vector<FlawedRange>{{0, 0x8000'0000, Flaw::dropped}}));
  EXPECT_EQ(log.count(finding::incomplete), 1U) << log.all();
}

// Its chunks were never registered: they are reported missing, with the length that the reply
// states.
TEST(RpcTracker, RepliesWithoutTheirCallLackTheirChunks) {
  TrafficScript script;
  RdmaHeader tells{.xid = 2};
  tells.lists.writes = {{{7, 50, 0x1000}}};
  RdmaHeader says{.xid = 3, .procedure = RpcRdmaProcedure::nomsg};
  says.lists.reply = Chunk{{8, 60, 0x2000}};
  script.send(client, rdma_message({.xid = 1}, rpc_call(1, program, 1, 7)))
      .send(server, rdma_message({.xid = 1}, rpc_reply(1)))
      .send(server, rdma_message(tells, rpc_reply(2)))
      .send(server, rdma_message(says));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 3U);
  const auto missing = [](std::uint64_t bytes) {
    Assembled out;
    out.append_flawed(bytes, Flaw::missing);
    return out;
  };
  EXPECT_EQ(log.rpcs[1].reply->chunks, std::vector{missing(50)});
  EXPECT_EQ(log.rpcs[2].reply->message, missing(60));
}

struct LongReply : testing::Test {
  Buffer reply = rpc_reply(xid, pattern(101));
  RdmaHeader call{.xid = xid};
  RdmaHeader answer{.xid = xid, .procedure = RpcRdmaProcedure::nomsg};
  TrafficScript script{0, 30};

  void SetUp() override {
    reply.resize(wire::xdr_padded(reply.size()));
    call.lists.reply = Chunk{{1, 64, 0}, {2, 4096, 0x10000}};
    const auto rest = static_cast<std::uint32_t>(reply.size() - 64);
    answer.lists.reply = Chunk{{1, 64, 0}, {2, rest, 0x10000}};
    script.send(client, rdma_message(call, call_of(xid)))
        .write(server, 1, 0, Buffer(reply.begin(), reply.begin() + 64))
        .write(server, 2, 0x10000, Buffer(reply.begin() + 64, reply.end()))
        .send(server, rdma_message(answer));
  }
};

TEST_F(LongReply, IsInTheReplyChunk) {
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 1U);
  EXPECT_EQ(log.rpcs[0].reply->message, Assembled(reply));
  EXPECT_EQ(log.rpcs[0].status, wire::RpcStatus::success);
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
}

TEST_F(LongReply, IsNeverSilentlyWrong) {
  for (std::size_t drop = 1; drop < script.events.size(); ++drop) {
    RpcLog log;
    RpcTracker tracker(log);
    script.feed_without(drop, tracker);
    tracker.finish();
    for (const Rpc& rpc : log.rpcs) {
      if (!rpc.reply) continue;
      if (!rpc.call) {
        EXPECT_FALSE(rpc.reply->message.whole());
        continue;
      }
      expect_never_silently_wrong(rpc.reply->message, reply);
      const bool lost = std::holds_alternative<WritePart>(script.events[drop].part);
      EXPECT_EQ(rpc.reply->message.whole(), !lost && rpc.call->message.whole());
    }
  }
}

TEST_F(LongReply, DoesNotUseTheChunkOfAShortOne) {
  TrafficScript unused;
  RdmaHeader header{.xid = xid};
  header.lists.reply = Chunk{{1, 0, 0}, {2, 0, 0x10000}};
  unused.send(client, rdma_message(call, call_of(xid)))
      .send(server, rdma_message(header, rpc_reply(xid, pattern(8))));
  const RpcLog log = followed(unused);
  ASSERT_EQ(log.rpcs.size(), 1U);
  EXPECT_EQ(log.rpcs[0].reply->message, Assembled(rpc_reply(xid, pattern(8))));
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
}

// RFC 8167: the server calls the client on the same connection, under XIDs of its own.
TEST(RpcTracker, FollowsBothDirections) {
  TrafficScript script;
  script.send(client, rdma_message({.xid = xid}, call_of(xid)))
      .send(server, rdma_message({.xid = xid}, rpc_call(xid, 0x40000000, 1, 0)))
      .send(client, rdma_message({.xid = xid}, rpc_reply(xid)))
      .send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 2U);
  EXPECT_EQ(log.rpcs[0].caller, server);
  EXPECT_EQ(describe(log.rpcs[0]), "NFS callback NULL");
  EXPECT_EQ(log.rpcs[1].caller, client);
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
}

TEST(RpcTracker, KeepsConnectionsWithTheSameNumbersApart) {
  const auto made = [](ConnectionId connection, std::uint64_t seed) {
    TrafficScript script(connection, 100);
    const Buffer content = pattern(1000, seed);
    RdmaHeader header{.xid = xid};
    const Buffer head = joined(call_of(xid), Xdr().u32(content.size()));
    header.lists.reads = {{static_cast<std::uint32_t>(head.size()), {7, 1000, 0x5000}}};
    script.send(client, rdma_message(header, head))
        .read(server, 7, 0x5000, content)
        .send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
    return script;
  };
  const TrafficScript one = made(1, 1);
  const TrafficScript two = made(2, 2);
  RpcLog log;
  RpcTracker tracker(log);
  for (std::size_t i = 0; i < one.events.size(); ++i) {
    one.events[i].feed(tracker);
    two.events[i].feed(tracker);
  }
  tracker.finish();
  ASSERT_EQ(log.rpcs.size(), 2U);
  for (const Rpc& rpc : log.rpcs) {
    const Buffer content = pattern(1000, rpc.connection);
    EXPECT_EQ(rpc.call->message, Assembled(joined(call_of(xid), Xdr().opaque(content))));
  }
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
}

TEST(RpcTracker, TellsRetransmissionsFromNewCalls) {
  TrafficScript script;
  exchange(script, 1);
  const Buffer call = rdma_message({.xid = xid}, call_of(xid));
  script.send(client, call).wait_ns(60'000'000'000).send(client, call);
  script.send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
  script.send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
  RpcLog log;
  RpcTracker tracker(log);
  script.feed(tracker);
  tracker.finish();
  ASSERT_EQ(log.rpcs.size(), 2U);
  EXPECT_EQ(log.rpcs[1].retransmissions, 1U);
  EXPECT_GT(log.rpcs[1].latency_ns, 60'000'000'000) << "counted from the first call";
  EXPECT_EQ(log.count(finding::retransmitted), 1U);
  EXPECT_EQ(log.count(finding::without_call), 1U) << log.all();
  EXPECT_EQ(tracker.counts().calls, 2U);
  EXPECT_EQ(tracker.counts().retransmissions, 1U);
}

// A client that has registered its memory anew: the server may read either.
TEST(RpcTracker, TakesTheMemoryOfARetransmission) {
  const Buffer content = pattern(64);
  const Buffer head = joined(call_of(xid), Xdr().u32(content.size()));
  const auto position = static_cast<std::uint32_t>(head.size());
  RdmaHeader first{.xid = xid};
  first.lists.reads = {{position, {1, 64, 0}}};
  RdmaHeader second{.xid = xid};
  second.lists.reads = {{position, {2, 64, 0}}};
  for (const std::uint32_t handle : {1U, 2U}) {
    TrafficScript script;
    script.send(client, rdma_message(first, head))
        .send(client, rdma_message(second, head))
        .read(server, handle, 0, content)
        .send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
    const RpcLog log = followed(script);
    ASSERT_EQ(log.rpcs.size(), 1U);
    EXPECT_EQ(log.rpcs[0].call->message, Assembled(Xdr().raw(head).fixed(content).bytes()));
    EXPECT_EQ(log.rpcs[0].call->lists.reads[0].target.handle, handle);
  }
}

TEST(RpcTracker, ForgetsTheDataOfAnOldCallWithTheSameXid) {
  TrafficScript script;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Buffer content = pattern(16, seed);
    const Buffer head = joined(call_of(xid, pattern(4, seed)), Xdr().u32(16));
    RdmaHeader header{.xid = xid};
    header.lists.reads = {{static_cast<std::uint32_t>(head.size()), {7, 16, 0}}};
    script.send(client, rdma_message(header, head));
    if (seed != 2) script.read(server, 7, 0, content);
    script.send(server, rdma_message({.xid = xid}, rpc_reply(xid)));
  }
  const RpcLog log = followed(script);
  ASSERT_EQ(log.rpcs.size(), 3U);
  EXPECT_TRUE(log.rpcs[0].call->message.whole());
  EXPECT_FALSE(log.rpcs[1].call->message.whole()) << "the first call's bytes are not this one's";
  EXPECT_TRUE(log.rpcs[2].call->message.whole());
}

TEST(RpcTracker, TellsOfErrorsAndDone) {
  TrafficScript script;
  exchange(script, 1);
  RdmaHeader error{.xid = 2, .procedure = RpcRdmaProcedure::error};
  script.send(client, rdma_message({.xid = 2}, call_of(2))).send(server, rdma_message(error));
  error.xid = 3;
  error.error = {wire::RpcRdmaErrorCode::version, 1, 2};
  script.send(client, rdma_message({.xid = 3}, call_of(3))).send(server, rdma_message(error));
  script.send(client, rdma_message({.xid = 1, .procedure = RpcRdmaProcedure::done}));
  RpcLog log;
  RpcTracker tracker(log);
  script.feed(tracker);
  tracker.finish();
  ASSERT_EQ(log.rpcs.size(), 3U);
  EXPECT_EQ(log.rpcs[1].error->code, wire::RpcRdmaErrorCode::chunk);
  EXPECT_EQ(log.rpcs[2].error->version_high, 2U);
  EXPECT_FALSE(log.rpcs[1].status);
  EXPECT_EQ(log.count(finding::rdma_error), 2U);
  EXPECT_EQ(tracker.counts().errors, 2U);
  EXPECT_EQ(tracker.counts().done, 1U);
}

TEST(RpcTracker, BeginsInTheMiddle) {
  TrafficScript script;
  script.send(server, rdma_message({.xid = 1}, rpc_reply(1)));
  exchange(script, 2);
  script.send(client, rdma_message({.xid = 3}, call_of(3)));
  RpcLog log;
  RpcTracker tracker(log);
  script.feed(tracker);
  tracker.finish();
  ASSERT_EQ(log.rpcs.size(), 3U);
  EXPECT_FALSE(log.rpcs[0].call);
  EXPECT_FALSE(log.rpcs[2].reply);
  EXPECT_TRUE(log.findings.empty()) << log.all();
}

// A capture is stopped at any time, so the reply to the last call may come after it.
TEST(RpcTracker, IsStoppedBetweenCallAndReply) {
  constexpr std::int64_t second_ns = 1'000'000'000;
  for (const std::int64_t wait_ns : {second_ns / 2, 2 * second_ns}) {
    TrafficScript script;
    exchange(script, 1);
    script.send(client, rdma_message({.xid = 2}, call_of(2)));
    script.wait_ns(wait_ns);
    exchange(script, 3);
    RpcLog log;
    RpcTracker tracker(log);
    script.feed(tracker);
    tracker.finish();
    EXPECT_EQ(log.count(finding::unanswered), wait_ns > second_ns ? 1U : 0U) << log.all();
    EXPECT_EQ(log.findings.size(), log.count(finding::unanswered)) << log.all();
  }
}

TEST(RpcTracker, GivesUpTheOldestCallWhenThereAreTooMany) {
  TrafficScript script;
  for (std::uint32_t number = 1; number <= 100; ++number) {
    script.send(client, rdma_message({.xid = number}, call_of(number)));
  }
  RpcLog log;
  RpcLimits limits;
  limits.open_calls = 10;
  RpcTracker tracker(log, limits);
  script.feed(tracker);
  EXPECT_EQ(log.rpcs.size(), 90U);
  EXPECT_EQ(log.rpcs[0].xid, 1U);
  tracker.finish();
  EXPECT_EQ(log.rpcs.size(), 100U);
  EXPECT_EQ(tracker.counts().unanswered, 100U);
}

TEST(RpcTracker, EndsWithTheConnection) {
  TrafficScript script;
  exchange(script, 1);
  script.send(client, rdma_message({.xid = 2}, call_of(2)));
  RpcLog log;
  RpcTracker tracker(log);
  script.feed(tracker);
  Origin origin;
  origin.side = client;
  tracker.on_end(origin, false);
  EXPECT_EQ(log.rpcs.size(), 1U) << "the server may still answer";
  origin.side = server;
  tracker.on_end(origin, false);
  EXPECT_EQ(log.rpcs.size(), 2U);
}

// --- Recognition ---------------------------------------------------------------------------------

struct Recognition : testing::Test {
  static bool recognised(const Buffer& message) {
    RpcLog log;
    RpcTracker tracker(log);
    TrafficScript script;
    script.send(client, message);
    script.feed(tracker);
    return tracker.recognised(0);
  }
};

TEST_F(Recognition, TakesWhatIsRightInEveryField) {
  EXPECT_TRUE(recognised(rdma_message({.xid = xid}, call_of(xid))));
  EXPECT_TRUE(recognised(rdma_message({.xid = xid}, rpc_reply(xid))));
  RdmaHeader long_call{.xid = xid, .procedure = RpcRdmaProcedure::nomsg};
  long_call.lists.reads = {{0, {1, 100, 0}}};
  EXPECT_TRUE(recognised(rdma_message(long_call)));
  RdmaHeader long_reply{.xid = xid, .procedure = RpcRdmaProcedure::nomsg};
  long_reply.lists.reply = Chunk{{1, 100, 0}};
  EXPECT_TRUE(recognised(rdma_message(long_reply)));
}

TEST_F(Recognition, IsNotMisledByBenchmarks) {
  for (const std::size_t size : {1U, 2U, 64U, 1000U, 4096U, 65536U}) {
    EXPECT_FALSE(recognised(Buffer(size)));
    EXPECT_FALSE(recognised(Buffer(size, std::byte{1})));
    EXPECT_FALSE(recognised(pattern(size)));
    Xdr counting;
    for (std::uint32_t i = 0; i < size / 4; ++i) counting.u32(i);
    EXPECT_FALSE(recognised(counting));
    Xdr ones;
    for (std::uint32_t i = 0; i < size / 4; ++i) ones.u32(1);
    EXPECT_FALSE(recognised(ones));
  }
}

TEST_F(Recognition, WantsEveryField) {
  const Buffer call = call_of(xid);
  EXPECT_FALSE(recognised(rdma_message({.xid = xid, .credits = 0}, call)));
  EXPECT_FALSE(recognised(rdma_message({.xid = xid, .credits = 1U << 20}, call)));
  EXPECT_FALSE(recognised(rdma_message({.xid = xid + 1}, call)));
  EXPECT_FALSE(recognised(rdma_message({.xid = xid})));
  Buffer version = call;
  version[11] = std::byte{3};
  EXPECT_FALSE(recognised(rdma_message({.xid = xid}, version)));
  RdmaHeader unaligned{.xid = xid};
  unaligned.lists.reads = {{41, {1, 100, 0}}};
  EXPECT_FALSE(recognised(rdma_message(unaligned, call)));
  RdmaHeader wrapping{.xid = xid};
  wrapping.lists.writes = {{{1, 100, ~std::uint64_t{0}}}};
  EXPECT_FALSE(recognised(rdma_message(wrapping, call)));
  RdmaHeader nothing{.xid = xid, .procedure = RpcRdmaProcedure::nomsg};
  EXPECT_FALSE(recognised(rdma_message(nothing)));
  EXPECT_FALSE(recognised(rdma_message({.xid = xid, .procedure = RpcRdmaProcedure::done})));
  EXPECT_FALSE(recognised(rdma_message({.xid = xid, .procedure = RpcRdmaProcedure::error})));
}

}  // namespace
}  // namespace weft::capture::test
