// The end of a stream from this side that waits for the proofs of what was sent.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/pump.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::EndReason;
using iwarp::Operation;
using iwarp::Status;

TEST(CloseWhenProven, WaitsForTheProof) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post({.wr_id = 1, .operation = Operation::send}, {memory.slice()});
  peer.expect(send(1, Content(4)));
  peer.expect(empty_read(1));
  peer.connection.close_when_proven();
  EXPECT_FALSE(peer.connection.ended());
  EXPECT_TRUE(peer.statuses().empty());
  peer.send(empty_response());
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  EXPECT_EQ(peer.host.end_reason, EndReason::local_close);
  peer.expect_nothing();
  EXPECT_TRUE(peer.connection.drained());
  peer.connection.close();
  EXPECT_EQ(peer.host.end_calls, 1);
}

TEST(CloseWhenProven, EndsAtOnceWhereNothingWasSent) {
  ScriptedPeer idle(roomy(true));
  idle.connection.close_when_proven();
  EXPECT_EQ(idle.host.end_reason, EndReason::local_close);

  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post({.operation = Operation::send}, {memory.slice()});
  peer.connection.close_when_proven();
  EXPECT_EQ(peer.statuses(), std::vector{Status::flushed}) << "it was only posted";
  EXPECT_EQ(peer.host.end_reason, EndReason::local_close);
  peer.expect_nothing();
}

// A flushed request completes even if it is unsignaled, so it needs a proof as well.
TEST(CloseWhenProven, AsksForTheProofOfUnsignaledRequests) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post({.operation = Operation::send, .signaled = false}, {memory.slice()});
  peer.expect(send(1, Content(4)));
  peer.expect_nothing();
  peer.connection.close_when_proven();
  peer.expect(empty_read(1));
  peer.send(empty_response());
  EXPECT_TRUE(peer.statuses().empty());
  EXPECT_TRUE(peer.connection.ended());
}

TEST(CloseWhenProven, BeginsNoOtherRequest) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post({.wr_id = 1, .operation = Operation::read, .remote_address = 64, .rkey = 5},
            {memory.slice()});
  peer.post({.wr_id = 2, .operation = Operation::send, .fence = true}, {memory.slice()});
  peer.expect(read_request(1, {.sink_stag = memory.lkey(),
                               .sink_offset = memory.address(),
                               .size_bytes = 4,
                               .source_stag = 5,
                               .source_offset = 64}));
  peer.connection.close_when_proven();
  peer.expect_nothing();
  peer.post({.wr_id = 3, .operation = Operation::send}, {memory.slice()});
  peer.expect_nothing();
  peer.send(read_response(memory.lkey(), memory.address(), text("data")));
  EXPECT_EQ(peer.statuses(), (std::vector{Status::success, Status::flushed, Status::flushed}));
  EXPECT_EQ(memory.copy(), text("data"));
  EXPECT_TRUE(peer.connection.ended());
  peer.expect_nothing();
}

TEST(CloseWhenProven, SendsAMessageThatHasBegunToItsEnd) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(1'000'000);
  peer.post({.operation = Operation::write}, {memory.slice()});
  peer.post({.operation = Operation::write}, {memory.slice()});
  const auto first = split(peek(peer.connection));
  peer.connection.sent(peek(peer.connection).size());
  ASSERT_FALSE(wire::ddp_is_last(first.back().bytes[0])) << "the test needs a message that is cut";
  peer.connection.close_when_proven();
  const auto rest = split(drain(peer.connection));
  ASSERT_GE(rest.size(), 2U);
  EXPECT_TRUE(wire::ddp_is_last(rest[rest.size() - 2].bytes[0]));
  EXPECT_EQ(rest.back(), empty_read(1));
  peer.send(empty_response());
  EXPECT_EQ(peer.statuses(), (std::vector{Status::success, Status::flushed}));
}

// As with an adapter's queue pair in the error state: what the peer asks for has no effect.
TEST(CloseWhenProven, DiscardsWhatThePeerAsksFor) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  Region& target = peer.host.add(4);
  peer.host.post_receive(1, {target.slice()});
  peer.host.post_receive(2, {target.slice()});
  peer.send(send(1, text("ab"), {.last = false}));
  peer.post({.operation = Operation::send}, {memory.slice()});
  peer.expect(send(1, Content(4)));
  peer.expect(empty_read(1));
  peer.connection.close_when_proven();
  ASSERT_EQ(peer.host.receives.size(), 1U) << "the receive of the message that is cut";
  EXPECT_EQ(peer.host.receives[0].status, Status::flushed);
  target.put(0, Content(4));
  peer.send(send(1, text("cd"), {.offset = 2}));
  peer.send(send(2, text("efgh")));
  peer.send(write(target.rkey(), target.address(), text("ijkl")));
  peer.send(write(0xDEAD, 0, text("no such memory")));
  peer.send(read_request(1, {.sink_stag = 3,
                             .size_bytes = 4,
                             .source_stag = target.rkey(),
                             .source_offset = target.address()}));
  peer.expect_nothing();
  EXPECT_EQ(peer.host.receives.size(), 1U);
  EXPECT_EQ(target.copy(), Content(4));
  EXPECT_FALSE(peer.connection.ended());
  peer.send(empty_response());
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
}

TEST(CloseWhenProven, AnswersReadsThatHaveArrived) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post({.operation = Operation::send}, {memory.slice()});
  peer.expect(send(1, Content(4)));
  peer.expect(empty_read(1));
  peer.send(empty_read(1));
  peer.connection.close_when_proven();
  peer.expect(empty_response());
  peer.expect_nothing();
}

// What the peer's TCP has acknowledged counts as done, as always. The rest is no failure, because
// this side was closing.
TEST(CloseWhenProven, ThePeerMayCloseFirst) {
  for (const bool acknowledged : {true, false}) {
    ScriptedPeer peer(roomy(true));
    Region& memory = peer.host.add(4);
    peer.post({.operation = Operation::send}, {memory.slice()});
    peer.expect(send(1, Content(4)));
    peer.expect(empty_read(1));
    peer.connection.close_when_proven();
    peer.connection.peer_closed(acknowledged ? peer.sent_bytes() : 0);
    EXPECT_EQ(peer.statuses(), std::vector{acknowledged ? Status::success : Status::flushed});
    EXPECT_EQ(peer.host.end_reason, EndReason::peer_closed);
  }
}

TEST(CloseWhenProven, ThePeersTerminateIsAboutARequest) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post({.operation = Operation::write, .rkey = 5}, {memory.slice()});
  const Ulpdu request = peer.next();
  peer.connection.close_when_proven();
  peer.send(terminate(wire::terminate::tagged_invalid_stag, request));
  EXPECT_EQ(peer.statuses(), std::vector{Status::remote_access});
  EXPECT_EQ(peer.host.end_reason, EndReason::peer_terminated);
}

// The driver has waited for long enough.
TEST(CloseWhenProven, MayBeCutShort) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post({.operation = Operation::send}, {memory.slice()});
  peer.expect(send(1, Content(4)));
  peer.expect(empty_read(1));
  peer.connection.close_when_proven();
  peer.connection.close();
  EXPECT_EQ(peer.statuses(), std::vector{Status::flushed});
  EXPECT_EQ(peer.host.end_reason, EndReason::local_close);
}

// --- Two devices ---------------------------------------------------------------------------------

constexpr std::size_t hold_bytes = 10'000;

TEST(CloseWhenProven, WhatThePeerHasPlacedSucceedsAndWhatItSendsDoesNot) {
  Pair pair(patient_pair(hold_bytes));
  Region& near = pair.a.host.add(4);
  Region& far = pair.b.host.add(4);
  pair.a.host.post_receive(1, {near.slice()});
  pair.b.host.post_receive(1, {far.slice()});
  pair.a.post({.operation = Operation::send}, {near.slice()});
  pair.transmit();
  pair.b.post({.operation = Operation::send}, {far.slice()});
  pair.a.connection().close_when_proven();
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(pair.b.host.receives.size(), 1U);
  EXPECT_EQ(pair.b.send_statuses(), std::vector{Status::retry_exceeded});
  EXPECT_TRUE(pair.a.host.receives.empty());
  EXPECT_EQ(pair.a.host.end_reason, EndReason::local_close);
  EXPECT_EQ(pair.b.host.end_reason, EndReason::peer_closed);
}

// Each discards the request of the other, and neither waits for a proof that will not come.
TEST(CloseWhenProven, OnBothSidesAtOnce) {
  Pair pair(patient_pair(hold_bytes));
  Region& near = pair.a.host.add(4);
  Region& far = pair.b.host.add(4);
  pair.b.host.post_receive(1, {far.slice()});
  pair.a.post({.operation = Operation::send}, {near.slice()});
  pair.drive();  // from here on the responder may send
  pair.a.post({.operation = Operation::send}, {near.slice()});
  pair.b.post({.operation = Operation::send}, {far.slice()});
  pair.transmit();
  pair.a.connection().close_when_proven();
  pair.b.connection().close_when_proven();
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), (std::vector{Status::success, Status::flushed}));
  EXPECT_EQ(pair.b.send_statuses(), std::vector{Status::flushed});
  EXPECT_EQ(pair.a.host.end_reason, EndReason::local_close);
  EXPECT_EQ(pair.b.host.end_reason, EndReason::local_close);
}

// The second one has placed a request of the first one, whose proof is on its way, when it closes.
TEST(CloseWhenProven, OnBothSidesWithAProofUnderWay) {
  Pair pair(patient_pair(hold_bytes));
  Region& near = pair.a.host.add(4);
  Region& far = pair.b.host.add(4);
  pair.b.host.post_receive(1, {far.slice()});
  pair.a.post({.wr_id = 1, .operation = Operation::send}, {near.slice()});
  while (pair.b.host.receives.empty() && pair.step()) {
  }
  pair.b.post({.wr_id = 2, .operation = Operation::send}, {far.slice()});
  pair.transmit();
  pair.a.post({.wr_id = 3, .operation = Operation::send}, {near.slice()});
  pair.transmit();
  pair.a.connection().close_when_proven();
  pair.b.connection().close_when_proven();
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), (std::vector{Status::success, Status::flushed}));
  EXPECT_EQ(pair.b.send_statuses(), std::vector{Status::flushed});
}

// A Send that waits at the peer for a receive is proven when that receive comes.
TEST(CloseWhenProven, WaitsForAReceiveOfThePeer) {
  Pair pair(patient_pair(hold_bytes));
  Region& near = pair.a.host.add(4);
  Region& far = pair.b.host.add(4);
  pair.a.post({.operation = Operation::send}, {near.slice()});
  pair.drive();
  pair.a.connection().close_when_proven();
  pair.drive();
  EXPECT_FALSE(pair.a.connection().ended());
  pair.b.post_receive(1, {far.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(pair.a.host.end_reason, EndReason::local_close);
}

// The peer gives up waiting for a receive, and says so by its Terminate.
TEST(CloseWhenProven, ThePeerMayHaveNoReceive) {
  Pair pair(patient_pair(hold_bytes, 1'000, 3));
  Region& near = pair.a.host.add(4);
  pair.a.post({.operation = Operation::send}, {near.slice()});
  pair.transmit();
  pair.a.connection().close_when_proven();
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::rnr_retry_exceeded});
}

}  // namespace
}  // namespace weft::test
