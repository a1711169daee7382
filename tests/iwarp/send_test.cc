// Sends: RFC 5040 §5.3, RFC 5041 §5.3.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Requester;
using iwarp::Status;
using wire::RdmapOpcode;

constexpr std::size_t segment_payload = 1442 - wire::DdpUntagged::header_bytes;

class SendSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(SendSizes, ArriveWhole) {
  const std::size_t size = GetParam();
  Pair pair;
  Region& from = pair.a.host.add(pattern(size));
  Region& to = pair.b.host.add(size + 10);
  pair.b.host.post_receive(7, {to.slice()});
  pair.a.post({.wr_id = 1, .operation = Operation::send}, {from.slice()});
  pair.drive();

  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(pair.a.host.sends.at(0).length_bytes, size);
  ASSERT_EQ(pair.b.host.receives.size(), 1U);
  EXPECT_EQ(pair.b.host.receives[0].wr_id, 7U);
  EXPECT_EQ(pair.b.host.receives[0].status, Status::success);
  EXPECT_EQ(pair.b.host.receives[0].length_bytes, size);
  EXPECT_FALSE(pair.b.host.receives[0].solicited);
  EXPECT_EQ(to.copy(0, size), from.copy());
  EXPECT_EQ(to.copy(size, 10), Content(10)) << "bytes behind the message";
}

INSTANTIATE_TEST_SUITE_P(Sizes, SendSizes,
                         testing::Values(0, 1, 2, 3, 4, 5, segment_payload - 1, segment_payload,
                                         segment_payload + 1, 2 * segment_payload, 4096, 65535,
                                         300'000, 3'000'000));

// RFC 5041 §5.3: one MSN, offsets from 0 without a gap, L on the last segment only.
TEST(Send, IsCutIntoSegmentsOfOneMessage) {
  ScriptedPeer peer(roomy(true));
  Region& from = peer.host.add(pattern(3000));
  peer.post({.operation = Operation::send}, {from.slice()});
  peer.post({.operation = Operation::send}, {from.slice(0, 5)});
  peer.expect(send(1, from.copy(0, 1424), {.offset = 0, .last = false}));
  peer.expect(send(1, from.copy(1424, 1424), {.offset = 1424, .last = false}));
  peer.expect(send(1, from.copy(2848, 152), {.offset = 2848}));
  peer.expect(send(2, from.copy(0, 5)));
}

// RFC 5044 §3: an FPDU follows the path's segment size, also when that changes.
TEST(Send, FollowsTheMulpdu) {
  ScriptedPeer peer(roomy(true));
  Region& from = peer.host.add(pattern(400));
  peer.connection.set_mulpdu_bytes(128);
  peer.post({.operation = Operation::send}, {from.slice()});
  for (std::uint32_t offset = 0; offset < 400; offset += 110) {
    const std::uint32_t part = std::min<std::uint32_t>(110, 400 - offset);
    peer.expect(send(1, from.copy(offset, part), {.offset = offset, .last = offset + part == 400}));
  }
}

TEST(Send, GathersAndScatters) {
  for (const std::size_t scale : {1U, 100U, 5000U}) {
    SCOPED_TRACE(scale);
    Pair pair;
    Region& from = pair.a.host.add(pattern(16 * scale));
    Region& to = pair.b.host.add(16 * scale);
    pair.b.host.post_receive(
        1, {to.slice(5 * scale, 3 * scale), to.slice(0, 0), to.slice(9 * scale, 7 * scale)});
    pair.a.post({.operation = Operation::send},
                {from.slice(0, 2 * scale), from.slice(0, 0), from.slice(8 * scale, 7 * scale),
                 from.slice(2 * scale, scale)});
    pair.drive();
    ASSERT_EQ(pair.b.host.receives.size(), 1U);
    EXPECT_EQ(pair.b.host.receives[0].length_bytes, 10 * scale);
    auto sent = joined(from.copy(0, 2 * scale), from.copy(8 * scale, 7 * scale));
    sent = joined(sent, from.copy(2 * scale, scale));
    EXPECT_EQ(joined(to.copy(5 * scale, 3 * scale), to.copy(9 * scale, 7 * scale)), sent);
    EXPECT_EQ(to.copy(0, 5 * scale), Content(5 * scale));
    EXPECT_EQ(to.copy(8 * scale, scale), Content(scale));
  }
}

// The buffer of an inline request may be reused at once, and needs no registration.
TEST(Send, InlineDataIsCopiedWhenPosted) {
  ScriptedPeer peer(roomy(true));
  Content first = text("inline ");
  Content second = text("data");
  const auto plain = [](Content& content) {
    return iwarp::LocalSlice{.address = reinterpret_cast<std::uint64_t>(content.data()),
                             .length_bytes = static_cast<std::uint32_t>(content.size())};
  };
  peer.post({.operation = Operation::send, .inline_data = true}, {plain(first), plain(second)});
  peer.post({.operation = Operation::send, .inline_data = true}, {plain(second)});
  first.assign(first.size(), std::byte{0xEE});
  second.assign(second.size(), std::byte{0xEE});
  peer.expect(send(1, text("inline data")));
  peer.expect(send(2, text("data")));
}

TEST(Send, InlineWithoutAnyInlineRoomMayBeEmpty) {
  auto options = roomy(true);
  options.limits.inline_bytes = 0;
  ScriptedPeer peer(options);
  peer.post({.operation = Operation::send, .inline_data = true});
  peer.expect(send(1, {}));
}

struct Flavour {
  Operation operation;
  bool solicited;
  RdmapOpcode opcode;
};

class SendFlavours : public testing::TestWithParam<Flavour> {};

// RFC 5040 §4.1: the opcode has the solicited and invalidate forms.
TEST_P(SendFlavours, TravelAsTheirOpcode) {
  const Flavour& flavour = GetParam();
  ScriptedPeer peer(roomy(true));
  Region& from = peer.host.add(text("abc"));
  const bool invalidate = flavour.operation == Operation::send_invalidate;
  peer.post({.operation = flavour.operation, .solicited = flavour.solicited, .rkey = 0xABCD},
            {from.slice()});
  peer.expect(send(1, text("abc"), {}, flavour.opcode, invalidate ? 0xABCDU : 0));
}

TEST_P(SendFlavours, AreReported) {
  const Flavour& flavour = GetParam();
  const bool invalidate = flavour.operation == Operation::send_invalidate;
  ScriptedPeer peer(roomy(false));
  Region& to = peer.host.add(10);
  Region& granted = peer.host.add(10);
  peer.host.post_receive(3, {to.slice()});
  peer.send(send(1, text("abc"), {}, flavour.opcode, granted.rkey()));
  ASSERT_EQ(peer.host.receives.size(), 1U);
  const auto& completion = peer.host.receives[0];
  EXPECT_EQ(completion.solicited, flavour.solicited);
  EXPECT_EQ(completion.has_invalidated, invalidate);
  EXPECT_EQ(completion.invalidated_rkey, invalidate ? granted.rkey() : 0);
  EXPECT_EQ(granted.valid, !invalidate);
  EXPECT_FALSE(completion.has_immediate);
}

INSTANTIATE_TEST_SUITE_P(
    All, SendFlavours,
    testing::Values(Flavour{Operation::send, false, RdmapOpcode::send},
                    Flavour{Operation::send, true, RdmapOpcode::send_solicited},
                    Flavour{Operation::send_invalidate, false, RdmapOpcode::send_invalidate},
                    Flavour{Operation::send_invalidate, true,
                            RdmapOpcode::send_solicited_invalidate}));

// RFC 5041 §5.3: messages of queue 0 take posted receives in order.
TEST(Send, TakesReceivesInOrder) {
  Pair pair;
  Region& from = pair.a.host.add(pattern(100));
  Region& to = pair.b.host.add(100);
  for (std::uint64_t i = 0; i < 10; ++i) pair.b.host.post_receive(i, {to.slice(i * 10, 10)});
  for (std::uint64_t i = 0; i < 10; ++i) {
    pair.a.post({.wr_id = i, .operation = Operation::send}, {from.slice(i * 10, 10 - i)});
  }
  pair.drive();
  ASSERT_EQ(pair.b.host.receives.size(), 10U);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(pair.b.host.receives[i].wr_id, i);
    EXPECT_EQ(pair.b.host.receives[i].length_bytes, 10 - i);
    EXPECT_EQ(to.copy(i * 10, 10 - i), from.copy(i * 10, 10 - i));
  }
}

TEST(Send, UnsignaledCompletesOnlyWhereItFails) {
  Pair pair;
  Region& from = pair.a.host.add(text("abc"));
  Region& to = pair.b.host.add(10);
  pair.b.host.post_receive(0, {to.slice()});
  pair.b.host.post_receive(1, {to.slice()});
  pair.a.post({.wr_id = 1, .operation = Operation::send, .signaled = false}, {from.slice()});
  pair.a.post({.wr_id = 2, .operation = Operation::send}, {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_ids(), std::vector<std::uint64_t>{2});

  pair.a.post({.wr_id = 3, .operation = Operation::send, .signaled = false}, {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_ids(), (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(pair.a.host.sends.at(1).status, Status::rnr_retry_exceeded);
  EXPECT_FALSE(pair.a.host.sends.at(1).signaled);
}

// A queue of unsignaled requests must not fill up for good.
TEST(Send, UnsignaledRequestsLeaveTheQueue) {
  PairOptions options;
  options.a.limits.send_requests = 4;
  Pair pair(options);
  Region& from = pair.a.host.add(text("abc"));
  Region& to = pair.b.host.add(10);
  for (std::uint64_t i = 0; i < 100; ++i) {
    pair.b.host.post_receive(i, {to.slice()});
    pair.a.post({.wr_id = i, .operation = Operation::send, .signaled = false}, {from.slice()});
    pair.drive();
  }
  EXPECT_EQ(pair.b.host.receives.size(), 100U);
  EXPECT_TRUE(pair.a.host.sends.empty());
}

TEST(Send, RefusesWhatTheQueueCannotHold) {
  PairOptions options;
  options.a.limits = {.send_requests = 2, .send_slices = 2, .inline_bytes = 8};
  Pair pair(options);
  Region& from = pair.a.host.add(16);
  const auto piece = from.slice(0, 4);
  EXPECT_EQ(pair.a.try_post({.operation = Operation::send}, {piece, piece, piece}),
            Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post({.operation = Operation::send, .inline_data = true},
                            {from.slice(0, 8), from.slice(0, 1)}),
            Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post({.operation = Operation::read, .inline_data = true}, {piece}),
            Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post({.operation = Operation::fetch_add}, {piece}),
            Requester::Posted::invalid);
  pair.a.post({.operation = Operation::send}, {piece, piece});
  pair.a.post({.operation = Operation::send}, {piece});
  EXPECT_EQ(pair.a.try_post({.operation = Operation::send}, {piece}),
            Requester::Posted::queue_full);
}

// RFC 5044 §7.1: the responder's first FPDU comes after the initiator's.
TEST(Send, OfTheResponderWaitsForTheInitiatorsFirstFpdu) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(10);
  peer.host.post_receive(1, {memory.slice()});
  peer.post({.operation = Operation::send}, {memory.slice(0, 3)});
  EXPECT_FALSE(peer.connection.may_send());
  peer.expect_nothing();
  EXPECT_EQ(peer.host.ready_calls, 0);
  peer.send(send(1, text("x")));
  EXPECT_EQ(peer.host.ready_calls, 1);
  peer.expect(send(1, Content{std::byte{'x'}, std::byte{0}, std::byte{0}}));
  peer.send(write(0, 0, {}));
  EXPECT_EQ(peer.host.ready_calls, 1);
}

// Without CRCs payload is sent from where it lies, unless the kernel would copy it slowly from
// there: 1 to 63 bytes behind its place in a page.
TEST(Send, IsCopiedWhereTheKernelWouldBeSlow) {
  constexpr std::size_t size = 16'384;
  constexpr std::size_t page = 4096;
  constexpr std::size_t head = wire::fpdu_length_bytes + wire::DdpUntagged::header_bytes;
  constexpr std::size_t in_place = 3;  // pieces: what is before the payload, it, and what follows
  for (const auto& [behind, pieces] :
       {std::pair{std::size_t{0}, in_place}, std::pair{std::size_t{1}, std::size_t{1}},
        std::pair{head, std::size_t{1}}, std::pair{std::size_t{63}, std::size_t{1}},
        std::pair{std::size_t{64}, in_place}}) {
    SCOPED_TRACE(behind);
    auto options = roomy(true);
    options.crc = false;
    options.mulpdu_bytes = 65'000;
    ScriptedPeer peer(options);
    Region& from = peer.host.add(pattern(size + 2 * page));
    const auto address = reinterpret_cast<std::uintptr_t>(from.bytes().data());
    const auto slice = from.slice((page + head - behind - address % page) % page, size);
    const auto pieces_of_one = [&] {
      EXPECT_EQ(peer.connection.post({.operation = Operation::send, .slices = {&slice, 1}}),
                Requester::Posted::ok);
      const std::size_t found = peer.connection.plan_send().size();
      peer.connection.sent(size + 200);
      return found;
    };
    EXPECT_EQ(pieces_of_one(), pieces);
    // The first message is still under way, so where the kernel's copy begins is unknown, and the
    // payload is sent from where it lies.
    EXPECT_EQ(pieces_of_one(), in_place);
  }
}

}  // namespace
}  // namespace weft::test
