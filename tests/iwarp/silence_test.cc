// Peers that lose the first message, and peers that put data where none belongs: what the kernel's
// siw does.
#include <gtest/gtest.h>

#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::RtrRepeat;
using iwarp::Status;

constexpr std::uint64_t begun_ns = 5'000'000'000;

iwarp::Connection::Options initiator(iwarp::RtrKind kind) {
  auto options = roomy(true);
  options.rtr = kind;
  return options;
}

Ulpdu ready_to_receive() {
  return write(iwarp::no_memory_stag, 0, {});
}

// The time at which the connection asks to be called, after which it is called.
void pass_time(ScriptedPeer& peer, std::uint64_t after_ns) {
  const std::uint64_t due_ns = begun_ns + after_ns;
  EXPECT_EQ(peer.connection.deadline_ns(), due_ns);
  peer.connection.on_time(due_ns - 1);
  peer.expect_nothing();
  peer.connection.on_time(due_ns);
}

TEST(ReadyToReceive, IsRepeatedTwiceToASilentPeer) {
  ScriptedPeer peer(initiator(iwarp::RtrKind::write));
  peer.connection.on_time(begun_ns);
  peer.expect(ready_to_receive());
  peer.expect_nothing();
  for (const std::uint64_t after_ns : RtrRepeat::after_ns) {
    pass_time(peer, after_ns);
    peer.expect(ready_to_receive());
    peer.expect_nothing();
  }
  EXPECT_EQ(peer.connection.deadline_ns(), iwarp::Connection::never_ns);
  peer.connection.on_time(begun_ns * 2);
  peer.expect_nothing();
}

// A Write is repeated whatever the first message was: a Send would take a receive.
TEST(ReadyToReceive, OfAnyKindIsRepeatedAsAWrite) {
  for (const auto kind : {iwarp::RtrKind::read, iwarp::RtrKind::send}) {
    ScriptedPeer peer(initiator(kind));
    peer.connection.on_time(begun_ns);
    (void)peer.next();
    peer.expect_nothing();
    pass_time(peer, RtrRepeat::after_ns[0]);
    peer.expect(ready_to_receive());
    peer.expect_nothing();
  }
}

TEST(ReadyToReceive, IsNotRepeatedOnceThePeerHasSent) {
  ScriptedPeer peer(initiator(iwarp::RtrKind::write));
  peer.host.add(4);
  peer.connection.on_time(begun_ns);
  peer.expect(ready_to_receive());
  peer.send(empty_read(1));
  peer.expect(read_response(iwarp::no_memory_stag, 0, {}));
  EXPECT_EQ(peer.connection.deadline_ns(), iwarp::Connection::never_ns);
  peer.connection.on_time(begun_ns * 2);
  peer.expect_nothing();
}

// A late first call of a busy driver sends one message for all that are due.
TEST(ReadyToReceive, IsRepeatedOnceWhereTimeHasRunOn) {
  ScriptedPeer peer(initiator(iwarp::RtrKind::write));
  peer.connection.on_time(begun_ns);
  peer.connection.on_time(begun_ns * 2);
  peer.expect(ready_to_receive());
  peer.expect(ready_to_receive());
  peer.expect_nothing();
}

// Such a peer loses nothing. It is known by its hello, or by the marks of the handshake.
TEST(ReadyToReceive, IsNotRepeatedToAWeftPeer) {
  for (const iwarp::PeerFeatures& weft :
       {iwarp::PeerFeatures{.control_stag = 77}, iwarp::PeerFeatures{.send_immediate = true}}) {
    auto options = initiator(iwarp::RtrKind::write);
    options.peer = weft;
    ScriptedPeer peer(options);
    peer.connection.on_time(begun_ns);
    EXPECT_EQ(peer.connection.deadline_ns(), iwarp::Connection::never_ns);
  }
}

// --- Answers with data ---------------------------------------------------------------------------

TEST(ProbeAnswer, WithDataIsAProofAllTheSame) {
  for (const std::size_t bytes : {1U, 16U, 1400U}) {
    ScriptedPeer peer(roomy(true));
    Region& memory = peer.host.add(4);
    peer.post({.wr_id = 1, .operation = Operation::write, .rkey = 5}, {memory.slice()});
    peer.expect(write(5, 0, Content(4)));
    peer.expect(empty_read(1));
    peer.send(read_response(iwarp::no_memory_stag, 0, Content(bytes, std::byte{7})));
    EXPECT_EQ(peer.statuses(), std::vector{Status::success});
    EXPECT_EQ(peer.connection.discarded_answer_bytes(), bytes);
    EXPECT_FALSE(peer.connection.ended());
  }
}

// Nothing of it may reach memory, not even of a region that has the STag that it names.
TEST(ProbeAnswer, WithDataIsWrittenNowhere) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(8);
  peer.post({.wr_id = 1, .operation = Operation::write, .rkey = 5}, {memory.slice()});
  peer.expect(write(5, 0, memory.copy()));
  peer.expect(empty_read(1));
  peer.send(read_response(memory.rkey(), memory.address(), Content(8, std::byte{7})));
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  EXPECT_EQ(memory.copy(), Content(8));
}

TEST(ProbeAnswer, WithDataMayHaveSeveralSegments) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post({.wr_id = 1, .operation = Operation::write, .rkey = 5}, {memory.slice()});
  peer.expect(write(5, 0, memory.copy()));
  peer.expect(empty_read(1));
  peer.send(read_response(0, 0, Content(1000), false));
  EXPECT_TRUE(peer.statuses().empty());
  peer.send(read_response(0, 1000, Content(500), true));
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  EXPECT_EQ(peer.connection.discarded_answer_bytes(), 1500U);
}

// The application's own reads are as strict as ever.
TEST(ProbeAnswer, WithDataIsRefusedForAnEmptyReadOfTheApplication) {
  ScriptedPeer peer(roomy(true));
  peer.post({.wr_id = 1, .operation = Operation::read, .rkey = 5});
  (void)peer.next();
  const auto answer = read_response(0, 0, Content(4));
  peer.send(answer);
  peer.expect_terminate(terminate(wire::terminate::tagged_bounds, answer));
}

}  // namespace
}  // namespace weft::test
