// Every way in which a stream ends without a Terminate.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/pair.h"
#include "support/pump.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::EndReason;
using iwarp::Operation;
using iwarp::Status;

TEST(Close, FlushesWhatIsUnderWay) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(8);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    peer.post({.wr_id = i, .operation = Operation::write, .signaled = i != 2}, {memory.slice()});
  }
  (void)peer.connection.plan_send();
  peer.connection.close();
  EXPECT_EQ(peer.statuses(), std::vector(3, Status::flushed));
  EXPECT_EQ(peer.host.end_reason, EndReason::local_close);
  peer.connection.close();
  peer.connection.peer_closed(0);
  EXPECT_EQ(peer.host.end_calls, 1);
}

// FPDUs that are built, and answers that are due, are still sent.
TEST(Close, LeavesNoHalfFpduAndNoReadUnanswered) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(8);
  peer.post({.operation = Operation::write}, {memory.slice()});
  const auto built = peek(peer.connection);
  peer.connection.sent(5);
  peer.send(empty_read(1));
  peer.send(read_request(2, {.sink_stag = 3,
                             .size_bytes = 8,
                             .source_stag = memory.rkey(),
                             .source_offset = memory.address()}));
  peer.connection.close();
  EXPECT_FALSE(peer.connection.drained());
  const auto rest = drain(peer.connection);
  EXPECT_TRUE(peer.connection.drained());
  const auto sent = split(joined(Bytes(built).first(5), rest));
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_EQ(sent[0], write(0, 0, Content(8)));
  EXPECT_EQ(sent[1], empty_read(1));
  EXPECT_EQ(sent[2], empty_response());
  EXPECT_EQ(sent[3], read_response(3, 0, Content(8)));
}

// RFC 5041 §5.3: no answer is sent between the segments of a message, not even of one that is
// abandoned.
TEST(Close, PutsNoAnswerIntoAHalfSentMessage) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(1'000'000);
  peer.post({.operation = Operation::write}, {memory.slice()});
  // One burst is built and sent; the rest of the message is not built yet.
  peer.connection.sent(peek(peer.connection).size());
  peer.send(empty_read(1));
  peer.connection.close();
  for (const auto& ulpdu : split(drain(peer.connection))) {
    EXPECT_FALSE(wire::ddp_is_last(ulpdu.bytes[0])) << describe(ulpdu);
  }
  EXPECT_TRUE(peer.connection.drained());
}

// The Sends that wait for a receive when the stream ends are counted, and those that come while it
// is being closed.
TEST(Close, SendsThatWereNotReceivedAreCounted) {
  auto options = roomy(true);
  options.receiver_not_ready.hold_bytes = 1000;
  ScriptedPeer peer(options);
  Region& memory = peer.host.add(4);
  peer.send(send(1, text("abc")));
  peer.send(send(2, text("defgh")));
  peer.send(send(3, text("not whole"), {.last = false}));
  peer.post({.operation = Operation::send}, {memory.slice()});
  peer.expect(send(1, Content(4)));
  peer.expect(empty_read(1));
  EXPECT_EQ(peer.connection.unreceived().messages, 0U);
  peer.connection.close_when_proven();
  EXPECT_EQ(peer.connection.unreceived().messages, 2U);
  EXPECT_EQ(peer.connection.unreceived().bytes, 8U);
  peer.send(send(3, text(" but cut"), {.offset = 9}));
  peer.send(send(4, text("later")));
  peer.send(write(0xDEAD, 0, text("is no message")));
  EXPECT_EQ(peer.connection.unreceived().messages, 4U);
  EXPECT_EQ(peer.connection.unreceived().bytes, 30U);
  EXPECT_TRUE(peer.host.receives.empty());
}

// A completed request returns its memory to the application, although its bytes are still to be
// sent.
TEST(Close, SendsWhatTheMemoryHeldBefore) {
  for (const bool crc : {true, false}) {
    auto options = roomy(true);
    options.mulpdu_bytes = 9000;
    options.crc = crc;
    ScriptedPeer peer(options);
    Region& memory = peer.host.add(pattern(8000));
    const auto content = memory.copy();
    peer.post({.operation = Operation::write}, {memory.slice()});
    peer.send(read_request(1, {.sink_stag = 3,
                               .size_bytes = 8000,
                               .source_stag = memory.rkey(),
                               .source_offset = memory.address()}));
    (void)peer.connection.plan_send();
    peer.connection.close();
    memory.put(0, Content(8000));
    const auto sent = split(drain(peer.connection), crc);
    ASSERT_EQ(sent.size(), 3U);
    EXPECT_EQ(sent[0], read_response(3, 0, content));
    EXPECT_EQ(sent[1], write(0, 0, content));
  }
}

TEST(Close, AcceptsNothingMore) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(8);
  peer.connection.close();
  std::vector<iovec> plan;
  peer.connection.plan_receive(plan);
  EXPECT_TRUE(plan.empty());
  peer.connection.received(0);
  peer.expect_nothing();
  EXPECT_EQ(memory.copy(), Content(8));
}

// Each posted request has one completion, also on a stream that has ended.
TEST(Close, RequestsPostedLaterAreFlushedAtOnce) {
  auto options = roomy(true);
  options.limits.send_requests = 2;
  ScriptedPeer peer(options);
  Region& memory = peer.host.add(8);
  peer.connection.peer_closed(0);
  EXPECT_EQ(peer.host.end_calls, 1);
  for (int i = 0; i < 5; ++i) {
    peer.post({.operation = Operation::write, .signaled = i > 2}, {memory.slice()});
  }
  EXPECT_EQ(peer.statuses(), std::vector(5, Status::flushed));
  peer.expect_nothing();
}

TEST(Close, ReceiveThatIsHalfFilledIsFlushed) {
  for (const std::size_t bytes : {10U, 30'000U}) {
    ScriptedPeer peer(roomy(false));
    Region& memory = peer.host.add(100'000);
    peer.host.post_receive(1, {memory.slice()});
    peer.host.post_receive(2, {memory.slice()});
    peer.send(send(1, Content(bytes), {.last = false}));
    EXPECT_TRUE(peer.host.receives.empty());
    peer.connection.peer_closed(0);
    ASSERT_EQ(peer.host.receives.size(), 1U);
    EXPECT_EQ(peer.host.receives[0].wr_id, 1U);
    EXPECT_EQ(peer.host.receives[0].status, Status::flushed);
    EXPECT_EQ(peer.host.posted_receives.size(), 1U);
  }
}

TEST(Close, OfAnIdleStreamCompletesNothing) {
  ScriptedPeer peer(roomy(true));
  EXPECT_TRUE(peer.connection.idle());
  peer.connection.peer_closed(0);
  EXPECT_TRUE(peer.host.sends.empty());
  EXPECT_EQ(peer.host.end_reason, EndReason::peer_closed);
  EXPECT_TRUE(peer.connection.drained());
}

// The driver can detect a stream that was cut inside an FPDU.
TEST(Close, TellsACutFpduFromACleanEnd) {
  const auto whole = fpdu(write(0, 0, {}));
  ScriptedPeer peer(roomy(false));
  EXPECT_FALSE(peer.connection.mid_fpdu());
  for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
    peer.send_raw(Bytes(whole).subspan(i, 1));
    EXPECT_TRUE(peer.connection.mid_fpdu());
  }
  peer.send_raw(Bytes(whole).last(1));
  EXPECT_FALSE(peer.connection.mid_fpdu());
}

// One side closes: requests of the other side that arrived succeed.
TEST(Close, OfOnePeerEndsTheOther) {
  Pair pair;
  Region& from = pair.a.host.add(text("abc"));
  Region& to = pair.b.host.add(10);
  pair.b.host.post_receive(1, {to.slice()});
  pair.a.post({.wr_id = 1, .operation = Operation::send}, {from.slice()});
  pair.drive();
  pair.b.connection().close();
  pair.a.post({.wr_id = 2, .operation = Operation::send}, {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.host.end_reason, EndReason::peer_closed);
  EXPECT_EQ(pair.a.send_statuses(), (std::vector{Status::success, Status::success}));
}

// The peer's TCP has the second Send, but its device, which has closed, does not receive it:
// between Weft devices that is no success.
TEST(Close, ASendThatComesAfterItIsNoSuccess) {
  Pair pair(patient_pair(1000));
  Region& from = pair.a.host.add(text("abc"));
  Region& to = pair.b.host.add(10);
  pair.b.host.post_receive(1, {to.slice()});
  pair.b.host.post_receive(2, {to.slice()});
  pair.a.post({.wr_id = 1, .operation = Operation::send}, {from.slice()});
  pair.drive();
  pair.a.post({.wr_id = 2, .operation = Operation::send}, {from.slice()});
  pair.transmit();
  pair.b.connection().close();
  pair.drive();
  EXPECT_EQ(pair.a.host.end_reason, EndReason::peer_closed);
  EXPECT_EQ(pair.a.send_statuses(), (std::vector{Status::success, Status::retry_exceeded}));
}

// The link breaks at each offset in turn. Each time every request completes once and in order,
// errors come last, and only the first of them gives the reason.
TEST(Close, CutAtEachOffset) {
  const auto run = [](Pair& pair) {
    Region& from = pair.a.host.add(pattern(300));
    Region& to = pair.b.host.add(300);
    Region& back = pair.a.host.add(300);
    pair.b.host.post_receive(1, {to.slice()});
    const iwarp::WorkRequest remote{.remote_address = to.address(), .rkey = to.rkey()};
    auto work = remote;
    work.operation = Operation::write;
    work.wr_id = 1;
    pair.a.post(work, {from.slice()});
    pair.a.post({.wr_id = 2, .operation = Operation::send}, {from.slice(0, 50)});
    work.operation = Operation::read;
    work.wr_id = 3;
    pair.a.post(work, {back.slice()});
    work.operation = Operation::write;
    work.wr_id = 4;
    pair.a.post(work, {from.slice()});
    pair.drive();
  };
  Pair whole;
  run(whole);
  for (const bool forward : {true, false}) {
    const auto total = (forward ? whole.a_to_b : whole.b_to_a).sent_bytes();
    for (std::uint64_t offset = 0; offset < total; offset += 3) {
      SCOPED_TRACE(testing::Message() << (forward ? "forward " : "back ") << offset);
      Pair pair;
      (forward ? pair.a_to_b : pair.b_to_a).add(cut(offset));
      run(pair);
      ASSERT_EQ(pair.a.send_ids(), (std::vector<std::uint64_t>{1, 2, 3, 4}));
      const auto statuses = pair.a.send_statuses();
      const auto bad =
          std::ranges::find_if(statuses, [](Status status) { return status != Status::success; });
      const auto proof = fpdu(forward ? empty_read(1) : empty_response()).size();
      const bool only_the_proof_is_lost = offset >= total - proof;
      EXPECT_EQ(bad == statuses.end(), only_the_proof_is_lost);
      if (bad != statuses.end()) {
        EXPECT_EQ(*bad, Status::retry_exceeded);
        EXPECT_TRUE(std::all_of(bad + 1, statuses.end(),
                                [](Status status) { return status == Status::flushed; }));
      }
      EXPECT_EQ(pair.a.host.end_calls, 1);
      EXPECT_EQ(pair.b.host.end_calls, 1);
    }
  }
}

}  // namespace
}  // namespace weft::test
