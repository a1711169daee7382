// Each error code at the rule that raises it, with the headers that RFC 5040 §4.8 asks to quote.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Status;
using wire::RdmapOpcode;
using wire::ReadRequest;
using wire::TerminateCode;
namespace code = wire::terminate;

// What is wrong with the memory that a segment names.
enum class Wrong { stag, right, domain, before, behind, across, wrap };

struct Access {
  const char* name;
  Wrong wrong;
  TerminateCode write;
  TerminateCode read;
};

class Accesses : public testing::TestWithParam<std::tuple<Access, std::size_t>> {
 protected:
  static Region& target(MemoryHost& host, Wrong wrong, std::size_t size) {
    const bool right = wrong != Wrong::right;
    return host.add(size, {.remote_write = right, .remote_read = right}, 0,
                    wrong == Wrong::wrap ? ~std::uint64_t{0} - 100'000 : 0,
                    wrong == Wrong::domain ? 1 : 0);
  }
  static std::uint32_t stag(const Region& region, Wrong wrong) {
    return region.rkey() + (wrong == Wrong::stag ? 1U : 0U);
  }
  static std::uint64_t offset(const Region& region, Wrong wrong) {
    switch (wrong) {
      case Wrong::before:
        return region.address() - 1;
      case Wrong::behind:
        return region.address(region.size());
      case Wrong::across:
        return region.address(1);
      case Wrong::wrap:
        return ~std::uint64_t{0};
      default:
        return region.address();
    }
  }
};

// RFC 5041 §7: found before the first byte is placed.
TEST_P(Accesses, OfAWriteEndTheStreamBeforeAnythingLands) {
  const auto& [access, size] = GetParam();
  ScriptedPeer peer(roomy(false));
  Region& region = target(peer.host, access.wrong, size);
  const auto culprit =
      write(stag(region, access.wrong), offset(region, access.wrong), pattern(size));
  peer.send(culprit);
  peer.expect_terminate(terminate(access.write, culprit));
  EXPECT_TRUE(region.copy() == Content(size));
  EXPECT_EQ(peer.host.ready_calls, 0);
}

// RFC 5040 §4.8: of a Read Request the RDMAP header is quoted as well.
TEST_P(Accesses, OfAReadEndTheStream) {
  const auto& [access, size] = GetParam();
  ScriptedPeer peer(roomy(false));
  Region& region = target(peer.host, access.wrong, size);
  const auto culprit = read_request(1, {.sink_stag = 7,
                                        .sink_offset = 8,
                                        .size_bytes = static_cast<std::uint32_t>(size),
                                        .source_stag = stag(region, access.wrong),
                                        .source_offset = offset(region, access.wrong)});
  peer.send(culprit);
  peer.expect_terminate(terminate(access.read, culprit, true));
}

INSTANTIATE_TEST_SUITE_P(
    Codes, Accesses,
    testing::Combine(
        testing::Values(Access{"stag", Wrong::stag, code::tagged_invalid_stag,
                               code::rdma_invalid_stag},
                        Access{"right", Wrong::right, code::tagged_invalid_stag, code::rdma_access},
                        Access{"domain", Wrong::domain, code::tagged_stag_not_of_stream,
                               code::rdma_stag_not_of_stream},
                        Access{"before", Wrong::before, code::tagged_bounds, code::rdma_bounds},
                        Access{"behind", Wrong::behind, code::tagged_bounds, code::rdma_bounds},
                        Access{"across", Wrong::across, code::tagged_bounds, code::rdma_bounds},
                        Access{"wrap", Wrong::wrap, code::tagged_wrap, code::rdma_wrap}),
        // Small FPDUs are checked when they are whole, large ones while they arrive.
        testing::Values(2, 1000, 60'000)),
    [](const auto& given) {
      return std::string(std::get<0>(given.param).name) + "_" +
             std::to_string(std::get<1>(given.param));
    });

// Compares bytes, so that a mistake of the codec shows: M and D set, length, header.
TEST(Terminate, OfAWriteOnTheWire) {
  ScriptedPeer peer(roomy(false));
  peer.send(write(0xA1B2C3D4, 0x1122334455667788, text("abc")));
  const auto hex = peer.next();
  const unsigned char expected[] = {
      0x41, 0x47, 0,    0,    0,    0,    0,    0,    0,    2,    0,    0,    0,    1,
      0,    0,    0,    0,     // untagged, queue 2, MSN 1
      0x11, 0x00, 0xC0, 0x00,  // DDP, tagged, STag; M and D
      0x00, 17,                // 14 + 3
      0xC1, 0x40, 0xA1, 0xB2, 0xC3, 0xD4, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88};
  const auto bytes = std::as_bytes(std::span(expected));
  EXPECT_EQ(hex.bytes, Content(bytes.begin(), bytes.end()));
}

TEST(Terminate, OfAReadOnTheWire) {
  ScriptedPeer peer(roomy(false));
  peer.send(read_request(1, {.sink_stag = 0x01020304,
                             .sink_offset = 0x05,
                             .size_bytes = 6,
                             .source_stag = 0x0708090A,
                             .source_offset = 0x0B}));
  const auto hex = peer.next();
  const unsigned char expected[] = {
      0x41, 0x47, 0,    0,    0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0,  //
      0x01, 0x00, 0xE0, 0x00,  // RDMAP, protection; M, D, R
      0x00, 46,                // 18 + 28
      0x41, 0x41, 0,    0,    0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0,  //
      1,    2,    3,    4,    0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 7, 8,
      9,    10,   0,    0,    0, 0, 0, 0, 0, 11};
  const auto bytes = std::as_bytes(std::span(expected));
  EXPECT_EQ(hex.bytes, Content(bytes.begin(), bytes.end()));
}

struct Culprit {
  const char* name;
  Ulpdu ulpdu;
  TerminateCode code;
};

Ulpdu with_byte(Ulpdu ulpdu, std::size_t at, unsigned value) {
  ulpdu.bytes.at(at) = std::byte(value);
  return ulpdu;
}

Ulpdu control(RdmapOpcode opcode, std::uint32_t queue, std::uint32_t msn, std::size_t bytes,
              Part part = {}) {
  return untagged({.last = part.last,
                   .rdmap_control = wire::rdmap_control(opcode),
                   .queue = queue,
                   .msn = msn,
                   .message_offset = part.offset},
                  Content(bytes));
}

class Culprits : public testing::TestWithParam<Culprit> {};

TEST_P(Culprits, EndTheStream) {
  const Culprit& culprit = GetParam();
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(100);
  peer.host.post_receive(1, {memory.slice()});
  peer.send(culprit.ulpdu);
  peer.expect_terminate(terminate(culprit.code, culprit.ulpdu));
  EXPECT_EQ(memory.copy(), Content(100));
}

INSTANTIATE_TEST_SUITE_P(
    Versions, Culprits,  // RFC 5041 §7, RFC 5040 §4.8
    testing::Values(
        Culprit{"ddp_tagged", with_byte(write(1, 2, Content(4)), 0, 0xC0), code::tagged_version},
        Culprit{"ddp_tagged_large", with_byte(write(1, 2, Content(50'000)), 0, 0xC3),
                code::tagged_version},
        Culprit{"ddp_untagged", with_byte(send(1, Content(4)), 0, 0x42), code::untagged_version},
        Culprit{"rdmap_tagged", with_byte(write(1, 2, Content(4)), 1, 0x80), code::rdma_version},
        Culprit{"rdmap_untagged", with_byte(send(1, Content(4)), 1, 0x03), code::rdma_version}),
    [](const auto& given) { return std::string(given.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Opcodes, Culprits,  // RFC 5040 §4.8: unexpected opcode
    testing::Values(
        Culprit{"tagged_send", tagged(RdmapOpcode::send, 1, 2, {}), code::rdma_unexpected_opcode},
        Culprit{"tagged_request", tagged(RdmapOpcode::read_request, 1, 2, Content(28)),
                code::rdma_unexpected_opcode},
        Culprit{"tagged_unknown", tagged(RdmapOpcode{12}, 1, 2, {}), code::rdma_unexpected_opcode},
        Culprit{"untagged_write", control(RdmapOpcode::write, 0, 1, 4),
                code::rdma_unexpected_opcode},
        Culprit{"untagged_unknown", control(RdmapOpcode{15}, 0, 1, 4),
                code::rdma_unexpected_opcode},
        Culprit{"send_on_queue_1", control(RdmapOpcode::send, 1, 1, 4),
                code::rdma_unexpected_opcode},
        Culprit{"request_on_queue_0", control(RdmapOpcode::read_request, 0, 1, 28),
                code::rdma_unexpected_opcode},
        Culprit{"atomic_on_queue_3", control(RdmapOpcode::atomic_request, 3, 1, 52),
                code::rdma_unexpected_opcode},
        Culprit{"terminate_on_queue_0", control(RdmapOpcode::terminate, 0, 1, 4),
                code::rdma_unexpected_opcode},
        Culprit{"immediate_on_queue_2", control(RdmapOpcode::immediate_data, 2, 1, 8),
                code::rdma_unexpected_opcode}),
    [](const auto& given) { return std::string(given.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Queues, Culprits,  // RFC 5041 §7: queue number, MSN range, message offset
    testing::Values(
        Culprit{"queue_4", control(RdmapOpcode::send, 4, 1, 4), code::untagged_invalid_queue},
        Culprit{"queue_max", control(RdmapOpcode::send, 0xFFFFFFFF, 1, 4),
                code::untagged_invalid_queue},
        Culprit{"send_msn_0", send(0, Content(4)), code::untagged_msn_range},
        Culprit{"send_msn_2", send(2, Content(4)), code::untagged_msn_range},
        Culprit{"immediate_msn_2", immediate(2, 0), code::untagged_msn_range},
        Culprit{"request_msn_2", empty_read(2), code::untagged_msn_range},
        Culprit{"terminate_msn_2", control(RdmapOpcode::terminate, 2, 2, 4),
                code::untagged_msn_range},
        Culprit{"answer_msn_0", atomic_response(0, 1, 1), code::untagged_msn_range},
        Culprit{"send_offset", send(1, Content(4), {.offset = 4}), code::untagged_invalid_offset},
        Culprit{"immediate_offset", control(RdmapOpcode::immediate_data, 0, 1, 8, {.offset = 1}),
                code::untagged_invalid_offset},
        Culprit{"immediate_not_last",
                control(RdmapOpcode::immediate_data, 0, 1, 8, {.last = false}),
                code::untagged_invalid_offset},
        Culprit{"request_offset", control(RdmapOpcode::read_request, 1, 1, 28, {.offset = 1}),
                code::untagged_invalid_offset},
        Culprit{"request_not_last", control(RdmapOpcode::read_request, 1, 1, 28, {.last = false}),
                code::untagged_invalid_offset}),
    [](const auto& given) { return std::string(given.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Formats, Culprits,  // shorter than their format: RFC 5040 has no code but "unspecified"
    testing::Values(Culprit{"short_read", control(RdmapOpcode::read_request, 1, 1, 27),
                            code::rdma_unspecified},
                    Culprit{"short_atomic", control(RdmapOpcode::atomic_request, 1, 1, 51),
                            code::rdma_unspecified},
                    Culprit{"short_immediate", control(RdmapOpcode::immediate_data, 0, 1, 7),
                            code::rdma_unspecified},
                    Culprit{"short_answer", control(RdmapOpcode::atomic_response, 3, 1, 11),
                            code::rdma_unspecified},
                    // No control message of the protocol is as long as this.
                    Culprit{"huge_request", control(RdmapOpcode::read_request, 1, 1, 40'000),
                            code::untagged_too_long}),
    [](const auto& given) { return std::string(given.param.name); });

TEST(Terminate, OfASendWithNothingPosted) {
  for (const std::size_t size : {0U, 10U, 30'000U}) {
    ScriptedPeer peer(roomy(false));
    const auto culprit = send(1, Content(size));
    peer.send(culprit);
    peer.expect_terminate(terminate(code::untagged_no_buffer, culprit));
  }
}

TEST(Terminate, OfASendThatIsTooLong) {
  for (const std::size_t size : {11U, 30'000U}) {
    ScriptedPeer peer(roomy(false));
    Region& memory = peer.host.add(10);
    peer.host.post_receive(9, {memory.slice()});
    const auto culprit = send(1, pattern(size));
    peer.send(culprit);
    peer.expect_terminate(terminate(code::untagged_too_long, culprit));
    ASSERT_EQ(peer.host.receives.size(), 1U);
    EXPECT_EQ(peer.host.receives[0].status, Status::local_length);
    EXPECT_EQ(memory.copy(), Content(10));
  }
}

TEST(Terminate, OfASendWhoseSecondSegmentIsTooLong) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(10);
  peer.host.post_receive(9, {memory.slice()});
  peer.send(send(1, pattern(6), {.last = false}));
  const auto culprit = send(1, pattern(5), {.offset = 6});
  peer.send(culprit);
  peer.expect_terminate(terminate(code::untagged_too_long, culprit));
  EXPECT_EQ(peer.host.receives.at(0).status, Status::local_length);
  EXPECT_EQ(memory.copy(6, 4), Content(4));
}

// RFC 5041 §7: segments of one message leave no gap and do not overlap.
TEST(Terminate, OfASendWithAGapOrAnOverlap) {
  for (const std::uint32_t offset : {0U, 5U, 7U}) {
    ScriptedPeer peer(roomy(false));
    Region& memory = peer.host.add(100);
    peer.host.post_receive(9, {memory.slice()});
    peer.send(send(1, Content(6), {.last = false}));
    const auto culprit = send(1, pattern(6), {.offset = offset});
    peer.send(culprit);
    peer.expect_terminate(terminate(code::untagged_invalid_offset, culprit));
    EXPECT_EQ(peer.host.receives.at(0).status, Status::flushed);
  }
}

TEST(Terminate, OfARepeatedMsn) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(100);
  peer.host.post_receive(1, {memory.slice()});
  peer.host.post_receive(2, {memory.slice()});
  peer.send(send(1, Content(6)));
  peer.send(send(1, Content(6)));
  peer.expect_terminate(terminate(code::untagged_msn_range, send(1, Content(6))));
  EXPECT_EQ(peer.host.posted_receives.size(), 1U);
}

// RFC 5040 §5.3: the STag cannot be invalidated.
TEST(Terminate, OfAnInvalidateThatIsNotAllowed) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(10);
  Region& foreign = peer.host.add(10, {}, 0, 0, 1);
  peer.host.post_receive(1, {memory.slice()});
  const auto culprit = send(1, Content(4), {}, RdmapOpcode::send_invalidate, foreign.rkey());
  peer.send(culprit);
  peer.expect_terminate(terminate(code::rdma_cannot_invalidate, culprit));
  EXPECT_TRUE(foreign.valid);
  EXPECT_EQ(peer.host.receives.at(0).status, Status::local_operation);
}

// RFC 5044 §8: an impossible length field. Nothing is known that could be quoted.
TEST(Terminate, OfAnFpduWithoutRoomForItsHeader) {
  for (const std::size_t bytes : {0U, 1U, 13U}) {
    ScriptedPeer peer(roomy(false));
    Ulpdu culprit = write(1, 2, {});
    culprit.bytes.resize(bytes);
    peer.send(culprit);
    peer.expect_terminate(terminate(code::mpa_marker));
  }
  ScriptedPeer peer(roomy(false));
  Ulpdu culprit = send(1, {});
  culprit.bytes.resize(17);
  peer.send(culprit);
  peer.expect_terminate(terminate(code::mpa_marker));
}

// A read that fails half-way: the region was removed between two of its segments.
TEST(Terminate, OfAReadWhoseSourceIsWithdrawn) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(600'000);
  const auto culprit = read_request(1, {.sink_stag = 3,
                                        .size_bytes = 600'000,
                                        .source_stag = memory.rkey(),
                                        .source_offset = memory.address()});
  peer.send(culprit);
  EXPECT_FALSE(peer.connection.plan_send().empty());
  memory.valid = false;
  Ulpdu last;
  std::size_t segments = 0;
  while (!peer.connection.ended() || segments < 10) {
    last = peer.next();
    ++segments;
    ASSERT_LT(segments, 600'000U / 1428);
  }
  while (wire::ddp_is_tagged(last.bytes.at(0))) last = peer.next();
  EXPECT_EQ(last, terminate(code::rdma_invalid_stag, culprit, true));
  peer.expect_nothing();
}

// Reads that arrived before the fault are answered, so the peer learns what was carried out.
TEST(Terminate, ComesBehindTheAnswersToEarlierReads) {
  ScriptedPeer peer(roomy(false));
  peer.send(empty_read(1));
  const auto culprit = write(1, 2, Content(4));
  peer.send_raw(joined(fpdu(empty_read(2)), fpdu(culprit)));
  peer.expect(empty_response());
  peer.expect(empty_response());
  peer.expect_terminate(terminate(code::tagged_invalid_stag, culprit));
}

// If one of the earlier requests is at fault itself, the Terminate names that one.
TEST(Terminate, NamesTheFirstFault) {
  ScriptedPeer peer(roomy(false));
  const auto first = read_request(1, {.size_bytes = 1, .source_stag = 9});
  peer.send_raw(joined(fpdu(first), fpdu(write(1, 2, Content(4)))));
  peer.expect_terminate(terminate(code::rdma_invalid_stag, first, true));
}

// RFC 5040 §5.4: a side that has sent its Terminate processes nothing more.
TEST(Terminate, IsTheEndInBothDirections) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(10);
  peer.send(send(1, {}));
  (void)peer.next();
  peer.send(write(memory.rkey(), memory.address(), text("late")));
  peer.send(empty_read(1));
  peer.expect_nothing();
  EXPECT_EQ(memory.copy(), Content(10));
  peer.connection.peer_closed(0);
  peer.connection.close();
  EXPECT_EQ(peer.host.end_reason, iwarp::EndReason::terminated);
}

// There is more than one burst to send: the answer is completed before the Terminate.
TEST(Terminate, WaitsForALongAnswerToAnEarlierRead) {
  constexpr std::size_t size = 1'000'000;
  auto options = roomy(false);
  options.mulpdu_bytes = 64'000;
  ScriptedPeer peer(options);
  Region& origin = peer.host.add(pattern(size));
  peer.send(read_request(
      1, {.size_bytes = size, .source_stag = origin.rkey(), .source_offset = origin.address()}));
  const auto culprit = write(5, 0, Content(4));
  peer.send(culprit);
  peer.send(write(origin.rkey(), origin.address(), Content(4)));  // is discarded
  std::size_t answered = 0;
  while (answered < size) {
    const std::size_t part = std::min<std::size_t>(size - answered, 64'000 - 14);
    peer.expect(read_response(0, answered, origin.copy(answered, part), answered + part == size));
    answered += part;
    if (HasFailure()) return;
  }
  peer.expect_terminate(terminate(code::tagged_invalid_stag, culprit));
}

}  // namespace
}  // namespace weft::test
