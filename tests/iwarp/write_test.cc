// RDMA Writes: RFC 5040 §5.1, RFC 5041 §5.2.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/pump.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Status;

class WriteSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(WriteSizes, ArriveWhereTheyShould) {
  const std::size_t size = GetParam();
  Pair pair;
  Region& from = pair.a.host.add(pattern(size));
  Region& to = pair.b.host.add(size + 13, {.local_write = false});
  pair.a.post({.wr_id = 1,
               .operation = Operation::write,
               .remote_address = to.address(5),
               .rkey = to.rkey()},
              {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(to.copy(5, size), from.copy());
  EXPECT_EQ(to.copy(0, 5), Content(5));
  EXPECT_EQ(to.copy(size + 5, 8), Content(8));
  EXPECT_TRUE(pair.b.host.receives.empty());
}

INSTANTIATE_TEST_SUITE_P(Sizes, WriteSizes,
                         testing::Values(0, 1, 7, 1427, 1428, 1429, 4096, 16'384, 65'535, 262'144,
                                         262'145, 5'000'000));

// RFC 5041 §5.2: each segment carries its own address.
TEST(Write, IsCutIntoSegmentsWithTheirOwnOffsets) {
  ScriptedPeer peer(roomy(true));
  Region& from = peer.host.add(pattern(3000));
  const std::uint64_t offset = 0xFFFF'FFFF'FFFF'0000U;
  peer.post({.operation = Operation::write, .remote_address = offset, .rkey = 0x12345678},
            {from.slice(0, 1000), from.slice(1000, 2000)});
  peer.expect(write(0x12345678, offset, from.copy(0, 1428), false));
  peer.expect(write(0x12345678, offset + 1428, from.copy(1428, 1428), false));
  peer.expect(write(0x12345678, offset + 2856, from.copy(2856, 144)));
}

// A program changes its memory at any time, the socket takes any part of what is offered, and
// another thread posts meanwhile: each FPDU has the CRC of what was sent.
TEST(Write, SourceMayChangeWhileTheSocketTakesParts) {
  constexpr std::size_t bytes = 60'000;
  for (const std::uint64_t seed : seeds(20)) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    Pair pair;
    Region& from = pair.a.host.add(pattern(bytes));
    Region& to = pair.b.host.add(bytes);
    for (int posted = 0; posted < 40 || !peek(pair.a.connection()).empty();) {
      if (posted < 40 && random.chance(2)) {
        ++posted;
        const std::size_t length = random.chance(2) ? random.below(300) : random.below(bytes);
        pair.a.post(
            {.operation = Operation::write, .remote_address = to.address(), .rkey = to.rkey()},
            {from.slice(random.below(bytes - length), length)});
      }
      (void)pair.a.connection().plan_send();
      from.put(0, pattern(random.below(bytes), random.next()));
      const auto taken = peek(pair.a.connection(), 1 + random.below(9000));
      feed(pair.b.connection(), taken);
      pair.a.connection().sent(taken.size());
      if (random.chance(3)) feed(pair.a.connection(), drain(pair.b.connection()));
      ASSERT_FALSE(pair.b.connection().ended());
    }
  }
}

// RFC 5040 §5.1: an empty Write names no memory, so its STag is not checked.
TEST(Write, EmptyOneIsNotChecked) {
  ScriptedPeer peer(roomy(false));
  peer.send(write(0xDEAD, 12345, {}));
  peer.expect_nothing();
  EXPECT_FALSE(peer.connection.ended());
  EXPECT_EQ(peer.host.ready_calls, 1);
}

// The data source may cut a message as it likes.
TEST(Write, SegmentsOfAnySizeAndPlaceAreTaken) {
  ScriptedPeer peer(roomy(false));
  Region& to = peer.host.add(100'000);
  const auto content = pattern(60'000);
  const auto piece = [&](std::size_t at, std::size_t length) {
    return Bytes(content).subspan(at, length);
  };
  peer.send(write(to.rkey(), to.address(40'000), piece(0, 60'000), false));
  peer.send(write(to.rkey(), to.address(0), piece(0, 17'000), false));
  peer.send(write(to.rkey(), to.address(17'000), piece(17'000, 1)));
  peer.send(write(to.rkey(), to.address(17'001), piece(17'001, 20'000)));
  peer.expect_nothing();
  EXPECT_FALSE(peer.connection.ended());
  EXPECT_EQ(to.copy(0, 37'001), Content(content.begin(), content.begin() + 37'001));
  EXPECT_EQ(to.copy(40'000, 60'000), content);
}

TEST(Write, NeedsTheRightOnTheTargetOnly) {
  Pair pair;
  const Rights none{
      .local_write = false, .remote_write = false, .remote_read = false, .remote_atomic = false};
  Region& from = pair.a.host.add(text("payload"), none);
  Region& to = pair.b.host.add(
      7,
      {.local_write = false, .remote_write = true, .remote_read = false, .remote_atomic = false});
  pair.a.post({.operation = Operation::write, .remote_address = to.address(), .rkey = to.rkey()},
              {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(to.copy(), text("payload"));
}

TEST(Write, RunsInBothDirectionsAtOnce) {
  constexpr std::size_t size = 1'000'000;
  Pair pair;
  Region& from_a = pair.a.host.add(pattern(size, 1));
  Region& from_b = pair.b.host.add(pattern(size, 2));
  Region& to_a = pair.a.host.add(size);
  Region& to_b = pair.b.host.add(size);
  for (Link* link : {&pair.a_to_b, &pair.b_to_a}) {
    link->set_window(10'000);
    link->add(delay(1000));
  }
  pair.a.post(
      {.operation = Operation::write, .remote_address = to_b.address(), .rkey = to_b.rkey()},
      {from_a.slice()});
  pair.b.post(
      {.operation = Operation::write, .remote_address = to_a.address(), .rkey = to_a.rkey()},
      {from_b.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(pair.b.send_statuses(), std::vector{Status::success});
  EXPECT_TRUE(to_b.copy() == from_a.copy());
  EXPECT_TRUE(to_a.copy() == from_b.copy());
}

// Memory that is withdrawn between two reads of one FPDU is not touched any more.
TEST(Write, TargetWithdrawnInTheMiddleOfAnFpduStaysUntouched) {
  for (const bool crc : {true, false}) {
    auto options = roomy(false);
    options.crc = crc;
    ScriptedPeer peer(options);
    Region& to = peer.host.add(60'000);
    const auto bytes = fpdu(write(to.rkey(), to.address(), pattern(60'000)), crc);
    peer.send_raw(Bytes(bytes).first(30'000));
    EXPECT_TRUE(peer.connection.mid_fpdu());
    to.valid = false;
    const auto before = to.copy();
    peer.send_raw(Bytes(bytes).subspan(30'000));
    EXPECT_EQ(to.copy(), before);
    EXPECT_EQ(peer.connection.terminate().code, wire::terminate::tagged_invalid_stag);
    EXPECT_TRUE(peer.connection.ended());
  }
}

// Deregistering does not wait: data that is still to be sent from the memory is copied.
TEST(Write, SourceThatGoesAwayIsCopied) {
  for (const bool crc : {true, false}) {
    auto options = roomy(true);
    options.mulpdu_bytes = 9000;
    options.crc = crc;  // only without CRCs are payloads sent from where they are
    ScriptedPeer peer(options);
    Region& from = peer.host.add(pattern(20'000));
    const auto content = from.copy();
    peer.post({.operation = Operation::write, .remote_address = 0, .rkey = 1}, {from.slice()});
    (void)peer.connection.plan_send();
    peer.connection.forget(from.bytes().data(), from.size());
    from.put(0, Content(20'000));
    peer.expect(write(1, 0, Bytes(content).first(8986), false));
    peer.expect(write(1, 8986, Bytes(content).subspan(8986, 8986), false));
    peer.expect(write(1, 17'972, Bytes(content).subspan(17'972)));
  }
}

}  // namespace
}  // namespace weft::test
