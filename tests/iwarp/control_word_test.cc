// Control words between two Weft devices: counts of executed messages, windows and grants.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"
#include "wire/control_word.h"

namespace weft::test {
namespace {

using iwarp::EndReason;
using iwarp::Operation;
using iwarp::Status;
using wire::ControlWord;
namespace code = wire::terminate;

constexpr std::uint32_t own_stag = 0xA000'0001;
constexpr std::uint32_t peers_stag = 0xB000'0002;

// Options of a side that may send at once.
iwarp::Connection::Options weft(std::uint32_t hold_bytes) {
  auto options = patient_pair(hold_bytes).a;
  EXPECT_EQ(options.control_stag, own_stag);
  EXPECT_EQ(options.peer.control_stag, peers_stag);
  return options;
}

iwarp::WorkRequest unsignaled_send(std::uint64_t wr_id) {
  return {.wr_id = wr_id, .signaled = false};
}

const auto proof = empty_response();

// --- The words themselves ------------------------------------------------------------------------

TEST(ControlWord, IsNoAccessToMemory) {
  ScriptedPeer peer(weft(1000));
  Region& decoy = peer.host.add(4096, {}, own_stag, 8);
  peer.send(control(own_stag, ControlWord::executed, 7));
  peer.expect_nothing();
  EXPECT_FALSE(peer.connection.ended());
  EXPECT_EQ(decoy.copy(), Content(4096));
}

TEST(ControlWord, OfALaterVersionIsIgnored) {
  ScriptedPeer peer(weft(1000));
  // Word 258 would be a wrong `waiting` if the number of a word were cut to a byte.
  for (std::uint64_t word = wire::control_words; word < 512; ++word) {
    peer.send(control(own_stag, static_cast<ControlWord>(word), 2));
    peer.expect_nothing();
    ASSERT_FALSE(peer.connection.ended()) << word;
  }
}

class BadControlWords : public testing::TestWithParam<Ulpdu> {};

TEST_P(BadControlWords, EndTheStream) {
  ScriptedPeer peer(weft(1000));
  peer.send(GetParam());
  EXPECT_EQ(peer.connection.end_reason(), EndReason::terminated);
  EXPECT_EQ(peer.connection.terminate().code, code::tagged_bounds);
}

INSTANTIATE_TEST_SUITE_P(All, BadControlWords,
                         testing::Values(write(own_stag, 0, Content(7)),
                                         write(own_stag, 0, Content(9)), write(own_stag, 0, {}),
                                         write(own_stag, 4, Content(8)),
                                         write(own_stag, 4096, Content(8)),
                                         write(own_stag, ~std::uint64_t{7}, Content(8)),
                                         write(own_stag, 0, Content(8), false),
                                         control(own_stag, ControlWord::waiting, 2)));

// Without a hello the STag has no special meaning.
TEST(ControlWord, MeansNothingToAPeerThatIsNotWeft) {
  ScriptedPeer peer(roomy(true));
  peer.send(write(0, 0, {}));  // an empty Write names no memory, whatever its STag
  EXPECT_FALSE(peer.connection.ended());
  peer.send(control(own_stag, ControlWord::executed, 7));
  EXPECT_EQ(peer.connection.terminate().code, code::tagged_invalid_stag);
}

// A Write with immediate reports the length of its Write, even with a control word in between.
TEST(ControlWord, LeavesTheLengthOfAWriteAlone) {
  ScriptedPeer peer(weft(1000));
  Region& target = peer.host.add(12);
  peer.post_receive(1);
  peer.send(write(target.rkey(), target.address(), Content(12)));
  peer.send(control(own_stag, ControlWord::rnr_retry, 3));
  peer.send(immediate(1, 5));
  EXPECT_EQ(peer.host.receives.at(0).length_bytes, 12U);
}

// --- Counts of executed messages -----------------------------------------------------------------

// Every kind of message counts: a ready-to-receive message, probes, both halves of immediates.
TEST(Executed, IsSentInFrontOfTheTerminate) {
  auto options = weft(1000);
  options.initiator = false;
  ScriptedPeer peer(options);
  Region& target = peer.host.add(8);
  for (int i = 0; i < 3; ++i) peer.post_receive(1, {target.slice()});
  peer.send(write(0, 0, {}));
  peer.send(send(1, text("a")));
  peer.send(empty_read(1));
  peer.send(write(target.rkey(), target.address(), text("a"), false));
  peer.send(write(target.rkey(), target.address(1), text("b")));
  peer.send(immediate(2, 1));
  const auto wrong = write(target.rkey(), target.address(8), text("c"));
  peer.send(wrong);
  peer.expect(proof);
  peer.expect(control(peers_stag, ControlWord::executed, 5));
  peer.expect_terminate(terminate(code::tagged_bounds, wrong));
}

// A read is refused when its turn comes, not when it arrives.
TEST(Executed, CountsUpToTheReadAtFault) {
  ScriptedPeer peer(weft(1000));
  Region& target = peer.host.add(8);
  const auto wrong = read_request(1, {.size_bytes = 4, .source_stag = 5});
  const auto all = joined(fpdu(wrong), fpdu(write(target.rkey(), target.address(), text("a"))));
  peer.send_raw(all);
  peer.expect(control(peers_stag, ControlWord::executed, 0));
  peer.expect_terminate(terminate(code::rdma_invalid_stag, wrong, true));
}

// No request is at fault where the stream itself is damaged.
TEST(Executed, IsNotSaidOfAFaultOfTheStream) {
  ScriptedPeer peer(weft(1000));
  auto bytes = fpdu(send(1, text("a")));
  bytes.back() ^= std::byte{1};
  peer.send_raw(bytes);
  peer.expect_terminate(terminate(code::mpa_crc));
}

// Two Writes to one place, with the right to it withdrawn between them: the header that the
// Terminate quotes fits both.
TEST(Executed, TellsEqualWritesApart) {
  Pair pair(patient_pair(1000));
  Region& from = pair.a.host.add(pattern(8));
  Region& to = pair.b.host.add(8);
  pair.a_to_b.add(chunk(fpdu(write(0, 0, Content(8))).size()));
  for (std::uint64_t i = 0; i < 2; ++i) {
    pair.a.post({.wr_id = i,
                 .operation = Operation::write,
                 .remote_address = to.address(),
                 .rkey = to.rkey()},
                {from.slice()});
  }
  EXPECT_TRUE(pair.step());
  EXPECT_EQ(to.copy(), from.copy());
  to.rights.remote_write = false;
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), (std::vector{Status::success, Status::remote_access}));
}

TEST(Executed, FindsTheRequestWhateverTheHeaderSays) {
  ScriptedPeer peer(weft(100'000));
  Region& memory = peer.host.add(8);
  const iwarp::WorkRequest same{.operation = Operation::write, .remote_address = 8, .rkey = 5};
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto request = same;
    request.wr_id = i;
    peer.post(request, {memory.slice()});
  }
  for (int i = 0; i < 3; ++i) peer.expect(write(5, 8, Content(8)));
  peer.expect(empty_read(1));
  peer.send(control(own_stag, ControlWord::executed, 1));
  peer.send(terminate(code::tagged_invalid_stag, write(5, 8, Content(8))));
  EXPECT_EQ(peer.statuses(),
            (std::vector{Status::success, Status::remote_access, Status::flushed}));
}

TEST(Executed, BeyondWhatWasSentBlamesNobody) {
  ScriptedPeer peer(weft(100'000));
  Region& memory = peer.host.add(8);
  peer.post({.operation = Operation::write, .rkey = 5}, {memory.slice()});
  (void)peer.next();
  peer.send(control(own_stag, ControlWord::executed, 1'000'000));
  peer.send(terminate(code::tagged_invalid_stag, write(5, 0, Content(8))));
  EXPECT_EQ(peer.statuses(), std::vector{Status::flushed});
}

// --- The window ----------------------------------------------------------------------------------

// Each message costs 64 bytes and its payload.
TEST(Window, NoMoreIsUnderWayThanThePeerCanHold) {
  ScriptedPeer peer(weft(300));
  Region& memory = peer.host.add(64);
  for (std::uint64_t i = 0; i < 5; ++i) peer.post(unsignaled_send(i), {memory.slice()});
  peer.expect(send(1, Content(64)));
  peer.expect(send(2, Content(64)));
  peer.expect(empty_read(1));  // unasked, to learn what the peer has taken
  peer.expect_nothing();
  peer.send(proof);
  peer.expect(send(3, Content(64)));
  peer.expect(send(4, Content(64)));
  peer.expect(empty_read(2));
  peer.expect_nothing();
  peer.send(proof);
  peer.expect(send(5, Content(64)));
  peer.expect_nothing();
}

TEST(Window, ImmediatesOfWritesCountToo) {
  ScriptedPeer peer(weft(128));
  Region& memory = peer.host.add(1000);
  for (std::uint64_t i = 0; i < 3; ++i) {
    peer.post({.wr_id = i, .operation = Operation::write_immediate, .signaled = false, .rkey = 5},
              {memory.slice()});
  }
  for (std::uint32_t msn = 1; msn <= 2; ++msn) {
    peer.expect(write(5, 0, Content(1000)));
    peer.expect(immediate(msn, 0));
  }
  peer.expect(empty_read(1));
  peer.expect_nothing();
}

TEST(Window, WritesAndReadsPassWhereNoSendStandsBeforeThem) {
  ScriptedPeer peer(weft(64));
  Region& memory = peer.host.add(64);
  peer.post({.wr_id = 1, .operation = Operation::write, .signaled = false, .rkey = 5},
            {memory.slice()});
  peer.expect(write(5, 0, Content(64)));
  peer.post(unsignaled_send(2));
  peer.expect(send(1, {}));
  peer.post({.wr_id = 3, .operation = Operation::write, .signaled = false, .rkey = 5},
            {memory.slice()});
  peer.expect(write(5, 0, Content(64)));
  peer.expect_nothing();
}

// Also where completions do not mean "placed".
TEST(Window, IsProvenWithoutAcknowledgedCompletions) {
  auto options = weft(100);
  options.acknowledge = false;
  ScriptedPeer peer(options);
  peer.post({.wr_id = 1});
  peer.post({.wr_id = 2});
  peer.expect(send(1, {}));
  peer.expect(empty_read(1));
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  peer.send(proof);
  peer.expect(send(2, {}));
  peer.expect_nothing();
}

// --- Grants --------------------------------------------------------------------------------------

TEST(Grant, ALargerSendWaitsForOne) {
  ScriptedPeer peer(weft(300));
  Region& memory = peer.host.add(1000);
  peer.post(unsignaled_send(1), {memory.slice()});
  peer.post(unsignaled_send(2), {memory.slice(0, 100)});
  peer.expect(control(peers_stag, ControlWord::waiting, 1));
  peer.expect_nothing();
  peer.send(control(own_stag, ControlWord::granted, 2));  // not that one
  peer.expect_nothing();
  peer.send(control(own_stag, ControlWord::granted, 1));
  peer.expect(send(1, Content(1000)));
  peer.expect(send(2, Content(100)));
  peer.expect_nothing();
}

TEST(Grant, AnUnaskedOneIsWorthNothing) {
  ScriptedPeer peer(weft(300));
  Region& memory = peer.host.add(1000);
  peer.send(control(own_stag, ControlWord::granted, 1));
  peer.post(unsignaled_send(1), {memory.slice()});
  peer.expect(control(peers_stag, ControlWord::waiting, 1));
  peer.expect_nothing();
}

TEST(Grant, IsGivenWhenThereIsAReceive) {
  ScriptedPeer peer(weft(300));
  Region& to = peer.host.add(1000);
  peer.send(send(1, text("held")));
  peer.send(control(own_stag, ControlWord::waiting, 2));
  peer.expect_nothing();
  peer.post_receive(1, {to.slice()});
  peer.expect_nothing();
  peer.post_receive(2, {to.slice()});
  peer.expect(control(peers_stag, ControlWord::granted, 2));
  peer.expect_nothing();
  EXPECT_TRUE(peer.host.posted_receives.empty());
  peer.send(send(2, Content(1000)));
  EXPECT_EQ(peer.received_ids(), (std::vector<std::uint64_t>{1, 2}));
}

// The receive that was taken for the grant completes with the end of the stream.
TEST(Grant, ThatIsNotUsedIsFlushed) {
  ScriptedPeer peer(weft(300));
  peer.post_receive(9);
  peer.send(control(own_stag, ControlWord::waiting, 1));
  peer.connection.close();
  ASSERT_EQ(peer.host.receives.size(), 1U);
  EXPECT_EQ(peer.host.receives[0].wr_id, 9U);
  EXPECT_EQ(peer.host.receives[0].status, Status::flushed);
}

TEST(Grant, LargeSendsArriveThroughASmallHold) {
  Pair pair(patient_pair(1000));
  Region& from = pair.a.host.add(pattern(300'000));
  Region& to = pair.b.host.add(900'000);
  for (std::uint64_t i = 0; i < 3; ++i) pair.a.post({.wr_id = i}, {from.slice()});
  pair.drive();
  EXPECT_TRUE(pair.b.host.receives.empty());
  for (std::uint64_t i = 0; i < 3; ++i) {
    pair.b.post_receive(i, {to.slice(i * 300'000, 300'000)});
    pair.drive();
    EXPECT_EQ(pair.a.host.sends.size(), i + 1);
  }
  EXPECT_EQ(pair.a.send_statuses(), std::vector(3, Status::success));
  EXPECT_EQ(to.copy(600'000, 300'000), from.copy());
}

TEST(Grant, TheWaitForOneEnds) {
  Pair pair(patient_pair(1000, 1'000'000, 3));
  Region& from = pair.a.host.add(pattern(2000));
  pair.a.post({.wr_id = 1, .operation = Operation::write, .rkey = 0});
  pair.a.post({.wr_id = 2}, {from.slice()});
  pair.a.post({.wr_id = 3}, {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.now_ns(), 3'000'000U);
  EXPECT_EQ(pair.a.send_statuses(),
            (std::vector{Status::success, Status::rnr_retry_exceeded, Status::flushed}));
}

// Without reads there are no proofs, so each Send needs a grant.
TEST(Grant, StandsInForProofs) {
  auto options = patient_pair(1000);
  for (auto* side : {&options.a, &options.b}) side->wire_ord = side->ord = side->ird = 0;
  Pair pair(options);
  Region& from = pair.a.host.add(pattern(10));
  for (std::uint64_t i = 0; i < 50; ++i) pair.a.post({.wr_id = i}, {from.slice()});
  pair.drive();
  EXPECT_TRUE(pair.a.host.sends.empty());
  Region& to = pair.b.host.add(10);
  for (std::uint64_t i = 0; i < 50; ++i) pair.b.post_receive(i, {to.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector(50, Status::success));
}

}  // namespace
}  // namespace weft::test
