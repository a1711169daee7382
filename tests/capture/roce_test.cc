// RoCE and native InfiniBand, generated: whatever happens to the packets of a conversation in which
// every byte is known, what comes out is right, or said to be incomplete.
#include <gtest/gtest.h>

#include <algorithm>

#include "capture/analysed.h"
#include "capture/made_roce.h"
#include "support/random.h"
#include "wire/link.h"
#include "wire/roce_packets.h"

namespace weft::capture::test {
namespace {

using Carrier = RoceOptions::Carrier;
using wire::IbTransport;

// Messages of both sides and every kind, of one to five packets.
void talk_at_length(RoceTalk& talk, bool reads = true) {
  for (const std::size_t size : {0U, 1U, 255U, 256U, 257U, 1'100U}) {
    talk.send(Side::a, size);
    talk.write(Side::b, 7, 0x1000 + size, size);
    if (reads) talk.read(Side::a, 9, 0x20000 + size, size);
    talk.send(Side::b, size + 2);
    if (reads) talk.fetch_add(Side::b, 9, 0x8, 1, size);
  }
}

constexpr std::size_t messages_at_length = 6 * 4;

MadeCapture conversation(const RoceOptions& options = {}, bool managed = true) {
  MadeCapture capture;
  RoceTalk talk(capture, options);
  if (managed) talk.connect();
  talk_at_length(talk);
  if (managed) talk.disconnect();
  return capture;
}

void expect_all(const Analysed& seen) {
  EXPECT_EQ(seen.whole().size(), messages_at_length);
  EXPECT_EQ(seen.traffic.atomic_answers.size(), 6U);
  EXPECT_TRUE(seen.traffic.violations.empty());
  EXPECT_EQ(seen.traffic.lost_packets + seen.traffic.lost_bytes, 0U);
  EXPECT_EQ(seen.traffic.unknown_answers, 0U);
  expect_known_bytes(seen.traffic);
}

class RoceCarriers : public testing::TestWithParam<Carrier> {};

TEST_P(RoceCarriers, CarryTheSame) {
  const Analysed seen(conversation({.carrier = GetParam()}));
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.connection().beginning, Connection::Beginning::handshake);
  EXPECT_EQ(seen.connection().end, Connection::End::closed);
  EXPECT_EQ(seen.connection().mtu_bytes, 256U);
  EXPECT_EQ(seen.connection().offer_a.ird, 4U);
  EXPECT_EQ(seen.connection().offer_b.ord, 1U);
  expect_all(seen);
  EXPECT_EQ(seen.traffic.repeated_bytes, 0U);
  EXPECT_EQ(seen.analysis.infiniband().bad_checksum, 0U);
  for (const Operation& operation : seen.operations.operations) {
    EXPECT_EQ(operation.outcome, Operation::Outcome::complete);
    EXPECT_GE(operation.latency_ns(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoceCarriers,
                         testing::Values(Carrier::ipv4, Carrier::ipv6, Carrier::v1, Carrier::native,
                                         Carrier::native_global));

TEST(RoceTransports, ExtendedReliableIsLikeReliable) {
  const Analysed seen(conversation({.transport = IbTransport::xrc}));
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.connection().transport, Transport::xrc);
  expect_all(seen);
}

TEST(RoceTransports, UnreliableLosesWithoutRepeating) {
  MadeCapture capture;
  RoceTalk talk(capture, {.transport = IbTransport::uc});
  talk.connect();
  talk_at_length(talk, false);
  ASSERT_EQ(Analysed(capture).whole().size(), 18U);
  for (std::size_t drop = 3; drop < capture.size(); ++drop) {
    MadeCapture less = capture;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(drop));
    const Analysed seen(less);
    EXPECT_EQ(seen.connection().transport, Transport::uc);
    EXPECT_EQ(seen.whole().size(), 17U) << drop;
    expect_known_bytes(seen.traffic);
  }
}

TEST(RoceNumbers, WrapAtEveryPlace) {
  for (std::uint32_t before = 0; before <= 64; ++before) {
    const std::uint32_t psn = (0x1000000 - before) & wire::psn_mask;
    SCOPED_TRACE(before);
    expect_all(Analysed(conversation({.psn_a = psn, .psn_b = psn})));
    expect_all(Analysed(conversation({.psn_a = psn, .psn_b = psn ^ 0x800000}, false)));
  }
}

TEST(RoceDamage, OnePacketLessIsNeverSilentlyWrong) {
  const MadeCapture capture = conversation();
  const auto complete = Analysed(capture).whole();
  for (std::size_t drop = 0; drop < capture.size(); ++drop) {
    SCOPED_TRACE(drop);
    MadeCapture less = capture;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(drop));
    const Analysed seen(less);
    expect_known_bytes(seen.traffic);
    // One message at most, and nothing else comes of it.
    const auto whole = seen.whole();
    EXPECT_GE(whole.size() + 1, complete.size());
    EXPECT_TRUE(std::ranges::includes(complete, whole));
    for (const Violation& violation : seen.traffic.violations) {
      ADD_FAILURE() << int(violation.kind) << ' ' << violation.found << ' ' << violation.expected;
    }
    if (whole.size() == complete.size()) continue;
    std::size_t incomplete = seen.traffic.lost_packets + seen.traffic.unknown_answers;
    for (const Operation& operation : seen.operations.operations) {
      if (operation.outcome != Operation::Outcome::complete) ++incomplete;
    }
    EXPECT_GT(incomplete, 0U);
  }
}

TEST(RoceDamage, TwoPacketsLessAreNeverSilentlyWrong) {
  const MadeCapture capture = conversation();
  const auto complete = Analysed(capture).whole();
  for (std::size_t drop = 0; drop + 1 < capture.size(); ++drop) {
    SCOPED_TRACE(drop);
    MadeCapture less = capture;
    const auto first = less.begin() + static_cast<std::ptrdiff_t>(drop);
    less.erase(first, first + 2);
    const Analysed seen(less);
    expect_known_bytes(seen.traffic);
    EXPECT_TRUE(std::ranges::includes(complete, seen.whole()));
    EXPECT_GE(seen.whole().size() + 2, complete.size());
  }
}

TEST(RoceDamage, EachPacketTwiceIsARepeat) {
  const MadeCapture capture = conversation();
  for (std::size_t twice = 0; twice < capture.size(); ++twice) {
    SCOPED_TRACE(twice);
    MadeCapture more = capture;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(twice), capture[twice]);
    const Analysed seen(more);
    EXPECT_EQ(seen.connections(), 1U);
    expect_all(seen);
  }
}

// No packet comes more than `window` places too late. The connection manager's stay where they are.
MadeCapture shuffled(const MadeCapture& capture, weft::test::Random& random, std::size_t window) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t i = 0; i < capture.size(); ++i) {
    const bool managed = i < 3 || i + 2 >= capture.size();
    const std::size_t place = i < 3 ? 0 : managed ? capture.size() + window : i;
    places.emplace_back(place + (managed ? 0 : random.below(window)), i);
  }
  std::ranges::sort(places);
  MadeCapture out;
  for (const auto& [place, i] : places) out.push_back(capture[i]);
  return out;
}

TEST(RoceDamage, ShuffledPacketsComeOutInOrder) {
  for (const std::uint64_t seed : weft::test::seeds(200)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    const Analysed seen(shuffled(conversation(), random, random.between(2, 8)));
    EXPECT_EQ(seen.connections(), 1U);
    expect_all(seen);
  }
}

// Moves one packet `distance` places back.
MadeCapture delayed(MadeCapture capture, std::size_t packet, std::size_t distance) {
  const auto from = capture.begin() + static_cast<std::ptrdiff_t>(packet);
  std::rotate(from, from + 1, from + 1 + static_cast<std::ptrdiff_t>(distance));
  return capture;
}

// The packet was acknowledged long before it comes.
TEST(RoceDamage, AnAcknowledgedPacketMayComeLate) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  const std::size_t begin = capture.size();
  constexpr std::size_t messages = 320;
  for (std::size_t i = 0; i < messages; ++i) talk.send(Side::a, 600);
  for (const std::size_t distance : {16U, 17U, 100U, 512U}) {
    for (const std::size_t packet : {begin, begin + 1, begin + 2, begin + 50}) {
      const Analysed seen(delayed(capture, packet, distance));
      EXPECT_EQ(seen.whole().size(), messages) << packet << ' ' << distance;
      EXPECT_EQ(seen.traffic.lost_packets + seen.traffic.lost_bytes, 0U);
      EXPECT_EQ(seen.traffic.repeated_bytes, 0U);
      expect_known_bytes(seen.traffic);
    }
  }
}

TEST(RoceDamage, FarShuffledPacketsAreNeverSilentlyWrong) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  constexpr std::size_t rounds = 12;
  for (std::size_t i = 0; i < rounds; ++i) talk_at_length(talk);
  talk.disconnect();
  for (const std::uint64_t seed : weft::test::seeds(10)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    const Analysed seen(shuffled(capture, random, random.between(100, 512)));
    expect_known_bytes(seen.traffic);
  }
}

// After the loss of a First and a Middle packet, and of another Middle one, the Last packet alone
// does not show where its message began.
TEST(RoceDamage, ALastPacketOfAnUnknownMessageIsNotPlaced) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.send(Side::a, 1'000);
  const std::size_t first = capture.size();
  talk.acknowledge_all(false);
  talk.send(Side::a, 1'100);
  MadeCapture less;
  for (std::size_t i = 0; i < capture.size(); ++i) {
    const bool lost = i == first || i == first + 1 || i == first + 3;
    if (!lost) less.push_back(capture[i]);
  }
  const Analysed seen(less);
  expect_known_bytes(seen.traffic);
  EXPECT_EQ(seen.whole().size(), 1U);
}

TEST(RoceDamage, CutPacketsLackTheirEnds) {
  const MadeCapture whole = conversation();
  for (const std::size_t snap_bytes : {60U, 100U, 200U, 320U}) {
    const Analysed seen(cut(whole, snap_bytes));
    expect_known_bytes(seen.traffic);
    EXPECT_TRUE(seen.traffic.violations.empty());
    EXPECT_EQ(seen.connections(), 1U);
  }
}

TEST(RoceDamage, WrongChecksumsCountForNothing) {
  MadeCapture capture = conversation();
  const auto complete = Analysed(capture).whole();
  MadePacket& damaged = capture[8];
  damaged.bytes.back() ^= std::byte{1};
  const Analysed seen(capture);
  EXPECT_EQ(seen.analysis.infiniband().bad_checksum, 1U);
  ASSERT_EQ(seen.traffic.violations.size(), 1U);
  EXPECT_EQ(seen.traffic.violations[0].kind, Violation::Kind::bad_checksum);
  EXPECT_LT(seen.whole().size(), complete.size());
  expect_known_bytes(seen.traffic);
}

// A packet with a Global Route Header from a capture of real adapters: IP over InfiniBand, which is
// a tunnel if its checksum is right.
TEST(RoceDamage, ChecksumsOfRoutedPacketsAreRight) {
  MadePacket packet{.link_type = wire::link_type::infiniband};
  packet.bytes.assign(wire::infiniband_multicast.begin(), wire::infiniband_multicast.end());
  packet.bytes.resize(packet.bytes.size() + 2);  // the variant CRC
  packet.wire_bytes = packet.bytes.size();
  const Analysed seen({packet});
  ASSERT_EQ(seen.analysis.tunnels().size(), 1U);
  EXPECT_EQ(seen.analysis.tunnels()[0].name, "IPoIB");
  EXPECT_EQ(seen.analysis.infiniband().packets, 0U);
  packet.bytes[packet.bytes.size() - 3] ^= std::byte{1};
  const Analysed damaged({packet});
  EXPECT_TRUE(damaged.analysis.tunnels().empty());
  EXPECT_EQ(damaged.analysis.infiniband().bad_checksum, 1U);
}

// Another protocol with this port: random bytes, or headers that never change.
TEST(RoceDamage, OtherProtocolsOnThePortAreNoConnections) {
  weft::test::Random random(1);
  for (const bool varies : {true, false}) {
    MadeCapture capture;
    RoceTalk talk(capture, {});
    for (int i = 0; i < 500; ++i) talk.send(i % 2 == 0 ? Side::a : Side::b, 100);
    constexpr std::size_t payload_at = 14 + 20 + 8;
    const Content text(400, std::byte{'E'});
    for (MadePacket& packet : capture) {
      for (std::size_t at = payload_at; at < packet.bytes.size(); ++at) {
        packet.bytes[at] = varies ? static_cast<std::byte>(random.below(256)) : text[at];
      }
    }
    const Analysed seen(capture);
    EXPECT_LE(seen.connections(), 2U);
    const InfinibandCounts& counts = seen.analysis.infiniband();
    EXPECT_GE(counts.not_roce + counts.malformed, capture.size() - 5);
  }
}

// As a capture of the sender has them if the adapter computes the ICRC.
TEST(RoceDamage, PacketsWithoutTheirChecksumAreRoce) {
  MadeCapture capture = conversation();
  for (MadePacket& packet : capture)
    std::fill(packet.bytes.end() - 4, packet.bytes.end(), std::byte{});
  const Analysed seen(capture);
  EXPECT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.whole().size(), messages_at_length);
  EXPECT_EQ(seen.analysis.infiniband().not_roce, 0U);
  expect_known_bytes(seen.traffic);
}

// A mirror that copies each packet where it enters the switch and where it leaves it.
TEST(RoceDamage, CopiesThatTheCaptureMadeAreNoRepeats) {
  const MadeCapture original = conversation();
  for (const std::size_t distance : {1U, 5U}) {
    MadeCapture doubled;
    for (std::size_t i = 0; i < original.size() + distance; ++i) {
      if (i < original.size()) doubled.push_back(original[i]);
      if (i < distance) continue;
      doubled.push_back(original[i - distance]);
      doubled.back().time_ns += 2'000;
    }
    const Analysed seen(doubled);
    EXPECT_EQ(seen.analysis.infiniband().copies, original.size());
    EXPECT_EQ(seen.traffic.repeated_bytes, 0U);
    EXPECT_EQ(seen.traffic.repeated_requests, 0U);
    expect_all(seen);
  }
}

TEST(RoceJoining, WithoutTheManagerWhatAnswersBelongsTogether) {
  const Analysed seen(conversation({.qp_a = 0x21, .qp_b = 0x31}, false));
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.connection().beginning, Connection::Beginning::traffic);
  EXPECT_TRUE(seen.connection().a.known && seen.connection().b.known);
  EXPECT_EQ(seen.connection().a.number, 0x21U);
  EXPECT_EQ(seen.connection().b.number, 0x31U);
  expect_all(seen);
}

// The lowest PSN is not the first in the capture.
TEST(RoceJoining, WithoutTheManagerTheFirstPacketsMayBeSwapped) {
  for (const Side side : {Side::a, Side::b}) {
    MadeCapture capture;
    RoceTalk talk(capture, {});
    talk.send(side, 1'000);
    talk_at_length(talk);
    constexpr std::size_t packets = 4;
    for (std::size_t first = 0; first < packets; ++first) {
      for (std::size_t second = first + 1; second < packets; ++second) {
        MadeCapture swapped = capture;
        std::swap(swapped[first], swapped[second]);
        const Analysed seen(swapped);
        ASSERT_EQ(seen.connections(), 1U);
        EXPECT_EQ(seen.whole().size(), messages_at_length + 1) << first << ' ' << second;
        EXPECT_EQ(seen.traffic.lost_packets + seen.traffic.lost_bytes, 0U);
        EXPECT_EQ(seen.traffic.repeated_bytes, 0U);
        expect_known_bytes(seen.traffic);
      }
    }
  }
}

// The request waits until its direction is known, and is not forgotten then.
TEST(RoceJoining, AReadMayComeBeforeTheFirstAcknowledgement) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.acknowledge_all(false);
  const std::uint32_t sent = talk.next_psn(Side::a);
  talk.send(Side::a, 100);
  const std::uint32_t psn = talk.read_request(Side::b, 7, 0x1000, 600);
  talk.acknowledge(Side::b, sent);
  talk.read_answer(Side::a, psn, memory_bytes(7, 0x1000, 600));
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.whole().size(), 2U);
  EXPECT_EQ(seen.traffic.unknown_answers, 0U);
  expect_known_bytes(seen.traffic);
}

// Two queue pairs that begin with the same PSNs. Each answer belongs to what was sent before it.
TEST(RoceJoining, EqualPsnsOfTheSameHostsAreToldApartByTime) {
  const MadeCapture one = conversation({.qp_a = 0x21, .qp_b = 0x31}, false);
  const MadeCapture two = conversation({.qp_a = 0x22, .qp_b = 0x32}, false);
  for (const std::uint64_t seed : weft::test::seeds(50)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    MadeCapture capture;
    for (std::size_t i = 0, k = 0; i < one.size() || k < two.size();) {
      const bool first = k == two.size() || (i < one.size() && random.below(2) == 0);
      capture.push_back(first ? one[i++] : two[k++]);
    }
    const Analysed seen(capture);
    ASSERT_EQ(seen.connections(), 2U);
    EXPECT_EQ(seen.whole().size(), 2 * messages_at_length);
    EXPECT_EQ(seen.traffic.lost_packets + seen.traffic.unknown_answers, 0U);
    expect_known_bytes(seen.traffic);
    for (const Connection& connection : seen.analysis.connections()) {
      EXPECT_EQ(connection.a.number + 0x10, connection.b.number);
    }
  }
}

// Packets of all, one after the other.
MadeCapture interleaved(const std::vector<MadeCapture>& captures) {
  MadeCapture all;
  for (std::size_t i = 0; i < captures[0].size(); ++i) {
    for (const MadeCapture& one : captures) all.push_back(one[i]);
  }
  return all;
}

TEST(RoceJoining, EqualNumbersOfOtherHostsNeverMix) {
  for (const bool managed : {true, false}) {
    const Analysed seen(
        interleaved({conversation({}, managed), conversation({.host_a = 3}, managed),
                     conversation({.host_a = 3, .host_b = 4}, managed)}));
    ASSERT_EQ(seen.connections(), 3U);
    EXPECT_EQ(seen.whole().size(), 3 * messages_at_length);
    expect_known_bytes(seen.traffic);
    EXPECT_TRUE(seen.traffic.violations.empty());
  }
}

TEST(RoceJoining, EqualKeysAndPsnsOfTheSameHostsNeverMix) {
  const Analysed seen(interleaved({conversation({}), conversation({.qp_a = 0x12, .qp_b = 0x12}),
                                   conversation({.qp_a = 0x13, .qp_b = 0x14})}));
  ASSERT_EQ(seen.connections(), 3U);
  EXPECT_EQ(seen.whole().size(), 3 * messages_at_length);
  expect_known_bytes(seen.traffic);
}

TEST(RoceJoining, ANumberThatIsUsedAgainIsAnotherConnection) {
  MadeCapture capture = conversation({}, false);
  for (const MadePacket& packet : conversation({.psn_a = 0x700000, .psn_b = 0x123456}, false)) {
    capture.push_back(packet);
  }
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 2U);
  EXPECT_EQ(seen.whole().size(), 2 * messages_at_length);
  expect_known_bytes(seen.traffic);
}

// Packets of one side only: there are no acknowledgements, and no answers to learn the MTU from.
MadeCapture one_sided(const MadeCapture& capture, std::uint8_t host) {
  constexpr std::size_t source_ends_at = 14 + 15;
  MadeCapture out;
  for (const MadePacket& packet : capture) {
    if (packet.bytes[source_ends_at] == std::byte{host}) out.push_back(packet);
  }
  return out;
}

TEST(RoceOneSided, RequestsComeOutAsTheyAre) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  for (const std::size_t size : {1'100U, 300U, 2'000U}) {
    talk.read(Side::a, 7, 0x1000, size);
    talk.fetch_add(Side::a, 7, 0x8, 1, 2);
  }
  talk.send(Side::a, 1'000);
  const Analysed seen(one_sided(capture, 2));
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_FALSE(seen.connection().a.known);
  EXPECT_EQ(seen.connection().mtu_bytes, 256U)
      << "by how far the next request stands behind a Read";
  EXPECT_EQ(seen.traffic.lost_packets, 0U);
  EXPECT_EQ(seen.traffic.sends.size(), 1U);
  EXPECT_EQ(seen.operations.count(Operation::Kind::read), 3U);
  for (const Operation& operation : seen.operations.operations) {
    if (!operation.is_request()) continue;
    EXPECT_EQ(operation.outcome, Operation::Outcome::unanswered);
  }
}

TEST(RoceOneSided, AnswersAreToNobodyKnown) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.read(Side::a, 7, 0x1000, 1'100);
  const Analysed seen(one_sided(capture, 1));
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.traffic.unknown_answers, 5U);
  EXPECT_TRUE(seen.traffic.reads.empty());
}

// More directions than are kept in question at a time: each becomes a connection of its own.
TEST(RoceLimits, WhatCannotBeJoinedIsShownAlone) {
  Analysis::Limits limits;
  limits.infiniband.undecided_flows = 2;
  limits.infiniband.undecided_packets = 3;
  limits.infiniband.alone = 2;
  Analysis analysis(limits);
  TrafficLog traffic;
  analysis.add_sink(traffic);
  MadeCapture capture;
  for (std::uint32_t i = 0; i < 10; ++i) {
    RoceTalk talk(capture, {.qp_a = 0x11 + i, .qp_b = 0x11 + i, .psn_a = 1'000 * i});
    talk.acknowledge_all(false);
    for (int message = 0; message < 5; ++message) {
      talk.send(Side::a, 10);
      talk.send(Side::b, 10);
    }
  }
  feed(analysis, capture);
  EXPECT_EQ(analysis.connections().size(), 20U);
  EXPECT_EQ(traffic.sends.size(), 100U);
  expect_known_bytes(traffic);
}

TEST(RoceManager, RejectionsAreSeen) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  capture.resize(1);
  EXPECT_EQ(Analysed(capture).connection().end, Connection::End::unanswered);
  talk.reject();
  EXPECT_EQ(Analysed(capture).connection().end, Connection::End::rejected);
}

TEST(RoceRecovery, ReceiverNotReadyIsToldWithItsTimer) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.acknowledge_all(false);
  const std::uint32_t psn = talk.next_psn(Side::a);
  talk.send(Side::a, 100);
  const MadePacket sent = capture.back();
  talk.acknowledge(Side::b, psn, wire::Aeth::rnr_nak(0, 12));
  capture.push_back(sent);
  talk.acknowledge(Side::b, psn);
  const Analysed seen(capture);
  ASSERT_EQ(seen.traffic.refusals.size(), 1U);
  EXPECT_EQ(seen.traffic.refusals[0].kind, Refusal::Kind::receiver_not_ready);
  EXPECT_EQ(seen.traffic.refusals[0].timer_ns, 640'000U);
  ASSERT_EQ(seen.operations.operations.size(), 1U);
  EXPECT_EQ(seen.operations.operations[0].not_ready, 1U);
  EXPECT_EQ(seen.operations.operations[0].outcome, Operation::Outcome::complete);
  EXPECT_EQ(seen.traffic.repeated_bytes, 100U);
}

// A packet that was lost before it was captured is asked for again, with all that came behind it.
TEST(RoceRecovery, GoesBackToWhatWasLost) {
  MadeCapture sent;
  RoceTalk talk(sent, {});
  talk.connect();
  talk.acknowledge_all(false);
  const std::uint32_t psn = talk.next_psn(Side::a);
  talk.send(Side::a, 1'000);
  talk.write(Side::a, 7, 0x1000, 1'000);
  const std::size_t first = 3;
  for (std::size_t lost = first; lost < sent.size(); ++lost) {
    MadeCapture capture = sent;
    capture.erase(capture.begin() + static_cast<std::ptrdiff_t>(lost));
    RoceTalk answers(capture, {});
    answers.acknowledge(Side::b, wire::psn_plus(psn, lost - first),
                        wire::Aeth::nak(0, wire::Aeth::Nak::psn_sequence_error));
    capture.insert(capture.end(), sent.begin() + static_cast<std::ptrdiff_t>(lost), sent.end());
    answers.acknowledge(Side::b, wire::psn_plus(psn, sent.size() - first - 1));
    const Analysed seen(capture);
    EXPECT_EQ(seen.whole().size(), 2U) << lost;
    EXPECT_EQ(seen.traffic.lost_packets, 0U);
    expect_known_bytes(seen.traffic);
    for (const Operation& operation : seen.operations.operations) {
      EXPECT_TRUE(operation.confirmed);
    }
  }
}

// Reads of 16 packets until there were `later` response packets after the lost one.
MadeCapture late_again(std::size_t later) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  constexpr std::uint64_t address = 0x1000;
  const Content answer = memory_bytes(9, address, 600);
  const std::uint32_t psn = talk.read_request(Side::a, 9, address, 600);
  talk.read_answer(Side::b, psn, answer);
  capture.erase(capture.end() - 2);  // the second of three
  constexpr std::size_t read_bytes = std::size_t{16} * 256;
  for (std::size_t at = 0; at < later; at += 16) {
    talk.read(Side::a, 9, 0x10000 + at * 256, read_bytes);
  }
  wire::IbHeaders again;
  again.bth.opcode = {IbTransport::rc, wire::IbOperation::read_request};
  again.bth.psn = psn + 1;
  again.reth = {.address = address + 256, .key = 9, .length_bytes = 344};
  talk.packet(Side::a, again);
  talk.read_answer(Side::b, psn + 1, Bytes(answer).subspan(256));
  return capture;
}

TEST(RoceRecovery, AResponseMayComeAgainAfterManyLaterOnes) {
  for (const std::size_t later : {16U, 64U, 128U, 512U, 2'048U}) {
    SCOPED_TRACE(later);
    const Analysed seen(late_again(later));
    EXPECT_EQ(seen.whole().size(), 1 + later / 16);
    EXPECT_EQ(seen.traffic.unknown_answers, 0U);
    EXPECT_EQ(seen.traffic.repeated_bytes, 344U - 256U);
    EXPECT_EQ(seen.analysis.infiniband().dropped_requests, 0U);
    expect_known_bytes(seen.traffic);
    for (const Operation& operation : seen.operations.operations) {
      EXPECT_EQ(operation.outcome, Operation::Outcome::complete);
    }
  }
}

TEST(RoceRecovery, ReadsThatAreDroppedForALimitAreCounted) {
  Analysis::Limits limits;
  limits.infiniband.connection.answers.open_requests = 4;
  Analysis analysis(limits);
  TrafficLog traffic;
  analysis.add_sink(traffic);
  feed(analysis, late_again(512));
  EXPECT_EQ(analysis.infiniband().dropped_requests, 1U);
  expect_known_bytes(traffic);
}

TEST(RoceCongestion, MarksAndNotificationsAreCounted) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.set_ecn(3);
  talk.send(Side::a, 1'000);
  talk.set_ecn(0);
  wire::IbHeaders notification;
  notification.bth.opcode = wire::congestion_notification;
  notification.bth.becn = true;
  talk.packet(Side::b, notification, Content(16));
  const Analysed seen(capture);
  EXPECT_EQ(seen.traffic.congestion_marked, 5U);  // four packets and their acknowledgement
  EXPECT_EQ(seen.traffic.congestion_notified, 1U);
  EXPECT_EQ(seen.analysis.infiniband().congestion_notifications, 1U);
}

TEST(RoceRules, LengthsMustFit) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  wire::IbHeaders headers;
  headers.bth.opcode = {IbTransport::rc, wire::IbOperation::write_only};
  headers.bth.psn = talk.next_psn(Side::a);
  headers.reth = {.address = 0x1000, .key = 7, .length_bytes = 50};
  talk.packet(Side::a, headers, memory_bytes(7, 0x1000, 40));
  const Analysed seen(capture);
  ASSERT_EQ(seen.traffic.violations.size(), 1U);
  EXPECT_EQ(seen.traffic.violations[0].kind, Violation::Kind::wrong_length);
  EXPECT_EQ(seen.traffic.violations[0].found, 40U);
  EXPECT_EQ(seen.traffic.violations[0].expected, 50U);
}

TEST(RoceRules, AMessageMustEnd) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  wire::IbHeaders headers;
  headers.bth.opcode = {IbTransport::rc, wire::IbOperation::send_first};
  headers.bth.psn = talk.next_psn(Side::a);
  talk.packet(Side::a, headers, Content(256));
  headers.bth.opcode.operation = wire::IbOperation::send_only;
  headers.bth.psn += 1;
  talk.packet(Side::a, headers, Content(10));
  const Analysed seen(capture);
  ASSERT_EQ(seen.traffic.violations.size(), 1U);
  EXPECT_EQ(seen.traffic.violations[0].kind, Violation::Kind::bad_header);
}

TEST(RoceRules, AnAnswerMustNotBeLongerThanItsRequest) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  wire::IbHeaders request;
  request.bth.opcode = {IbTransport::rc, wire::IbOperation::read_request};
  request.bth.psn = talk.next_psn(Side::a);
  request.reth = {.address = 0x1000, .key = 7, .length_bytes = 50};
  talk.packet(Side::a, request);
  wire::IbHeaders answer;
  answer.bth.opcode = {IbTransport::rc, wire::IbOperation::read_response_only};
  answer.bth.psn = request.bth.psn;
  talk.packet(Side::b, answer, Content(60));
  const Analysed seen(capture);
  ASSERT_EQ(seen.traffic.violations.size(), 1U);
  EXPECT_EQ(seen.traffic.violations[0].kind, Violation::Kind::answer_beyond_request);
}

}  // namespace
}  // namespace weft::capture::test
