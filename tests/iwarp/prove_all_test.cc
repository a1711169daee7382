// Proofs without being asked: a Weft peer proves everything by the control word `placed` where the
// requests of a program are proven one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "iwarp/proofs.h"
#include "support/pair.h"
#include "support/scripted_peer.h"
#include "wire/control_word.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Proofs;
using iwarp::Status;
using wire::ControlWord;

constexpr std::uint32_t own_stag = 0xA000'0001;
constexpr std::uint32_t peers_stag = 0xB000'0002;
constexpr std::uint32_t agreement = Proofs::small_probes;

const auto prove_all = control(peers_stag, ControlWord::prove_all, 1);
const auto ask_again = control(peers_stag, ControlWord::prove_all, 0);

iwarp::Connection::Options weft() {
  return patient_pair(100'000).a;
}

// The side under test is the requester.
struct AskingPeer : ScriptedPeer {
  AskingPeer() : ScriptedPeer(weft()) {}

  void post_send(std::uint64_t wr_id) {
    post({.wr_id = wr_id, .operation = Operation::send}, {memory.slice()});
    expect(test::send(++msn, Content(4)));
  }
  // Sends that are proven one by one, after which the peer is asked to prove all.
  void agree() {
    for (std::uint32_t i = 1; i <= agreement; ++i) {
      post_send(i);
      expect(empty_read(i));
      if (i == agreement) expect(prove_all);
      expect_nothing();
      send(empty_response());
    }
    EXPECT_EQ(statuses().size(), agreement);
  }
  void confirm() { send(control(own_stag, ControlWord::proves_all, 1)); }
  // Each Send and each probe is one of our messages.
  void place(std::uint64_t sends) {
    send(control(own_stag, ControlWord::placed, sends + agreement));
  }

  Region& memory = host.add(4);
  std::uint32_t msn = 0;
};

// The side under test is the responder.
struct ProvingPeer : ScriptedPeer {
  ProvingPeer() : ScriptedPeer(weft()) {
    send(control(own_stag, ControlWord::prove_all, 1));
    expect(control(peers_stag, ControlWord::proves_all, 1));
    expect_nothing();
  }
  void expect_placed(std::uint64_t messages) {
    expect(control(peers_stag, ControlWord::placed, messages));
    expect_nothing();
  }

  Region& memory = host.add(4);
};

// --- The side that asks --------------------------------------------------------------------------

TEST(ProveAll, IsAskedForOnceProbesAreSmall) {
  AskingPeer peer;
  peer.agree();
  peer.confirm();
  for (std::uint32_t i = 1; i <= 3; ++i) {
    peer.post_send(agreement + i);
    peer.expect_nothing();
    EXPECT_EQ(peer.statuses().size(), agreement + i - 1);
    peer.place(agreement + i);
    EXPECT_EQ(peer.statuses(), std::vector(agreement + i, Status::success));
  }
  EXPECT_EQ(peer.connection.acknowledgement_reads(), agreement);
}

// In a segment of its own it could reach a peer that has closed, which is a reset (RFC 9293
// §3.6.1).
TEST(ProveAll, IsAskedForInTheSegmentOfItsProbe) {
  AskingPeer peer;
  for (std::uint32_t i = 1; i < agreement; ++i) {
    peer.post_send(i);
    peer.expect(empty_read(i));
    peer.send(empty_response());
  }
  peer.post({.wr_id = agreement, .operation = Operation::send}, {peer.memory.slice()});
  const auto together = joined(fpdu(send(agreement, Content(4))), fpdu(empty_read(agreement)));
  std::size_t planned_bytes = 0;
  for (const iovec& piece : peer.connection.plan_send()) planned_bytes += piece.iov_len;
  EXPECT_EQ(planned_bytes, together.size() + fpdu(prove_all).size());
}

// A device of an earlier version does not know the word.
TEST(ProveAll, ProbesGoOnWithoutAConfirmation) {
  AskingPeer peer;
  peer.agree();
  for (std::uint32_t i = 1; i <= 2 * agreement; ++i) {
    peer.post_send(agreement + i);
    peer.expect(empty_read(agreement + i));
    peer.expect_nothing();
    peer.send(empty_response());
  }
  EXPECT_EQ(peer.statuses().size(), 3 * agreement);
}

TEST(ProveAll, IsNotAskedOfOtherPeers) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  for (std::uint32_t i = 1; i <= 2 * agreement; ++i) {
    peer.post({.wr_id = i, .operation = Operation::send}, {memory.slice()});
    peer.expect(send(i, Content(4)));
    peer.expect(empty_read(i));
    peer.expect_nothing();
    peer.send(empty_response());
  }
}

TEST(ProveAll, IsNotAskedForWhereOneProbeProvesMany) {
  ScriptedPeer peer(weft());
  Region& memory = peer.host.add(4);
  constexpr std::uint32_t batch = Proofs::few_requests + 1;
  for (std::uint32_t i = 0; i < 2 * agreement; ++i) {
    for (std::uint32_t j = 1; j <= batch; ++j) {
      peer.post({.wr_id = j, .operation = Operation::send}, {memory.slice()});
    }
    for (std::uint32_t j = 1; j <= batch; ++j) peer.expect(send(i * batch + j, Content(4)));
    peer.expect(empty_read(i + 1));
    peer.expect_nothing();
    peer.send(empty_response());
  }
}

TEST(ProveAll, ProofsOfUnsignaledRequestsAreNotWantedButTaken) {
  AskingPeer peer;
  peer.agree();
  peer.confirm();
  peer.post({.wr_id = 1, .operation = Operation::send, .signaled = false}, {peer.memory.slice()});
  peer.expect(send(++peer.msn, Content(4)));
  peer.expect_nothing();
  peer.place(agreement + 1);
  EXPECT_EQ(peer.statuses().size(), agreement);
  EXPECT_TRUE(peer.connection.requests_done());
}

TEST(ProveAll, EndsWhereManyWait) {
  AskingPeer peer;
  peer.agree();
  peer.confirm();
  for (std::uint32_t i = 0; i <= Proofs::most_waiting; ++i) {
    peer.post({.wr_id = i, .operation = Operation::send}, {peer.memory.slice()});
  }
  for (std::uint32_t i = 0; i <= Proofs::most_waiting; ++i) {
    peer.expect(send(++peer.msn, Content(4)));
  }
  peer.expect(ask_again);
  peer.expect(empty_read(agreement + 1));
  peer.expect_nothing();
  peer.send(empty_response());
  EXPECT_EQ(peer.statuses(), std::vector(agreement + Proofs::most_waiting + 1, Status::success));
}

TEST(ProveAll, EndsWithALargeMessage) {
  AskingPeer peer;
  Region& large = peer.host.add(Proofs::few_bytes + 1);
  peer.agree();
  peer.confirm();
  peer.post({.wr_id = 1, .operation = Operation::write, .rkey = 5}, {large.slice()});
  while (true) {
    const Ulpdu next = peer.next();
    ASSERT_FALSE(next.bytes.empty());
    if (next == ask_again) break;
  }
  peer.expect(empty_read(agreement + 1));
  peer.expect_nothing();
}

// The confirmation crosses a burst.
TEST(ProveAll, ABurstBeforeTheConfirmationIsProvenByItsProbe) {
  AskingPeer peer;
  peer.agree();
  for (std::uint32_t i = 0; i < 2 * Proofs::most_waiting; ++i) {
    peer.post({.wr_id = i, .operation = Operation::send}, {peer.memory.slice()});
  }
  for (std::uint32_t i = 0; i < 2 * Proofs::most_waiting; ++i) {
    peer.expect(send(++peer.msn, Content(4)));
  }
  peer.expect(empty_read(agreement + 1));
  peer.confirm();
  peer.expect_nothing();
  peer.send(empty_response());
  EXPECT_EQ(peer.statuses(), std::vector(agreement + 2 * Proofs::most_waiting, Status::success));
}

// --- The side that proves ------------------------------------------------------------------------

TEST(ProvesAll, MessagesOfEveryKind) {
  ProvingPeer peer;
  peer.post_receive(1, {peer.memory.slice()});
  peer.send(send(1, Content(4)));
  peer.expect_placed(1);
  peer.send(write(peer.memory.rkey(), peer.memory.address(), Content(4)));
  peer.expect_placed(2);
  peer.send(write(peer.memory.rkey(), peer.memory.address(), Content(2), false));
  peer.expect_nothing();
  peer.send(write(peer.memory.rkey(), peer.memory.address(2), Content(2)));
  peer.expect_placed(3);
}

// The word leaves in front of what this side sends, so that the peer knows of its message first.
TEST(ProvesAll, WithTheNextMessage) {
  ProvingPeer peer;
  peer.post_receive(1, {peer.memory.slice()});
  peer.send(send(1, Content(4)));
  EXPECT_TRUE(peer.connection.only_proofs_due());
  peer.post({.wr_id = 1, .operation = Operation::send}, {peer.memory.slice()});
  peer.expect(control(peers_stag, ControlWord::placed, 1));
  peer.expect(send(1, Content(4)));
  EXPECT_FALSE(peer.connection.only_proofs_due());
}

TEST(ProvesAll, BeforeItCloses) {
  ProvingPeer peer;
  peer.post_receive(1, {peer.memory.slice()});
  peer.send(send(1, Content(4)));
  peer.connection.close();
  peer.expect(control(peers_stag, ControlWord::placed, 1));
  peer.expect(control(peers_stag, ControlWord::executed, 1));
  peer.expect_nothing();
}

// RFC 5040 §5.5 in other words: what is proven was carried out.
TEST(ProvesAll, NoMessageThatWaitsForAReceive) {
  ProvingPeer peer;
  peer.post_receive(1, {peer.memory.slice()});
  peer.send_raw(joined(fpdu(send(1, Content(4))), fpdu(send(2, Content(4)))));
  peer.expect_placed(1);
  peer.send(write(peer.memory.rkey(), peer.memory.address(), Content(4)));
  peer.expect_nothing();
  peer.post_receive(2, {peer.memory.slice()});
  peer.expect_placed(3);
}

TEST(ProvesAll, BeforeATerminate) {
  ProvingPeer peer;
  const auto wrong = write(5, 0, Content(4));
  peer.send_raw(
      joined(fpdu(write(peer.memory.rkey(), peer.memory.address(), Content(4))), fpdu(wrong)));
  peer.expect(control(peers_stag, ControlWord::placed, 1));
  peer.expect(control(peers_stag, ControlWord::executed, 1));
  peer.expect_terminate(terminate(wire::terminate::tagged_invalid_stag, wrong));
}

TEST(ProvesAll, BeforeATerminateForTheStream) {
  ProvingPeer peer;
  auto damaged = fpdu(write(5, 0, Content(4)));
  damaged.back() ^= std::byte{1};
  peer.send_raw(
      joined(fpdu(write(peer.memory.rkey(), peer.memory.address(), Content(4))), damaged));
  peer.expect(control(peers_stag, ControlWord::placed, 1));
  peer.expect_terminate(terminate(wire::terminate::mpa_crc));
}

TEST(ProvesAll, UntilItIsAskedAgain) {
  ProvingPeer peer;
  const auto good = write(peer.memory.rkey(), peer.memory.address(), Content(4));
  // What came before the word is proven without a read.
  peer.send_raw(joined(fpdu(good), fpdu(control(own_stag, ControlWord::prove_all, 0))));
  peer.expect_placed(1);
  peer.send(good);
  peer.expect_nothing();
  peer.send(empty_read(1));
  peer.expect(empty_response());
  peer.expect_nothing();
}

// --- Both together -------------------------------------------------------------------------------

TEST(ProveAll, PingPongNeedsNoProbes) {
  Pair pair(patient_pair(100'000));
  Region& a = pair.a.host.add(4);
  Region& b = pair.b.host.add(4);
  constexpr std::uint64_t rounds = 100;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    pair.b.post_receive(i, {b.slice()});
    pair.a.post({.wr_id = i, .operation = Operation::send}, {a.slice()});
    pair.drive();
    pair.a.post_receive(i, {a.slice()});
    pair.b.post({.wr_id = i, .operation = Operation::send}, {b.slice()});
    pair.drive();
  }
  EXPECT_EQ(pair.a.send_statuses(), std::vector(rounds, Status::success));
  EXPECT_EQ(pair.b.send_statuses(), std::vector(rounds, Status::success));
  EXPECT_EQ(pair.a.connection().acknowledgement_reads(), agreement);
  EXPECT_EQ(pair.b.connection().acknowledgement_reads(), agreement);
}

// From one pattern to the other and back, both ways at once.
TEST(ProveAll, FollowsThePattern) {
  Pair pair(patient_pair(100'000));
  Region& a = pair.a.host.add(4);
  Region& b = pair.b.host.add(4);
  std::uint64_t posted = 0;
  for (int turn = 0; turn < 5; ++turn) {
    for (const std::uint64_t batch : {1U, 40U}) {
      for (std::uint32_t i = 0; i < 2 * agreement; ++i) {
        for (std::uint64_t j = 0; j < batch; ++j) {
          iwarp::WorkRequest request{.wr_id = ++posted, .operation = Operation::write};
          request.rkey = b.rkey();
          request.remote_address = b.address();
          pair.a.post(request, {a.slice()});
          request.rkey = a.rkey();
          request.remote_address = a.address();
          pair.b.post(request, {b.slice()});
        }
        pair.drive();
        ASSERT_EQ(pair.a.send_ids().size(), posted);
        ASSERT_EQ(pair.b.send_ids().size(), posted);
      }
    }
  }
  EXPECT_LT(pair.a.connection().acknowledgement_reads(), posted);
}

}  // namespace
}  // namespace weft::test
