// Each rule of RPC-over-RDMA, broken once, by a script and by captures of it on both transports:
// the finding that names it, and none where it is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capture/finding_frames.h"
#include "capture/made_rpcs.h"
#include "capture/rpc_builder.h"
#include "support/random.h"
#include "weft/capture/rpc_findings.hpp"

namespace weft::capture::test {
namespace {

using weft::test::pattern;
using wire::RpcRdmaProcedure;

constexpr Side client = Side::a;
constexpr Side server = Side::b;
constexpr std::uint32_t program = 0x20000001;
constexpr std::uint32_t xid = 0x11223344;

std::vector<std::string> kinds_of(const RpcLog& log) {
  std::vector<std::string> kinds;
  for (const Finding& finding : log.findings) kinds.emplace_back(finding.kind);
  std::ranges::sort(kinds);
  return kinds;
}

// What is found in the script, and in captures of it.
RpcLog found_everywhere(const TrafficScript& script) {
  const RpcLog log = followed(script);
  const RpcLog iwarp = followed(iwarp_capture(script));
  EXPECT_EQ(kinds_of(iwarp), kinds_of(log)) << "by iWARP: " << iwarp.all();
  const RpcLog roce = followed(roce_capture(script));
  EXPECT_EQ(kinds_of(roce), kinds_of(log)) << "by RoCE: " << roce.all();
  return log;
}

struct RpcChecks : testing::Test {
  TrafficScript script{0, 4096};
  Buffer call = rpc_call(xid, program, 1, 7);
  Buffer reply = rpc_reply(xid);
  RdmaHeader asks{.xid = xid};
  RdmaHeader tells{.xid = xid};

  // An exchange without fault before, so that the connection is known.
  void SetUp() override { exchange(1); }

  void exchange(std::uint32_t number) {
    script.send(client, rdma_message({.xid = number}, rpc_call(number, program, 1, 7)))
        .send(server, rdma_message({.xid = number}, rpc_reply(number)));
  }
  RpcChecks& ask() {
    script.send(client, rdma_message(asks, call));
    return *this;
  }
  RpcChecks& tell() {
    script.send(server, rdma_message(tells, reply));
    return *this;
  }
  // One finding of this kind and no other, with these frames.
  void expect_only(std::string_view kind, const std::vector<std::uint64_t>& frames) {
    const RpcLog log = found_everywhere(script);
    ASSERT_EQ(log.findings.size(), 1U) << log.all();
    EXPECT_EQ(log.findings[0].kind, kind) << log.all();
    EXPECT_EQ(frames_of(log.findings[0]), frames) << log.all();
    EXPECT_EQ(log.findings[0].sentence.back(), '.');
  }
  // A call with one read chunk behind its header.
  void give_read_chunk(const Chunk& segments, std::size_t position_error = 0) {
    for (const auto& segment : segments) {
      const auto position = static_cast<std::uint32_t>(call.size() + position_error);
      asks.lists.reads.push_back({position, segment});
    }
  }
};

TEST_F(RpcChecks, NothingIsFoundWhereNothingIsWrong) {
  give_read_chunk({{1, 100, 0x1000}, {2, 50, 0x2000}});
  asks.lists.writes = {{{3, 100, 0x3000}}};
  asks.lists.reply = Chunk{{4, 100, 0x4000}};
  tells.lists.writes = {{{3, 0, 0x3000}}};
  tells.lists.reply = Chunk{{4, 0, 0x4000}};
  ask();
  script.read(server, 1, 0x1000, pattern(100)).read(server, 2, 0x2000, pattern(50));
  tell();
  const RpcLog log = found_everywhere(script);
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
}

TEST_F(RpcChecks, HandlesAreUniqueInACall) {
  give_read_chunk({{1, 4, 0x1000}, {1, 4, 0x2000}});
  ask();
  script.read(server, 1, 0x1000, pattern(4)).read(server, 1, 0x2000, pattern(4));
  tell();
  expect_only(finding::duplicate_handle, {3});
}

TEST_F(RpcChecks, HandlesAreUniqueAmongOpenCalls) {
  asks.lists.writes = {{{1, 4, 0x1000}}};
  tells.lists.writes = {{{1, 0, 0x1000}}};
  ask();
  RdmaHeader second{.xid = 5};
  second.lists.writes = {{{1, 4, 0x2000}}};
  script.send(client, rdma_message(second, rpc_call(5, program, 1, 7)));
  tell();
  second.lists.writes = {{{1, 0, 0x2000}}};
  script.send(server, rdma_message(second, rpc_reply(5)));
  expect_only(finding::duplicate_handle, {4});
}

TEST_F(RpcChecks, AddressesAreUnique) {
  give_read_chunk({{1, 4, 0x1000}, {2, 4, 0x1000}});
  ask();
  script.read(server, 1, 0x1000, pattern(4)).read(server, 2, 0x1000, pattern(4));
  tell();
  expect_only(finding::duplicate_address, {3});
}

TEST_F(RpcChecks, SegmentsHaveBytes) {
  asks.lists.writes = {{{1, 0, 0x1000}}};
  tells.lists.writes = asks.lists.writes;
  ask().tell();
  expect_only(finding::empty_segment, {3});
}

TEST_F(RpcChecks, PositionZeroIsOfNomsgOnly) {
  asks.lists.reads = {{0, {1, 100, 0x1000}}};
  ask();
  script.read(server, 1, 0x1000, rpc_call(xid, program, 1, 7, pattern(60)));
  tell();
  expect_only(finding::position_zero_in_msg, {3});
}

TEST_F(RpcChecks, NomsgHasAChunkAtPositionZero) {
  asks.procedure = RpcRdmaProcedure::nomsg;
  asks.lists.writes = {{{1, 100, 0x1000}}};
  tells.lists.writes = {{{1, 0, 0x1000}}};
  call.clear();
  ask().tell();
  expect_only(finding::nomsg_without_chunk, {3});
}

TEST_F(RpcChecks, NomsgRepliesHaveAReplyChunk) {
  ask();
  tells.procedure = RpcRdmaProcedure::nomsg;
  reply.clear();
  tell();
  expect_only(finding::nomsg_without_chunk, {3, 4});
}

TEST_F(RpcChecks, NothingFollowsNomsg) {
  asks.lists.reply = Chunk{{1, 100, 0x1000}};
  ask();
  const auto size = static_cast<std::uint32_t>(reply.size());
  script.write(server, 1, 0x1000, reply);
  tells.procedure = RpcRdmaProcedure::nomsg;
  tells.lists.reply = Chunk{{1, size, 0x1000}};
  tell();
  expect_only(finding::nomsg_with_message, {3, 5});
}

TEST_F(RpcChecks, MsgIsFollowedByAMessage) {
  call.clear();
  ask();
  expect_only(finding::malformed_header, {3});
}

TEST_F(RpcChecks, PositionsAreMultiplesOfFour) {
  give_read_chunk({{1, 8, 0x1000}}, 2);
  call = joined(call, Buffer(4));
  ask();
  script.read(server, 1, 0x1000, pattern(8));
  tell();
  expect_only(finding::position_unaligned, {3});
}

TEST_F(RpcChecks, PositionsAreInTheMessage) {
  give_read_chunk({{1, 8, 0x1000}}, 4);
  ask();
  script.read(server, 1, 0x1000, pattern(8));
  tell();
  expect_only(finding::position_beyond_message, {3});
}

TEST_F(RpcChecks, PositionsAreNotInChunks) {
  const auto position = static_cast<std::uint32_t>(call.size());
  asks.lists.reads = {{position, {1, 8, 0x1000}}, {position + 4, {2, 8, 0x2000}}};
  ask();
  script.read(server, 1, 0x1000, pattern(8)).read(server, 2, 0x2000, pattern(8));
  tell();
  expect_only(finding::position_beyond_message, {3});
}

TEST_F(RpcChecks, InlineMessagesArePadded) {
  call.push_back(std::byte{1});
  ask().tell();
  expect_only(finding::unaligned_message, {3});
}

// Two credits, both in use until the first reply.
struct RpcCredits : RpcChecks {
  void ask(std::uint32_t number) {
    script.send(client, rdma_message({.xid = number}, rpc_call(number, program, 1, 7)));
  }
  void tell(std::uint32_t number) {
    script.send(server, rdma_message({.xid = number, .credits = 2}, rpc_reply(number)));
  }
  void SetUp() override {
    ask(1);
    tell(1);
  }
};

TEST_F(RpcCredits, WaitingForThemIsFound) {
  ask(2);
  ask(3);  // frame 4
  script.wait_ns(1'000'000);
  tell(2);  // frame 5
  ask(4);
  tell(3);
  tell(4);
  expect_only(finding::rpc_credit_stall, {4, 5});
  const RpcLog log = found_everywhere(script);
  EXPECT_NE(log.findings.at(0).sentence.find("granted credits (2 at last), once"),
            std::string::npos)
      << log.all();
}

TEST_F(RpcCredits, HavingSomeLeftIsNoWait) {
  ask(2);
  for (std::uint32_t number = 3; number < 10; ++number) {
    script.wait_ns(1'000'000);
    tell(number - 1);
    ask(number);
  }
  tell(9);
  EXPECT_EQ(followed(script).findings.size(), 0U) << followed(script).all();
}

TEST_F(RpcCredits, WhoAsksLaterHadNothingToAsk) {
  ask(2);
  ask(3);
  tell(2);
  script.wait_ns(1'000'000);
  ask(4);
  tell(3);
  tell(4);
  EXPECT_EQ(followed(script).findings.size(), 0U) << followed(script).all();
}

TEST_F(RpcChecks, CreditsAreGranted) {
  tells.credits = 0;
  ask().tell();
  expect_only(finding::zero_credits, {3, 4});
}

TEST_F(RpcChecks, CallsKeepToTheirCredits) {
  for (std::uint32_t number = 100; number < 133; ++number) {
    script.send(client, rdma_message({.xid = number}, rpc_call(number, program, 1, 7)));
  }
  for (std::uint32_t number = 100; number < 133; ++number) {
    script.send(server, rdma_message({.xid = number}, rpc_reply(number)));
  }
  expect_only(finding::credits_exceeded, {35});
}

TEST_F(RpcChecks, BothHeadersHaveOneXid) {
  ask();
  reply[3] = std::byte{0};
  tell();
  expect_only(finding::xid_differs, {4});
}

TEST_F(RpcChecks, SendsHaveAHeader) {
  script.send(client, pattern(100));
  expect_only(finding::malformed_header, {3});
}

struct ReplyChecks : RpcChecks {
  void SetUp() override {
    RpcChecks::SetUp();
    asks.lists.writes = {{{1, 100, 0x1000}, {2, 100, 0x2000}}};
    asks.lists.reply = Chunk{{3, 100, 0x3000}};
    tells.lists = asks.lists;
    for (auto& segment : tells.lists.writes[0]) segment.length = 0;
    (*tells.lists.reply)[0].length = 0;
    ask();
  }
};

TEST_F(ReplyChecks, WriteListsHaveAsManyChunks) {
  tells.lists.writes.clear();
  tell();
  expect_only(finding::chunk_count, {3, 4});
}

TEST_F(ReplyChecks, ChunksHaveAsManySegments) {
  tells.lists.writes[0].pop_back();
  tell();
  expect_only(finding::segment_count, {3, 4});
}

TEST_F(ReplyChecks, SegmentsHaveTheSameHandle) {
  tells.lists.writes[0][1].handle = 9;
  tell();
  expect_only(finding::segment_differs, {3, 4});
}

TEST_F(ReplyChecks, SegmentsHaveTheSameOffset) {
  (*tells.lists.reply)[0].offset = 0x3001;
  tell();
  expect_only(finding::segment_differs, {3, 4});
}

TEST_F(ReplyChecks, ReplyChunksOfMsgAreEmpty) {
  (*tells.lists.reply)[0].length = 100;
  script.write(server, 3, 0x3000, pattern(100));
  tell();
  expect_only(finding::reply_chunk_in_msg, {3, 5});
}

TEST_F(ReplyChecks, SegmentsAreNotLonger) {
  tells.procedure = RpcRdmaProcedure::nomsg;
  (*tells.lists.reply)[0].length = 104;
  Buffer long_reply = rpc_reply(xid, pattern(80));
  script.write(server, 3, 0x3000, long_reply);
  reply.clear();
  tell();
  const RpcLog log = found_everywhere(script);
  EXPECT_EQ(log.count(finding::segment_longer), 1U) << log.all();
  EXPECT_EQ(log.count(finding::outside_segment), 1U) << log.all();
  EXPECT_EQ(log.count(finding::incomplete), 1U) << log.all();
}

TEST_F(ReplyChecks, RepliesHaveNoReadList) {
  tells.lists.reads = {{4, {1, 4, 0}}};
  tell();
  expect_only(finding::chunk_count, {3, 4});
}

TEST_F(ReplyChecks, ReplyChunksAreAskedFor) {
  script = TrafficScript(0, 4096);
  exchange(1);
  asks.lists.reply.reset();
  ask().tell();
  expect_only(finding::chunk_count, {3, 4});
}

TEST_F(ReplyChecks, UnusedSegmentsCarryNothing) {
  script.write(server, 3, 0x3000, pattern(10));
  tell();
  expect_only(finding::unused_chunk_written, {3, 5});
}

TEST_F(ReplyChecks, WritesEndWhereTheReplySays) {
  script.write(server, 1, 0x1000, pattern(10));
  tells.lists.writes[0][0].length = 8;
  tell();
  expect_only(finding::written_beyond_reply, {3, 5});
}

// The snap length leaves the headers of large packets, which say where the bytes were written.
MadeCapture large_packets_cut(MadeCapture capture) {
  constexpr std::size_t large_bytes = 900;
  constexpr std::size_t left_bytes = 70;
  for (MadePacket& packet : capture) {
    if (packet.bytes.size() > large_bytes) packet.bytes.resize(left_bytes);
  }
  return capture;
}

void expect_only_in_cut_captures(const TrafficScript& script, std::string_view kind) {
  for (const MadeCapture& capture : {iwarp_capture(script), roce_capture(script)}) {
    const RpcLog log = followed(large_packets_cut(capture));
    ASSERT_EQ(log.findings.size(), 1U) << log.all();
    EXPECT_EQ(log.findings[0].kind, kind) << log.all();
  }
}

TEST_F(RpcChecks, CutWritesEndWhereTheReplySays) {
  asks.lists.writes = {{{1, 2'000, 0x1000}}};
  tells.lists.writes = {{{1, 800, 0x1000}}};
  ask();
  script.write(server, 1, 0x1000, pattern(1'000));
  tell();
  expect_only_in_cut_captures(script, finding::written_beyond_reply);
}

TEST_F(RpcChecks, UnusedSegmentsCarryNothingThatWasCut) {
  asks.lists.reply = Chunk{{1, 2'000, 0x1000}};
  tells.lists.reply = Chunk{{1, 0, 0x1000}};
  ask();
  script.write(server, 1, 0x1000, pattern(1'000));
  tell();
  expect_only_in_cut_captures(script, finding::unused_chunk_written);
}

TEST_F(RpcChecks, CutWritesThatTheReplyReportsAreNoFinding) {
  asks.lists.writes = {{{1, 2'000, 0x1000}}};
  tells.lists.writes = {{{1, 1'000, 0x1000}}};
  ask();
  script.write(server, 1, 0x1000, pattern(1'000));
  tell();
  for (const MadeCapture& capture : {iwarp_capture(script), roce_capture(script)}) {
    const RpcLog log = followed(large_packets_cut(capture));
    EXPECT_EQ(log.findings.size(), 0U) << log.all();
  }
}

TEST_F(ReplyChecks, WritesStayInTheSegment) {
  script.write(server, 1, 0x1000 + 90, pattern(20));
  tells.lists.writes[0][0].length = 100;
  tell();
  const RpcLog log = found_everywhere(script);
  EXPECT_EQ(log.count(finding::outside_segment), 1U) << log.all();
  EXPECT_EQ(log.count(finding::incomplete), 1U) << log.all();
}

TEST_F(ReplyChecks, WritesFollowOneAnother) {
  script.write(server, 1, 0x1000 + 50, pattern(50));
  script.write(server, 1, 0x1000, pattern(50));
  tells.lists.writes[0][0].length = 100;
  tell();
  expect_only(finding::write_discontinuous, {3, 6});
}

TEST_F(ReplyChecks, WhatIsClaimedWasWritten) {
  tells.lists.writes[0][0].length = 100;
  tell();
  expect_only(finding::incomplete, {3, 4});
}

struct ReadChecks : RpcChecks {
  void SetUp() override {
    RpcChecks::SetUp();
    give_read_chunk({{1, 100, 0x1000}});
    ask();
  }
};

TEST_F(ReadChecks, RequestsFollowOneAnother) {
  script.read(server, 1, 0x1000 + 40, pattern(60)).read(server, 1, 0x1000, pattern(40));
  tell();
  expect_only(finding::read_discontinuous, {3, 8});
}

TEST_F(ReadChecks, RequestsAskForAllOfIt) {
  script.read(server, 1, 0x1000, pattern(60));
  tell();
  const RpcLog log = found_everywhere(script);
  EXPECT_EQ(log.count(finding::read_length), 1U) << log.all();
  EXPECT_EQ(log.count(finding::incomplete), 1U) << log.all();
}

TEST_F(ReadChecks, RequestsStayInTheSegment) {
  script.read(server, 1, 0x1000, pattern(104));
  tell();
  const RpcLog log = found_everywhere(script);
  EXPECT_EQ(log.count(finding::outside_segment), 1U) << log.all();
  EXPECT_EQ(log.count(finding::read_length), 1U) << log.all();
}

TEST_F(ReadChecks, XidsAreNotUsedTwiceAtATime) {
  script.read(server, 1, 0x1000, pattern(100));
  script.send(client, rdma_message({.xid = xid}, rpc_call(xid, program, 1, 8)));
  tell();
  const RpcLog log = found_everywhere(script);
  EXPECT_EQ(log.count(finding::xid_reused), 1U) << log.all();
  EXPECT_EQ(log.count(finding::unanswered), 1U) << log.all();
  ASSERT_EQ(log.rpcs.size(), 3U);
  EXPECT_EQ(log.rpcs[2].procedure, 8U);
}

TEST_F(RpcChecks, RejectionsAreTold) {
  ask();
  reply = Xdr().u32(xid).u32(1).u32(0).zeros(8).u32(1);
  tell();
  expect_only(finding::rejected, {3, 4});
}

TEST_F(RpcChecks, OfOneKindAHundredAreTold) {
  for (std::uint32_t number = 100; number < 250; ++number) {
    script.send(client,
                rdma_message({.xid = number, .credits = 0}, rpc_call(number, program, 1, 7)));
    script.send(server, rdma_message({.xid = number}, rpc_reply(number)));
  }
  const RpcLog log = found_everywhere(script);
  EXPECT_EQ(log.findings.size(), 101U);
  EXPECT_NE(log.findings.back().sentence.find("50 times more"), std::string::npos);
}

}  // namespace
}  // namespace weft::capture::test
