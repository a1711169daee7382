// Send with immediate, which the RFCs do not have. An Immediate Data message (RFC 7306 §6) with a
// second word other than zero announces the immediate of the next Send; only between Weft devices.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Requester;
using iwarp::Status;
using wire::RdmapOpcode;
namespace code = wire::terminate;

iwarp::Connection::Options weft(std::size_t hold_bytes = 0) {
  auto options = patient_pair(hold_bytes).a;
  options.peer.control_stag = 0;
  return options;
}

Ulpdu announcement(std::uint32_t msn, std::uint32_t data_be) {
  Content payload(8);
  wire::ImmediateData{.data_be = data_be, .tag = 1}.emit(payload);
  return untagged({.last = true,
                   .rdmap_control = wire::rdmap_control(RdmapOpcode::immediate_data),
                   .queue = wire::queue::send,
                   .msn = msn},
                  payload);
}

TEST(SendImmediate, IsAnAnnouncementAndASend) {
  ScriptedPeer peer(weft());
  Region& from = peer.host.add(text("data"));
  peer.post({.wr_id = 1, .operation = Operation::send_immediate, .immediate_be = 77},
            {from.slice()});
  peer.expect(announcement(1, 77));
  peer.expect(send(2, text("data")));
  peer.expect(empty_read(1));
}

TEST(SendImmediate, TakesOneReceive) {
  ScriptedPeer peer(weft());
  Region& to = peer.host.add(10);
  peer.post_receive(5, {to.slice()});
  peer.send(announcement(1, 77));
  EXPECT_TRUE(peer.host.receives.empty());
  peer.send(send(2, text("data"), {}, RdmapOpcode::send_solicited));
  ASSERT_EQ(peer.host.receives.size(), 1U);
  const auto& completion = peer.host.receives[0];
  EXPECT_TRUE(completion.has_immediate);
  EXPECT_EQ(completion.immediate_be, 77U);
  EXPECT_FALSE(completion.from_write);
  EXPECT_TRUE(completion.solicited);
  EXPECT_EQ(completion.length_bytes, 4U);
  peer.post_receive(6, {to.slice()});
  peer.send(send(3, text("plain")));
  EXPECT_FALSE(peer.host.receives.at(1).has_immediate);
}

TEST(SendImmediate, IsHeldWithItsSend) {
  ScriptedPeer peer(weft(1000));
  peer.send(announcement(1, 1));
  peer.send(send(2, text("a")));
  peer.send(announcement(3, 2));
  peer.send(send(4, text("b")));
  peer.send(send(5, text("c")));
  for (std::uint64_t i = 0; i < 3; ++i) peer.post_receive(i, {peer.host.add(1).slice()});
  ASSERT_EQ(peer.host.receives.size(), 3U);
  EXPECT_EQ(peer.host.receives[0].immediate_be, 1U);
  EXPECT_EQ(peer.host.receives[1].immediate_be, 2U);
  EXPECT_FALSE(peer.host.receives[2].has_immediate);
}

// A Write with immediate works as before.
TEST(SendImmediate, LeavesTheWriteWithImmediateAlone) {
  Pair pair(patient_pair(1000));
  Region& from = pair.a.host.add(pattern(3000));
  Region& to = pair.b.host.add(3000);
  for (std::uint64_t i = 0; i < 4; ++i) {
    pair.b.host.post_receive(i, {to.slice()});
    pair.a.post({.wr_id = i,
                 .operation = i % 2 == 0 ? Operation::write_immediate : Operation::send_immediate,
                 .remote_address = to.address(),
                 .rkey = to.rkey(),
                 .immediate_be = static_cast<std::uint32_t>(i)},
                {from.slice(0, i * 1000)});
  }
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector(4, Status::success));
  ASSERT_EQ(pair.b.host.receives.size(), 4U);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto& completion = pair.b.host.receives[i];
    EXPECT_EQ(completion.from_write, i % 2 == 0);
    EXPECT_EQ(completion.immediate_be, i);
    EXPECT_EQ(completion.length_bytes, i * 1000);
  }
}

TEST(SendImmediate, MayBeLargerThanTheHold) {
  Pair pair(patient_pair(100));
  Region& from = pair.a.host.add(pattern(3000));
  Region& to = pair.b.host.add(3000);
  pair.a.post({.wr_id = 1, .operation = Operation::send_immediate, .immediate_be = 9},
              {from.slice()});
  pair.drive();
  pair.b.post_receive(1, {to.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(pair.b.host.receives.at(0).immediate_be, 9U);
  EXPECT_EQ(to.copy(), from.copy());
}

TEST(SendImmediate, IsUnsupportedTowardsOthers) {
  ScriptedPeer peer(roomy(true));
  EXPECT_EQ(peer.connection.post({.operation = Operation::send_immediate}),
            Requester::Posted::unsupported);
  peer.expect_nothing();
}

// RFC 7306 §6.2 leaves the second word to the sender.
TEST(SendImmediate, ATagOfAnotherImplementationMeansNothing) {
  ScriptedPeer peer(roomy(false));
  peer.post_receive(1);
  peer.send(announcement(1, 5));
  ASSERT_EQ(peer.host.receives.size(), 1U);
  EXPECT_TRUE(peer.host.receives[0].from_write);
}

TEST(SendImmediate, NothingButTheSendMayFollow) {
  for (const auto& wrong : {announcement(2, 6), immediate(2, 6)}) {
    ScriptedPeer peer(weft());
    peer.post_receive(1);
    peer.send(announcement(1, 5));
    peer.send(wrong);
    peer.expect_terminate(terminate(code::rdma_unexpected_opcode, wrong));
  }
}

// The peer may refuse either half.
TEST(SendImmediate, ATerminateForEitherHalfFindsIt) {
  for (const std::uint32_t msn : {1U, 2U}) {
    ScriptedPeer peer(weft());
    peer.post({.wr_id = 1, .operation = Operation::send_immediate});
    for (int i = 0; i < 3; ++i) (void)peer.next();
    peer.send(terminate(code::untagged_no_buffer, send(msn, {})));
    EXPECT_EQ(peer.statuses(), std::vector{Status::rnr_retry_exceeded});
  }
}

}  // namespace
}  // namespace weft::test
