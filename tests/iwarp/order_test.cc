// What may be sent when: fences, ORD and IRD, and the order of answers and requests.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Status;
using wire::ReadRequest;

iwarp::Connection::Options plain(std::uint16_t ord, std::uint16_t wire_ord) {
  auto options = roomy(true);
  options.acknowledge = false;
  options.ord = ord;
  options.wire_ord = wire_ord;
  return options;
}

std::uint32_t opcode_of(const Ulpdu& ulpdu) {
  return std::to_integer<std::uint32_t>(ulpdu.bytes.at(1)) & 0x0F;
}

std::vector<std::uint32_t> opcodes(ScriptedPeer& peer, std::size_t count) {
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(opcode_of(peer.next()));
  peer.expect_nothing();
  return all;
}

constexpr std::uint32_t write_code = 0;
constexpr std::uint32_t request_code = 1;
constexpr std::uint32_t response_code = 2;
constexpr std::uint32_t send_code = 3;

// A fence waits for earlier reads and atomics, and only for these.
TEST(Order, FenceWaitsForEarlierReads) {
  ScriptedPeer peer(plain(4, 4));
  Region& memory = peer.host.add(8);
  peer.post({.wr_id = 1, .operation = Operation::write, .fence = true}, {memory.slice()});
  peer.post({.wr_id = 2, .operation = Operation::read}, {memory.slice()});
  peer.post({.wr_id = 3, .operation = Operation::read}, {memory.slice()});
  peer.post({.wr_id = 4, .operation = Operation::write}, {memory.slice()});
  peer.post({.wr_id = 5, .operation = Operation::send, .fence = true}, {memory.slice()});
  peer.post({.wr_id = 6, .operation = Operation::write}, {memory.slice()});
  EXPECT_EQ(opcodes(peer, 4), (std::vector{write_code, request_code, request_code, write_code}));
  const auto response = read_response(memory.lkey(), memory.address(), Content(8));
  peer.send(response);
  peer.expect_nothing();
  peer.send(response);
  EXPECT_EQ(opcodes(peer, 2), (std::vector{send_code, write_code}));
}

// A fence does not wait for the device's own reads.
TEST(Order, FenceIgnoresAcknowledgementReads) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(8);
  peer.post({.operation = Operation::write}, {memory.slice()});
  EXPECT_EQ(opcodes(peer, 2), (std::vector{write_code, request_code}));
  peer.post({.operation = Operation::send, .fence = true}, {memory.slice()});
  EXPECT_EQ(opcodes(peer, 1), std::vector{send_code});
}

// RFC 5040 §3.3: no more requests than the peer has room for. Later ones wait: the requests of a
// queue keep their order.
TEST(Order, OrdLimitsReadsUnderWay) {
  ScriptedPeer peer(plain(2, 2));
  Region& memory = peer.host.add(8);
  for (int i = 0; i < 3; ++i) peer.post({.operation = Operation::read}, {memory.slice()});
  peer.post({.operation = Operation::fetch_add}, {memory.slice()});
  peer.post({.operation = Operation::write}, {memory.slice()});
  EXPECT_EQ(opcodes(peer, 2), (std::vector{request_code, request_code}));
  const auto response = read_response(memory.lkey(), memory.address(), Content(8));
  peer.send(response);
  EXPECT_EQ(opcodes(peer, 1), std::vector{request_code});
  peer.send(response);
  EXPECT_EQ(opcodes(peer, 2), (std::vector{10U, write_code}));
}

// The extra read that the peer allows is the device's: the application does not get it.
TEST(Order, ApplicationsOrdIsNotTheWires) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(8);
  for (int i = 0; i < 17; ++i) peer.post({.operation = Operation::read}, {memory.slice()});
  EXPECT_EQ(opcodes(peer, 16), std::vector(16, request_code));
}

TEST(Order, OneReadAtATimeGetsThrough) {
  PairOptions options;
  options.a.ord = options.a.wire_ord = options.b.ird = 1;
  options.a.acknowledge = true;
  Pair pair(options);
  Region& from = pair.b.host.add(pattern(100));
  Region& to = pair.a.host.add(100);
  for (std::uint64_t i = 0; i < 20; ++i) {
    pair.a.post({.wr_id = i,
                 .operation = i % 2 == 0 ? Operation::read : Operation::write,
                 .remote_address = from.address(i * 5),
                 .rkey = from.rkey()},
                {to.slice(i * 5, 5)});
  }
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector(20, Status::success));
}

// Where no read is allowed at all, the request would wait for ever.
TEST(Order, ReadWithoutAnyOrdFailsInItsTurn) {
  for (const auto& [ord, wire_ord] : {std::pair{0, 1}, {0, 0}, {4, 0}}) {
    auto options = plain(static_cast<std::uint16_t>(ord), static_cast<std::uint16_t>(wire_ord));
    options.acknowledge = true;
    ScriptedPeer peer(options);
    Region& memory = peer.host.add(8);
    peer.post({.operation = Operation::write}, {memory.slice()});
    peer.post({.operation = Operation::read}, {memory.slice()});
    peer.post({.operation = Operation::write}, {memory.slice()});
    peer.expect(write(0, 0, Content(8)));
    if (wire_ord > 0) {
      peer.expect(empty_read(1));
      peer.send(empty_response());
    }
    peer.expect_nothing();
    EXPECT_EQ(peer.statuses(),
              (std::vector{Status::success, Status::local_operation, Status::flushed}));
    EXPECT_EQ(peer.host.end_reason, iwarp::EndReason::local_error);
  }
}

// There is no buffer for more requests than IRD (RFC 5041 §7, queue 1). The earlier ones are
// answered.
TEST(Order, MoreReadsThanIrdEndTheStream) {
  auto options = roomy(false);
  options.ird = 2;
  ScriptedPeer peer(options);
  Region& memory = peer.host.add(8);
  const ReadRequest request{.sink_stag = 1,
                            .size_bytes = 8,
                            .source_stag = memory.rkey(),
                            .source_offset = memory.address()};
  peer.send(read_request(1, request));
  peer.send(read_request(2, request));
  const auto culprit = read_request(3, request);
  peer.send(culprit);
  peer.expect(read_response(1, 0, Content(8)));
  peer.expect(read_response(1, 0, Content(8)));
  peer.expect_terminate(terminate(wire::terminate::untagged_no_buffer, culprit));
}

TEST(Order, MoreAtomicsThanIrdEndTheStreamToo) {
  auto options = roomy(false);
  options.ird = 1;
  ScriptedPeer peer(options);
  Region& memory = peer.host.add(8);
  const wire::AtomicRequest request{.stag = memory.rkey(), .tagged_offset = memory.address()};
  peer.send(atomic_request(1, request));
  const auto culprit = atomic_request(2, request);
  peer.send(culprit);
  peer.expect(atomic_response(1, 0, 0));
  peer.expect_terminate(terminate(wire::terminate::untagged_no_buffer, culprit));
}

TEST(Order, NoReadAtAllWhereIrdIsZero) {
  auto options = roomy(false);
  options.ird = 0;
  ScriptedPeer peer(options);
  const auto culprit = empty_read(1);
  peer.send(culprit);
  peer.expect_terminate(terminate(wire::terminate::untagged_no_buffer, culprit));
}

// Answers do not wait for what delays requests: fence, ORD.
TEST(Order, AnswersOvertakeRequestsThatMustWait) {
  ScriptedPeer peer(plain(1, 1));
  Region& memory = peer.host.add(8);
  peer.post({.operation = Operation::read}, {memory.slice()});
  peer.post({.operation = Operation::read}, {memory.slice()});
  EXPECT_EQ(opcodes(peer, 1), std::vector{request_code});
  peer.send(empty_read(1));
  EXPECT_EQ(opcodes(peer, 1), std::vector{response_code});
}

// RFC 5041 §5.3: the segments of one message are not mixed with those of another, yet answers and
// requests take turns, message by message.
TEST(Order, AnswersAndRequestsTakeTurnsByWholeMessages) {
  ScriptedPeer peer(plain(8, 8));
  Region& memory = peer.host.add(700'000);
  const ReadRequest request{.sink_stag = 1,
                            .size_bytes = 300'000,
                            .source_stag = memory.rkey(),
                            .source_offset = memory.address()};
  for (std::uint32_t i = 1; i <= 3; ++i) peer.send(read_request(i, request));
  for (int i = 0; i < 3; ++i) {
    peer.post({.operation = Operation::write}, {memory.slice(0, 300'000)});
  }
  std::vector<std::uint32_t> messages;
  bool open = false;
  std::uint32_t current = 0;
  for (std::size_t i = 0; i < 6 * ((300'000 + 1427) / 1428); ++i) {
    const auto ulpdu = peer.next();
    if (open) {
      ASSERT_EQ(opcode_of(ulpdu), current) << "segment " << i << " breaks into a message";
    } else {
      messages.push_back(current = opcode_of(ulpdu));
    }
    open = !wire::ddp_is_last(ulpdu.bytes[0]);
  }
  peer.expect_nothing();
  EXPECT_EQ(messages, (std::vector{response_code, write_code, response_code, write_code,
                                   response_code, write_code}));
}

// RFC 5041 §5.3: message numbers of queue 0 have no gap and no repetition.
TEST(Order, RequestsPostedLaterGoOnWithTheirNumbers) {
  ScriptedPeer peer(plain(4, 4));
  Region& memory = peer.host.add(8);
  for (std::uint32_t i = 1; i <= 5; ++i) {
    peer.post({.operation = Operation::send}, {memory.slice()});
    peer.expect(send(i, Content(8)));
    peer.post({.operation = Operation::read}, {memory.slice()});
    EXPECT_EQ(peer.next(), read_request(i, {.sink_stag = memory.lkey(),
                                            .sink_offset = memory.address(),
                                            .size_bytes = 8}));
    peer.send(read_response(memory.lkey(), memory.address(), Content(8)));
  }
}

}  // namespace
}  // namespace weft::test
