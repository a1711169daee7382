// RDMA Write with immediate: a Write, followed by Immediate Data (RFC 7306 §6).
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Status;
using wire::RdmapOpcode;

class ImmediateSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(ImmediateSizes, ReportTheLengthOfTheWrite) {
  const std::size_t size = GetParam();
  Pair pair;
  Region& from = pair.a.host.add(pattern(size));
  Region& to = pair.b.host.add(size);
  pair.b.host.post_receive(5, {});
  pair.b.host.post_receive(6, {});
  for (const std::uint32_t data : {0xDEADBEEFU, 0U}) {
    pair.a.post({.wr_id = data,
                 .operation = Operation::write_immediate,
                 .solicited = data != 0,
                 .remote_address = to.address(),
                 .rkey = to.rkey(),
                 .immediate_be = data},
                {from.slice()});
  }
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector(2, Status::success));
  EXPECT_EQ(to.copy(), from.copy());
  ASSERT_EQ(pair.b.host.receives.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& completion = pair.b.host.receives[i];
    EXPECT_EQ(completion.wr_id, 5 + i);
    EXPECT_EQ(completion.status, Status::success);
    EXPECT_EQ(completion.length_bytes, size);
    EXPECT_TRUE(completion.from_write);
    EXPECT_TRUE(completion.has_immediate);
    EXPECT_EQ(completion.immediate_be, i == 0 ? 0xDEADBEEFU : 0U);
    EXPECT_EQ(completion.solicited, i == 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ImmediateSizes, testing::Values(0, 1, 1428, 1429, 300'000));

// The first four of the eight bytes are the application's, as they are in memory; the rest is zero.
TEST(Immediate, StandsBehindTheWriteWithNothingInBetween) {
  ScriptedPeer peer(roomy(true));
  Region& from = peer.host.add(pattern(2000));
  Region& asked = peer.host.add(10);
  peer.send(read_request(1, {.sink_stag = 4,
                             .size_bytes = 10,
                             .source_stag = asked.rkey(),
                             .source_offset = asked.address()}));
  peer.post({.operation = Operation::write_immediate,
             .remote_address = 100,
             .rkey = 3,
             .immediate_be = 0x04030201},
            {from.slice()});
  peer.expect(read_response(4, 0, Content(10)));
  peer.expect(write(3, 100, from.copy(0, 1428), false));
  peer.expect(write(3, 1528, from.copy(1428, 572)));
  const auto message = peer.next();
  EXPECT_EQ(message, immediate(1, 0x04030201));
  EXPECT_EQ(Content(message.bytes.end() - 8, message.bytes.end()),
            (Content{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, {}, {}, {}, {}}));
}

// Immediate Data takes MSNs and receives of queue 0 like a Send.
TEST(Immediate, SharesTheQueueOfSends) {
  ScriptedPeer peer(roomy(true));
  Region& from = peer.host.add(4);
  peer.post({.operation = Operation::send}, {from.slice()});
  peer.post({.operation = Operation::write_immediate, .solicited = true}, {from.slice()});
  peer.post({.operation = Operation::send}, {from.slice()});
  peer.expect(send(1, Content(4)));
  peer.expect(write(0, 0, Content(4)));
  peer.expect(immediate(2, 0, RdmapOpcode::immediate_data_solicited));
  peer.expect(send(3, Content(4)));
}

TEST(Immediate, CountsOnlyTheLastWrite) {
  ScriptedPeer peer(roomy(false));
  Region& to = peer.host.add(100);
  for (std::uint64_t i = 0; i < 3; ++i) peer.host.post_receive(i, {to.slice(90, 10)});
  peer.send(write(to.rkey(), to.address(), Content(40)));
  peer.send(write(to.rkey(), to.address(), Content(20), false));
  peer.send(write(to.rkey(), to.address(20), Content(5)));
  peer.send(immediate(1, 7));
  peer.send(immediate(2, 8));
  peer.send(send(3, text("abc")));
  ASSERT_EQ(peer.host.receives.size(), 3U);
  EXPECT_EQ(peer.host.receives[0].length_bytes, 25U);
  EXPECT_EQ(peer.host.receives[1].length_bytes, 0U);
  EXPECT_EQ(peer.host.receives[2].length_bytes, 3U);
  EXPECT_FALSE(peer.host.receives[2].from_write);
}

TEST(Immediate, WithoutAReceiveEndsTheStream) {
  Pair pair;
  Region& from = pair.a.host.add(4);
  Region& to = pair.b.host.add(4);
  pair.a.post(
      {.operation = Operation::write_immediate, .remote_address = to.address(), .rkey = to.rkey()},
      {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.b.connection().terminate().code, wire::terminate::untagged_no_buffer);
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::rnr_retry_exceeded});
}

// It has the MSN of the Send that is arriving, and must not take a second receive.
TEST(Immediate, InTheMiddleOfASendLosesNoReceive) {
  ScriptedPeer peer(roomy(false));
  Region& to = peer.host.add(100);
  peer.host.post_receive(1, {to.slice()});
  peer.host.post_receive(2, {to.slice()});
  peer.send(send(1, Content(10), {.last = false}));
  const auto culprit = immediate(1, 7);
  peer.send(culprit);
  peer.expect_terminate(terminate(wire::terminate::untagged_invalid_offset, culprit));
  ASSERT_EQ(peer.host.receives.size(), 1U);
  EXPECT_EQ(peer.host.receives[0].wr_id, 1U);
  EXPECT_EQ(peer.host.receives[0].status, Status::flushed);
  EXPECT_EQ(peer.host.posted_receives.size(), 1U);
}

}  // namespace
}  // namespace weft::test
