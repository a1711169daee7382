// Messages that arrive before their receive are held: what continues meanwhile, and what waits.
#include <gtest/gtest.h>

#include <cstring>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"
#include "wire/control_word.h"

namespace weft::test {
namespace {

using iwarp::EndReason;
using iwarp::Operation;
using iwarp::Status;
using wire::RdmapOpcode;
namespace code = wire::terminate;

iwarp::Connection::Options holding(std::size_t hold_bytes, std::uint64_t timer_ns = 0,
                                   std::uint8_t retries = iwarp::rnr_retry_infinite) {
  auto options = roomy(false);
  options.receiver_not_ready = {.hold_bytes = hold_bytes, .timer_ns = timer_ns, .retries = retries};
  return options;
}

const auto proof = empty_response();

TEST(Hold, KeepsASendUntilAReceiveComes) {
  ScriptedPeer peer(holding(1000));
  Region& to = peer.host.add(100);
  peer.send(send(1, text("early"), {}, RdmapOpcode::send_solicited));
  peer.expect_nothing();
  EXPECT_TRUE(peer.host.receives.empty());
  peer.post_receive(7, {to.slice()});
  ASSERT_EQ(peer.host.receives.size(), 1U);
  const auto& completion = peer.host.receives[0];
  EXPECT_EQ(completion.wr_id, 7U);
  EXPECT_EQ(completion.status, Status::success);
  EXPECT_EQ(completion.length_bytes, 5U);
  EXPECT_TRUE(completion.solicited);
  EXPECT_EQ(to.copy(0, 5), text("early"));
  EXPECT_FALSE(peer.connection.ended());
}

// The probe after it may not be answered: a completion means "placed".
TEST(Hold, ReadsAndAtomicsBehindItWait) {
  ScriptedPeer peer(holding(1000));
  Region& counter = peer.host.add(8);
  peer.send(empty_read(1));
  peer.send(send(1, text("a")));
  peer.send(empty_read(2));
  peer.send(atomic_request(3, {.opcode = wire::AtomicOpcode::fetch_add,
                               .request_id = 3,
                               .stag = counter.rkey(),
                               .tagged_offset = counter.address(),
                               .add_or_swap = 5}));
  peer.expect(proof);  // to the read in front of it
  peer.expect_nothing();
  EXPECT_EQ(counter.copy(), Content(8));
  peer.post_receive(1, {peer.host.add(10).slice()});
  peer.expect(proof);
  peer.expect(atomic_response(1, 3, 0));
  EXPECT_NE(counter.copy(), Content(8));
}

// Each answer waits for the messages before its request, and for nothing else.
TEST(Hold, ReadsBetweenHeldSendsAreAnsweredInTheirTurn) {
  ScriptedPeer peer(holding(1000));
  peer.send(send(1, {}));
  peer.send(empty_read(1));
  peer.send(send(2, {}));
  peer.send(empty_read(2));
  peer.expect_nothing();
  peer.post_receive(1);
  peer.expect(proof);
  peer.expect_nothing();
  peer.post_receive(2);
  peer.expect(proof);
}

TEST(Hold, WritesBehindItArePlaced) {
  ScriptedPeer peer(holding(1000));
  Region& target = peer.host.add(4);
  peer.send(send(1, text("a")));
  peer.send(write(target.rkey(), target.address(), text("data")));
  EXPECT_EQ(target.copy(), text("data"));
}

TEST(Hold, ResponsesAreTakenAtOnce) {
  ScriptedPeer peer(holding(1000));
  Region& sink = peer.host.add(4);
  peer.send(empty_read(1));  // the first FPDU: now both may send
  peer.expect(proof);
  peer.post({.wr_id = 1, .operation = Operation::read, .rkey = 5}, {sink.slice()});
  (void)peer.next();
  peer.send(send(1, text("a")));
  peer.send(read_response(sink.lkey(), sink.address(), text("data")));
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  EXPECT_EQ(sink.copy(), text("data"));
  EXPECT_TRUE(peer.host.receives.empty());
}

TEST(Hold, TerminateIsTakenAtOnce) {
  ScriptedPeer peer(holding(1000));
  peer.send(send(1, text("a")));
  peer.send(terminate(code::rdma_unspecified));
  EXPECT_EQ(peer.connection.end_reason(), EndReason::peer_terminated);
  EXPECT_TRUE(peer.host.receives.empty()) << "it never got a receive";
}

TEST(Hold, KeepsTheOrder) {
  ScriptedPeer peer(holding(10'000));
  Region& to = peer.host.add(100);
  Region& target = peer.host.add(20);
  peer.send(send(1, text("one")));
  peer.send(write(target.rkey(), target.address(), Content(17)));
  peer.send(immediate(2, 42));
  peer.send(write(target.rkey(), target.address(), Content(3)));
  peer.send(send(3, text("three")));
  for (std::uint64_t i = 0; i < 3; ++i) peer.post_receive(i, {to.slice(i * 10, 10)});
  EXPECT_EQ(peer.received_ids(), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(to.copy(0, 3), text("one"));
  EXPECT_EQ(peer.host.receives[1].immediate_be, 42U);
  EXPECT_TRUE(peer.host.receives[1].from_write);
  EXPECT_EQ(peer.host.receives[1].length_bytes, 17U) << "of the Write in front of it";
  EXPECT_EQ(to.copy(20, 5), text("three"));
  EXPECT_FALSE(peer.host.receives[2].has_immediate);
}

// A message that arrives while others wait may not overtake them, even if there is a receive.
TEST(Hold, ALaterSendDoesNotOvertake) {
  ScriptedPeer peer(holding(10'000));
  Region& to = peer.host.add(100);
  peer.send(send(1, text("one")));
  peer.host.post_receive(1, {to.slice(0, 10)});  // not reported yet
  peer.send(send(2, text("two")));
  EXPECT_EQ(peer.received_ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(to.copy(0, 3), text("one"));
  peer.post_receive(2, {to.slice(10, 10)});
  EXPECT_EQ(to.copy(10, 3), text("two"));
}

TEST(Hold, InvalidatesWhenItIsPlaced) {
  ScriptedPeer peer(holding(1000));
  Region& granted = peer.host.add(8);
  peer.send(send(1, {}, {}, RdmapOpcode::send_invalidate, granted.rkey()));
  EXPECT_TRUE(peer.host.invalidated.empty());
  peer.post_receive(1);
  EXPECT_EQ(peer.host.invalidated, std::vector{granted.rkey()});
  EXPECT_TRUE(peer.host.receives.at(0).has_invalidated);
}

// The rest of a message that has its receive is placed directly: it may be longer than the hold.
TEST(Hold, AReceiveMayComeInTheMiddle) {
  const auto content = pattern(5000);
  const Bytes bytes = content;
  ScriptedPeer peer(holding(1200));
  Region& to = peer.host.add(5000);
  peer.send(send(1, bytes.first(1000), {.last = false}));
  peer.post_receive(1, {to.slice(0, 300), to.slice(300, 4700)});
  EXPECT_TRUE(peer.host.receives.empty());
  peer.send(send(1, bytes.subspan(1000, 3000), {.offset = 1000, .last = false}));
  peer.send(send(1, bytes.subspan(4000), {.offset = 4000}));
  ASSERT_EQ(peer.host.receives.size(), 1U);
  EXPECT_EQ(peer.host.receives[0].length_bytes, 5000U);
  EXPECT_EQ(to.copy(), content);
}

// Half of a large segment is in the hold already when the receive is posted.
TEST(Hold, AReceiveMayComeInTheMiddleOfASegment) {
  const auto content = pattern(100'000);
  const Bytes bytes = content;
  auto options = holding(80'000);
  options.crc = false;
  ScriptedPeer peer(options);
  Region& to = peer.host.add(100'000);
  const auto first = fpdu(send(1, bytes.first(60'000), {.last = false}), false);
  peer.send_raw(Bytes(first).first(30'000));
  peer.post_receive(1, {to.slice()});
  peer.send_raw(Bytes(first).subspan(30'000));
  peer.send(send(1, bytes.subspan(60'000), {.offset = 60'000}));
  ASSERT_EQ(peer.host.receives.size(), 1U);
  EXPECT_EQ(to.copy(), content);
}

TEST(Hold, AMessageThatDoesNotFitItsReceiveFailsBothSides) {
  ScriptedPeer peer(holding(1000));
  peer.send(send(1, text("ok")));
  peer.send(send(2, text("too long")));
  peer.send(send(3, text("later")));
  peer.post_receive(1, {peer.host.add(2).slice()});
  peer.post_receive(2, {peer.host.add(2).slice()});
  ASSERT_EQ(peer.host.receives.size(), 2U);
  EXPECT_EQ(peer.host.receives[1].status, Status::local_length);
  peer.expect_terminate(terminate(code::untagged_too_long, send(2, text("too long"))));
}

// RFC 5041 §7. The message at fault is the one that has waited longest, not the one that exceeds
// the hold.
TEST(Hold, WhenItIsFullTheOldestIsRefused) {
  ScriptedPeer peer(holding(300));
  peer.send(send(1, Content(100)));
  peer.send(send(2, {}));
  peer.expect_nothing();
  peer.send(send(3, Content(100)));
  peer.expect_terminate(terminate(code::untagged_no_buffer, send(1, Content(100))));
}

TEST(Hold, EmptyMessagesFillItToo) {
  ScriptedPeer peer(holding(640));
  for (std::uint32_t msn = 1; msn <= 10; ++msn) peer.send(send(msn, {}));
  peer.expect_nothing();
  peer.send(send(11, {}));
  peer.expect_terminate(terminate(code::untagged_no_buffer, send(1, {})));
}

TEST(Hold, IsEmptyAgainWhenAllIsPlaced) {
  ScriptedPeer peer(holding(640));
  for (std::uint32_t msn = 1; msn <= 100; ++msn) {
    peer.send(send(msn, Content(500)));
    peer.post_receive(msn, {peer.host.add(500).slice()});
  }
  EXPECT_EQ(peer.host.receives.size(), 100U);
  EXPECT_FALSE(peer.connection.ended());
}

// --- The clock -----------------------------------------------------------------------------------

TEST(Hold, TheWaitIsTheTimerTimesTheRetries) {
  ScriptedPeer peer(holding(1000, 10, 3));
  EXPECT_EQ(peer.connection.deadline_ns(), iwarp::Connection::never_ns);
  peer.now_ns = 100;
  peer.send(send(1, text("a")));
  peer.now_ns = 105;
  peer.send(send(2, text("b")));
  EXPECT_EQ(peer.connection.deadline_ns(), 130U);
  peer.connection.on_time(129);
  peer.expect_nothing();
  peer.connection.on_time(130);
  peer.expect_terminate(terminate(code::untagged_no_buffer, send(1, text("a"))));
}

TEST(Hold, EachMessageHasTheWholeWait) {
  ScriptedPeer peer(holding(1000, 10, 3));
  peer.now_ns = 100;
  peer.send(send(1, {}));
  peer.send(send(2, {}));
  peer.now_ns = 129;
  peer.post_receive(1);
  EXPECT_EQ(peer.connection.deadline_ns(), 159U);
  peer.now_ns = 158;
  peer.post_receive(2);
  EXPECT_EQ(peer.connection.deadline_ns(), iwarp::Connection::never_ns);
  peer.connection.on_time(1000);
  EXPECT_FALSE(peer.connection.ended());
}

TEST(Hold, SevenRetriesWaitForEver) {
  ScriptedPeer peer(holding(1000, 10, 7));
  peer.send(send(1, {}));
  EXPECT_EQ(peer.connection.deadline_ns(), iwarp::Connection::never_ns);
}

TEST(Hold, NoRetriesWaitNotAtAll) {
  ScriptedPeer peer(holding(1000, 10, 0));
  peer.now_ns = 55;
  peer.send(send(1, {}));
  peer.expect_terminate(terminate(code::untagged_no_buffer, send(1, {})));
}

TEST(Hold, TheTimerMayBeChangedMeanwhile) {
  ScriptedPeer peer(holding(1000, 10, 3));
  peer.now_ns = 100;
  peer.send(send(1, {}));
  peer.connection.set_rnr_timer(1000);
  EXPECT_EQ(peer.connection.deadline_ns(), 3100U);
}

// The peer's retries may become known only while one of its messages waits.
TEST(Hold, RetriesThatAreAnnouncedMeanwhileSetTheDeadline) {
  auto options = holding(1000, 10, 7);
  options.control_stag = 0xFF000001;
  ScriptedPeer peer(options);
  peer.now_ns = 100;
  peer.send(send(1, text("a")));
  EXPECT_EQ(peer.connection.deadline_ns(), iwarp::Connection::never_ns);
  peer.now_ns = 110;
  Content retries(8);
  store_be(retries.data(), std::uint64_t{2});
  const std::uint64_t offset = wire::control_word_offset(wire::ControlWord::rnr_retry);
  peer.send(write(options.control_stag, offset, retries));
  EXPECT_EQ(peer.connection.deadline_ns(), 120U);
  peer.connection.on_time(120);
  peer.expect_terminate(terminate(code::untagged_no_buffer, send(1, text("a"))));
}

// A message that has its receive but is not complete waits for its sender, not for a receive.
TEST(Hold, TheClockStopsWithTheReceive) {
  ScriptedPeer peer(holding(1000, 10, 1));
  peer.now_ns = 100;
  peer.send(send(1, Content(100), {.last = false}));
  EXPECT_EQ(peer.connection.deadline_ns(), 110U);
  peer.now_ns = 105;
  peer.post_receive(1, {peer.host.add(200).slice()});
  EXPECT_EQ(peer.connection.deadline_ns(), iwarp::Connection::never_ns);
  peer.connection.on_time(1000);
  EXPECT_FALSE(peer.connection.ended());
}

// --- Faults after it -----------------------------------------------------------------------------

// The faults of requests are reported to the peer in the order of its requests.
TEST(Hold, AFaultBehindItWaitsForItsTurn) {
  ScriptedPeer peer(holding(1000));
  Region& target = peer.host.add(10);
  const auto wrong = write(target.rkey(), target.address(8), Content(3));
  peer.send(send(1, text("a")));
  peer.send(wrong);
  peer.send(write(target.rkey(), target.address(), text("later")));
  peer.send(send(2, text("later")));
  peer.send(empty_read(1));
  peer.expect_nothing();
  EXPECT_EQ(target.copy(), Content(10)) << "what follows a fault is not carried out";
  peer.post_receive(1, {peer.host.add(10).slice()});
  EXPECT_EQ(peer.host.receives.at(0).status, Status::success);
  peer.expect_terminate(terminate(code::tagged_bounds, wrong));
  EXPECT_EQ(peer.host.receives.size(), 1U);
}

TEST(Hold, AnEarlierWaitThatEndsComesFirst) {
  ScriptedPeer peer(holding(1000, 10, 1));
  peer.send(send(1, text("a")));
  peer.send(write(5, 0, Content(5000)));
  peer.expect_nothing();
  peer.connection.on_time(10);
  peer.expect_terminate(terminate(code::untagged_no_buffer, send(1, text("a"))));
}

TEST(Hold, ResponsesBehindAWaitingFaultAreTaken) {
  ScriptedPeer peer(holding(1000));
  Region& sink = peer.host.add(4);
  peer.send(empty_read(1));
  peer.expect(proof);
  peer.post({.wr_id = 1, .operation = Operation::read, .rkey = 5}, {sink.slice()});
  (void)peer.next();
  peer.send(send(1, text("a")));
  peer.send(write(5, 0, Content(20'000)));
  peer.send(write(5, 20'000, Content(60'000)));
  peer.send(read_response(sink.lkey(), sink.address(), text("data")));
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
}

// More reads than IRD are a fault after a held Send, too.
TEST(Hold, TheIrdBindsBehindItToo) {
  auto options = holding(1000);
  options.ird = 2;
  ScriptedPeer peer(options);
  peer.send(send(1, text("a")));
  for (std::uint32_t msn = 1; msn <= 3; ++msn) peer.send(empty_read(msn));
  peer.expect_nothing();
  peer.post_receive(1, {peer.host.add(10).slice()});
  peer.expect(proof);
  peer.expect(proof);
  peer.expect_terminate(terminate(code::untagged_no_buffer, empty_read(3)));
}

// --- Both sides ----------------------------------------------------------------------------------

TEST(Hold, ASendIsCompleteWhenItIsPlacedAndNotBefore) {
  Pair pair(patient_pair(1000));
  Region& from = pair.a.host.add(pattern(100));
  Region& to = pair.b.host.add(100);
  pair.a.post({.wr_id = 1}, {from.slice()});
  pair.drive();
  EXPECT_TRUE(pair.a.host.sends.empty());
  pair.b.post_receive(2, {to.slice()});
  EXPECT_TRUE(pair.a.host.sends.empty());
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(to.copy(), from.copy());
}

// TCP has acknowledged its bytes, but that is not enough.
TEST(Hold, ASendThatIsStillHeldAtTheEndHasFailed) {
  Pair pair(patient_pair(1000));
  Region& from = pair.a.host.add(pattern(100));
  pair.b.host.post_receive(1, {pair.b.host.add(100).slice()});
  for (std::uint64_t i = 0; i < 3; ++i) pair.a.post({.wr_id = i}, {from.slice()});
  EXPECT_TRUE(pair.step());
  pair.b.connection().close();
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(),
            (std::vector{Status::success, Status::retry_exceeded, Status::flushed}));
}

// One probe is outstanding at a time, and it was sent after all three.
TEST(Hold, ASendDoesNotWaitForTheReceiveOfTheNext) {
  Pair pair(patient_pair(1000));
  Region& from = pair.a.host.add(pattern(100));
  Region& to = pair.b.host.add(100);
  for (std::uint64_t i = 0; i < 3; ++i) pair.a.post({.wr_id = i}, {from.slice()});
  for (std::size_t i = 0; i < 3; ++i) {
    pair.drive();
    EXPECT_EQ(pair.a.host.sends.size(), i);
    pair.b.post_receive(i, {to.slice()});
  }
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector(3, Status::success));
}

TEST(Hold, TheSenderLearnsWhichOfItsSendsFoundNoReceive) {
  Pair pair(patient_pair(1000, 1'000'000, 2));
  Region& from = pair.a.host.add(pattern(10));
  pair.b.host.post_receive(1, {pair.b.host.add(10).slice()});
  for (std::uint64_t i = 0; i < 4; ++i) pair.a.post({.wr_id = i}, {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.now_ns(), 2'000'000U);
  EXPECT_EQ(pair.a.send_statuses(), (std::vector{Status::success, Status::rnr_retry_exceeded,
                                                 Status::flushed, Status::flushed}));
  EXPECT_EQ(pair.b.host.receives.size(), 1U);
}

TEST(Hold, AReceiveInTimeSavesIt) {
  Pair pair(patient_pair(1000, 1'000'000, 2));
  Region& from = pair.a.host.add(pattern(10));
  Region& to = pair.b.host.add(10);
  pair.at(1'999'999, [&] { pair.b.post_receive(1, {to.slice()}); });
  pair.a.post({.wr_id = 1}, {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(to.copy(), from.copy());
}

// The receiver's timer, the sender's number of retries, also when that is known only later.
TEST(Hold, TheSendersRetriesCount) {
  auto options = patient_pair(1000, 1'000'000, 7);
  Pair pair(options);
  pair.a.connection().announce_rnr_retries(1);
  pair.a.post({.wr_id = 1}, {pair.a.host.add(10).slice()});
  pair.drive();
  EXPECT_EQ(pair.now_ns(), 1'000'000U);
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::rnr_retry_exceeded});
}

}  // namespace
}  // namespace weft::test
