// What may be under way to a peer that holds messages until a receive is posted.
#include "iwarp/peer_window.h"

#include <gtest/gtest.h>

#include "iwarp/hold.h"

namespace weft::iwarp {
namespace {

using Admission = PeerWindow::Admission;

constexpr std::uint32_t stag = 0xA000'0001;
constexpr std::uint32_t cost = Hold::message_cost_bytes;

class HoldWindow : public testing::Test {
 protected:
  // Admits and builds a Send, as the requester does.
  Admission send(std::uint32_t length_bytes, PeerWindow& window) {
    const Admission admission = window.admit(Operation::send, length_bytes, msn);
    if (admission != Admission::open) return admission;
    window.charge(Operation::send, length_bytes);
    ++msn;
    return admission;
  }
  // The bytes that the control words due take on the wire; 0 where none is due.
  std::size_t control_bytes() {
    Transmitter out;
    control.build(out);
    return out.end_position();
  }

  ControlOutbox control{stag};
  std::uint32_t msn = 1;
};

TEST_F(HoldWindow, IsUnlimitedWithoutALimit) {
  const PeerWindow window({}, control);
  EXPECT_FALSE(window.limited());
  EXPECT_FALSE(window.closed());
}

TEST_F(HoldWindow, ClosesWhereTheHoldMayBeFull) {
  PeerWindow window({.limit_bytes = 2 * (cost + 100)}, control);
  EXPECT_EQ(send(100, window), Admission::open);
  EXPECT_EQ(send(100, window), Admission::open);
  EXPECT_EQ(send(0, window), Admission::needs_proof);
  EXPECT_TRUE(window.closed());
  EXPECT_FALSE(window.awaits_grant());
  EXPECT_FALSE(control.due());
}

TEST_F(HoldWindow, OpensByAProof) {
  PeerWindow window({.limit_bytes = cost + 100}, control);
  EXPECT_EQ(send(100, window), Admission::open);
  const std::uint64_t first = window.sent_cost();
  EXPECT_EQ(send(1, window), Admission::needs_proof);
  window.prove(first);
  EXPECT_EQ(send(1, window), Admission::open);
  EXPECT_FALSE(window.closed());
}

// A response to an earlier request must not take back a later proof.
TEST_F(HoldWindow, ProofsMayComeInAnyOrder) {
  PeerWindow window({.limit_bytes = 2 * cost}, control);
  EXPECT_EQ(send(0, window), Admission::open);
  const std::uint64_t first = window.sent_cost();
  EXPECT_EQ(send(0, window), Admission::open);
  window.prove(window.sent_cost());
  window.prove(first);
  EXPECT_EQ(send(cost, window), Admission::open);
}

TEST_F(HoldWindow, NeedsNoRoomForWhatTakesNoReceive) {
  PeerWindow window({.limit_bytes = cost}, control);
  EXPECT_EQ(send(0, window), Admission::open);
  for (const auto operation : {Operation::write, Operation::read, Operation::fetch_add}) {
    EXPECT_EQ(window.admit(operation, 1'000'000, msn), Admission::open);
    window.charge(operation, 1'000'000);
  }
  EXPECT_EQ(window.sent_cost(), cost);
}

// The payload of a Write is placed at once.
TEST_F(HoldWindow, CountsOnlyTheImmediateOfAWrite) {
  PeerWindow window({.limit_bytes = cost}, control);
  EXPECT_EQ(window.admit(Operation::write_immediate, 1'000'000, msn), Admission::open);
  window.charge(Operation::write_immediate, 1'000'000);
  EXPECT_EQ(window.sent_cost(), cost);
}

TEST_F(HoldWindow, AsksOnceForAGrantOfWhatNeverFits) {
  PeerWindow window({.limit_bytes = cost}, control);
  EXPECT_EQ(send(1, window), Admission::needs_grant);
  EXPECT_TRUE(window.closed());
  EXPECT_TRUE(window.awaits_grant());
  EXPECT_NE(control_bytes(), 0U);
  EXPECT_EQ(send(1, window), Admission::needs_grant);
  EXPECT_EQ(control_bytes(), 0U);
}

TEST_F(HoldWindow, TakesTheGrantOfTheRightMessageOnly) {
  PeerWindow window({.limit_bytes = cost}, control);
  window.granted(1);  // was not asked for
  EXPECT_EQ(send(1, window), Admission::needs_grant);
  window.granted(2);
  EXPECT_EQ(send(1, window), Admission::needs_grant);
  window.granted(1);
  EXPECT_FALSE(window.awaits_grant());
  EXPECT_EQ(send(1, window), Admission::open);
}

TEST_F(HoldWindow, AGrantIsGoodForOneMessage) {
  PeerWindow window({.limit_bytes = cost}, control);
  EXPECT_EQ(send(1, window), Admission::needs_grant);
  window.granted(1);
  EXPECT_EQ(send(1, window), Admission::open);
  EXPECT_EQ(send(1, window), Admission::needs_grant);
  EXPECT_EQ(window.sent_cost(), 0U);  // neither took up anything of the hold
}

// The peer grants a message when its hold is empty.
TEST_F(HoldWindow, AGrantProvesWhatWasSentBefore) {
  PeerWindow window({.limit_bytes = cost}, control);
  EXPECT_EQ(send(0, window), Admission::open);
  EXPECT_EQ(send(1, window), Admission::needs_grant);
  window.granted(msn);
  EXPECT_EQ(send(1, window), Admission::open);
  EXPECT_EQ(send(0, window), Admission::open);
}

// A peer that takes no reads can prove nothing.
TEST_F(HoldWindow, WithoutProofsEveryMessageNeedsAGrant) {
  PeerWindow window({.limit_bytes = 100 * cost, .provable = false}, control);
  EXPECT_EQ(send(0, window), Admission::needs_grant);
}

}  // namespace
}  // namespace weft::iwarp
