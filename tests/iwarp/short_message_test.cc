// Messages that may be taken in one step (Deframer::take_short) have the same effects as those that
// arrive in pieces, which go the other way.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "support/pair.h"
#include "support/pump.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using wire::RdmapOpcode;

constexpr std::size_t step = 16;  // between the places of two messages
constexpr std::uint64_t memory_address = 0x10000;

// The places of the messages lie at the beginning, those of receives behind them.
struct Script {
  std::string name;
  // Posts receives, if there are to be any.
  void (*prepare)(ScriptedPeer& peer, Region& memory);
  // What the peer sends, by the key of the memory.
  std::vector<Content> (*fpdus)(std::uint32_t key);
};

std::ostream& operator<<(std::ostream& out, const Script& script) {
  return out << script.name;
}

std::vector<Content> fpdus_of(std::initializer_list<Ulpdu> ulpdus) {
  std::vector<Content> made;
  for (const Ulpdu& ulpdu : ulpdus) made.push_back(fpdu(ulpdu));
  return made;
}

// Three receives: one slice, two slices, one slice that is longer.
void post_three(ScriptedPeer& peer, Region& memory) {
  peer.host.post_receive(1, {memory.slice(8 * step, 8)});
  peer.host.post_receive(2, {memory.slice(9 * step, 3), memory.slice(10 * step, 5)});
  peer.host.post_receive(3, {memory.slice(11 * step, 16)});
}

void post_none(ScriptedPeer& /*peer*/, Region& /*memory*/) {}

std::vector<Content> sends(std::uint32_t /*key*/) {
  return fpdus_of({send(1, pattern(8)), send(2, pattern(8)), send(3, pattern(1))});
}

const std::vector<Script>& scripts() {
  static const std::vector<Script> all{
      {"Sends", post_three, sends},
      {"SendsThatFindNoReceive", post_none, sends},
      {"SendsOfOtherKinds", post_three,
       [](std::uint32_t /*key*/) {
         return fpdus_of({send(1, {}), send(2, pattern(4), {}, RdmapOpcode::send_solicited),
                          send(3, pattern(5))});
       }},
      {"ASendTooLong", post_three,
       [](std::uint32_t /*key*/) {
         return fpdus_of({send(1, pattern(8)), send(2, pattern(9))});
       }},
      {"ASendOutOfOrder", post_three,
       [](std::uint32_t /*key*/) {
         return fpdus_of({send(1, pattern(8)), send(3, pattern(8))});
       }},
      {"ASendOnAnotherQueue", post_three,
       [](std::uint32_t /*key*/) {
         return fpdus_of({untagged(
             {.last = true, .rdmap_control = wire::rdmap_control(RdmapOpcode::send), .queue = 1},
             pattern(8))});
       }},
      {"ASendOfSeveralSegments", post_three,
       [](std::uint32_t /*key*/) {
         return fpdus_of({send(1, pattern(4), {.last = false}), send(1, pattern(4), {.offset = 4}),
                          send(2, pattern(8))});
       }},
      {"ASendThatBeginsBehindItsBegin", post_three,
       [](std::uint32_t /*key*/) { return fpdus_of({send(1, pattern(4), {.offset = 4})}); }},
      {"Writes", post_three,
       [](std::uint32_t key) {
         return fpdus_of({write(key, memory_address, pattern(8)),
                          write(key, memory_address + step, pattern(3)), send(1, pattern(8))});
       }},
      {"WritesOfSeveralSegmentsAndAnImmediate", post_three,
       [](std::uint32_t key) {
         return fpdus_of({write(key, memory_address, pattern(4), false),
                          write(key, memory_address + 4, pattern(4)), immediate(1, 5),
                          write(key, memory_address + step, pattern(7)), immediate(2, 6)});
       }},
      {"WritesBehindASendThatIsHeld", post_none,
       [](std::uint32_t key) {
         return fpdus_of({send(1, pattern(8)), write(key, memory_address, pattern(8)),
                          empty_read(1), write(key, memory_address + step, pattern(3))});
       }},
      {"AWriteOutOfBounds", post_three,
       [](std::uint32_t key) {
         return fpdus_of(
             {write(key, memory_address, pattern(8)), write(key, memory_address - 1, pattern(8))});
       }},
      {"AWriteWithAnotherKey", post_three,
       [](std::uint32_t key) {
         return fpdus_of({write(key + 0x100, memory_address, pattern(8))});
       }},
      {"AnEmptyWriteWithAnotherKey", post_three,
       [](std::uint32_t key) {
         return fpdus_of({write(key + 0x100, memory_address, {}), send(1, pattern(8))});
       }},
      {"ProofsInBetween", post_three,
       [](std::uint32_t key) {
         return fpdus_of({send(1, pattern(8)), empty_read(1),
                          write(key, memory_address, pattern(8)), empty_read(2),
                          send(2, pattern(8))});
       }},
      {"ADamagedOne", post_three,
       [](std::uint32_t /*key*/) {
         auto made = fpdus_of({send(1, pattern(8)), send(2, pattern(8)), send(3, pattern(8))});
         made[1][21] ^= std::byte{1};  // in the payload
         return made;
       }},
      // RFC 5041 §4.1: the four bits that are reserved are not checked.
      {"ReservedBits", post_three,
       [](std::uint32_t /*key*/) {
         auto reserved = send(1, pattern(8));
         reserved.bytes[0] |= std::byte{0x3C};
         return fpdus_of({reserved, send(2, pattern(8))});
       }},
      {"AForeignVersion", post_three,
       [](std::uint32_t /*key*/) {
         auto foreign = send(2, pattern(8));
         foreign.bytes[0] |= std::byte{0x02};
         return fpdus_of({send(1, pattern(8)), foreign});
       }},
      {"TheShortEndOfALongMessage", post_three,
       [](std::uint32_t key) {
         return fpdus_of({write(key, memory_address, pattern(1000), false),
                          write(key, memory_address + 1000, pattern(8)), send(1, pattern(8))});
       }},
  };
  return all;
}

// Everything that a message can change.
using Received = std::tuple<std::uint64_t, iwarp::Status, std::uint32_t, bool, bool, std::uint32_t>;
struct Outcome {
  std::vector<Received> receives;
  Content memory;
  Content sent;
  iwarp::EndReason end = iwarp::EndReason::none;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome(const Script& script, std::size_t piece_bytes) {
  ScriptedPeer peer(patient_pair(10'000).b);
  Region& memory = peer.host.add(2048, {}, 0, memory_address);
  script.prepare(peer, memory);
  // The first FPDU of a stream goes the long way in any case.
  peer.send(write(memory.rkey(), memory_address + 2000, pattern(1)));
  Content stream;
  for (const Content& fpdu : script.fpdus(memory.rkey())) stream = joined(stream, fpdu);
  for (Bytes rest(stream); !rest.empty();) {
    const std::size_t piece = std::min(piece_bytes, rest.size());
    peer.send_raw(rest.first(piece));
    rest = rest.subspan(piece);
  }
  Outcome made;
  made.memory = memory.copy();
  made.sent = drain(peer.connection);
  for (const auto& done : peer.host.receives) {
    made.receives.emplace_back(done.wr_id, done.status, done.length_bytes, done.solicited,
                               done.has_immediate, done.immediate_be);
  }
  made.end = peer.connection.end_reason();
  return made;
}

class ShortMessages : public testing::TestWithParam<Script> {};

TEST_P(ShortMessages, HaveTheSameEffectsWholeAndInPieces) {
  const Outcome whole = outcome(GetParam(), SIZE_MAX);
  EXPECT_EQ(whole, outcome(GetParam(), 1));
  EXPECT_EQ(whole, outcome(GetParam(), 21));
}

INSTANTIATE_TEST_SUITE_P(Scripts, ShortMessages, testing::ValuesIn(scripts()),
                         [](const auto& script) { return script.param.name; });

// The scripts above would agree if nothing happened at all.
TEST(ShortMessage, IsReceived) {
  const Outcome made = outcome(scripts().front(), SIZE_MAX);
  ASSERT_EQ(made.receives.size(), 3U);
  EXPECT_EQ(std::get<0>(made.receives[2]), 3U);
  EXPECT_EQ(std::get<1>(made.receives[2]), iwarp::Status::success);
  EXPECT_EQ(std::get<2>(made.receives[2]), 1U);
  const Bytes memory(made.memory);
  const Content expected = pattern(8);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory.begin() + 8 * step));
  EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + 3, memory.begin() + 9 * step));
  EXPECT_TRUE(std::equal(expected.begin() + 3, expected.end(), memory.begin() + 10 * step));
}

}  // namespace
}  // namespace weft::test
