// iWARP in captures that are made for it: everything that can happen to packets on the way to, or
// in, a capture. What is reassembled is right, or what is missing is reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "capture/made_capture.h"
#include "capture/traffic_log.h"
#include "support/random.h"
#include "wire/control_word.h"
#include "wire/hello.h"

namespace weft::capture::test {
namespace {

constexpr std::uint32_t key_b = 0x11223344;  // memory of b, which a uses
constexpr std::uint32_t key_a = 0x55667788;

struct Variant {
  const char* name;
  TcpOptions tcp;
  MpaOptions mpa;
  bool one_sink = false;  // for all Reads
};

// Some of everything, in both directions.
MadeCapture conversation(const Variant& variant) {
  MadeCapture capture;
  IwarpTalk talk(capture, variant.tcp, variant.mpa);
  talk.connect();
  Operator a(talk, Side::a, variant.one_sink);
  Operator b(talk, Side::b, variant.one_sink);
  for (std::uint64_t i = 0; i < 3; ++i) {
    a.send(100 + i);
    a.write(key_b, 0x10000 + i * 0x10000, 3'000 + i);
    a.read(key_b, 0x90000 + i * 0x10000, 2'500 + i);
    b.send(5'000 + i);
    b.read(key_a, 0x20000 + i * 0x10000, 700 + i);
    a.fetch_add(key_b, 0x1000, i, 1'000 + i);
    b.write(key_a, 0x90000 + i * 0x10000, 1);
  }
  talk.close();
  return capture;
}

struct Outcome {
  TrafficLog traffic;
  OperationLog operations;

  explicit Outcome(const MadeCapture& capture) { analyse(capture, &traffic, &operations); }

  [[nodiscard]] std::size_t complete() const {
    return static_cast<std::size_t>(std::ranges::count(
        operations.operations, Operation::Outcome::complete, &Operation::outcome));
  }
};

constexpr std::size_t operations_made = 3 * 7;

void expect_everything(const MadeCapture& capture) {
  const Outcome outcome(capture);
  expect_known_bytes(outcome.traffic);
  EXPECT_EQ(outcome.complete(), operations_made);
  EXPECT_EQ(outcome.operations.operations.size(), operations_made);
  EXPECT_EQ(outcome.traffic.lost_bytes, 0U);
  EXPECT_TRUE(outcome.traffic.violations.empty());
  EXPECT_EQ(outcome.traffic.atomic_answers, (std::vector<std::uint64_t>{1'000, 1'001, 1'002}));
  for (const auto* messages :
       {&outcome.traffic.sends, &outcome.traffic.writes, &outcome.traffic.reads}) {
    for (const auto& [key, message] : *messages) EXPECT_TRUE(message.whole());
  }
}

// Right, or known to be missing or cut.
void expect_nothing_wrong(const MadeCapture& capture) {
  const Outcome outcome(capture);
  expect_known_bytes(outcome.traffic);
  for (const Operation& operation : outcome.operations.operations) {
    if (operation.outcome != Operation::Outcome::complete || operation.cut_bytes > 0) continue;
    const TrafficLog::MessageKey key{operation.connection, operation.side, operation.message};
    if (operation.kind == Operation::Kind::send) {
      EXPECT_TRUE(outcome.traffic.sends.at(key).whole());
    } else if (operation.kind == Operation::Kind::write) {
      EXPECT_TRUE(outcome.traffic.writes.at(key).whole());
    } else if (operation.kind == Operation::Kind::read) {
      EXPECT_TRUE(outcome.traffic.reads.at(key).whole());
    }
  }
}

class Iwarp : public testing::TestWithParam<Variant> {};

TEST_P(Iwarp, EverythingIsReassembled) {
  expect_everything(conversation(GetParam()));
}

TEST_P(Iwarp, DuplicatesChangeNothing) {
  const MadeCapture original = conversation(GetParam());
  MadeCapture doubled;
  for (const MadePacket& packet : original) {
    doubled.push_back(packet);
    doubled.push_back(packet);
  }
  expect_everything(doubled);
}

TEST_P(Iwarp, PacketsMayComeInAnyOrderWithinAWindow) {
  const MadeCapture original = conversation(GetParam());
  for (const std::uint64_t seed : weft::test::seeds(20)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    MadeCapture shuffled = original;
    const std::size_t window = random.between(2, 12);
    for (std::size_t begin = 0; begin < shuffled.size(); begin += window) {
      const std::size_t end = std::min(begin + window, shuffled.size());
      for (std::size_t i = end - 1; i > begin; --i) {
        std::swap(shuffled[i], shuffled[begin + random.below(i - begin + 1)]);
      }
    }
    expect_everything(shuffled);
  }
}

// A mirror that copies each packet where it enters the switch and where it leaves it.
TEST_P(Iwarp, CopiesThatTheCaptureMadeAreNoRepeats) {
  const MadeCapture original = conversation(GetParam());
  MadeCapture doubled;
  for (const MadePacket& packet : original) {
    doubled.push_back(packet);
    doubled.push_back(packet);
    doubled.back().time_ns += 3'000;
  }
  expect_everything(doubled);
  EXPECT_EQ(Outcome(doubled).traffic.repeated_bytes, 0U);
}

// The usual capture of RDMA keeps the headers. Sizes are right, and nothing counts as lost.
TEST(IwarpCut, HeadersSuffice) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator a(talk, Side::a, false, 1'400);
  for (std::uint64_t i = 0; i < 20; ++i) {
    a.write(key_b, 0x10000 + i * 0x10000, 5'000 + i);
    a.send(1'300 + i);
    a.read(key_b, 0x90000 + i * 0x10000, 2'500 + i);
  }
  talk.close();
  constexpr std::size_t with_headers = 110;
  const Outcome outcome(cut(capture, with_headers));
  EXPECT_EQ(outcome.traffic.lost_bytes, 0U);
  EXPECT_TRUE(outcome.traffic.violations.empty());
  ASSERT_EQ(outcome.operations.operations.size(), 60U);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(outcome.operations.count(Operation::Kind::write), 20U);
  }
  std::uint64_t bytes = 0;
  for (const Operation& one : outcome.operations.operations) bytes += one.bytes;
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < 20; ++i) expected += 5'000 + 1'300 + 2'500 + 3 * i;
  EXPECT_EQ(bytes, expected);
}

// Far from its place, also after the other side has acknowledged it.
TEST_P(Iwarp, PacketsMayComeHundredsOfPlacesLate) {
  MadeCapture original;
  IwarpTalk talk(original, GetParam().tcp, GetParam().mpa);
  talk.connect();
  const std::size_t begin = original.size();
  Operator a(talk, Side::a, GetParam().one_sink);
  Operator b(talk, Side::b, GetParam().one_sink);
  constexpr std::size_t rounds = 60;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    a.send(3'000 + i);
    a.read(key_b, 0x90000 + i * 0x10000, 2'500 + i);
    b.send(5'000 + i);
  }
  talk.close();
  for (const std::uint64_t seed : weft::test::seeds(10)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    MadeCapture shuffled = original;
    const std::size_t window = random.between(100, 512);
    for (std::size_t from = begin; from < shuffled.size(); from += window) {
      const std::size_t to = std::min(from + window, shuffled.size());
      for (std::size_t i = to - 1; i > from; --i) {
        std::swap(shuffled[i], shuffled[from + random.below(i - from + 1)]);
      }
    }
    const Outcome outcome(shuffled);
    expect_known_bytes(outcome.traffic);
    EXPECT_EQ(outcome.complete(), 3 * rounds);
    EXPECT_EQ(outcome.traffic.lost_bytes, 0U);
  }
}

TEST_P(Iwarp, EachPacketMayBeMissing) {
  const MadeCapture original = conversation(GetParam());
  for (std::size_t i = 0; i < original.size(); ++i) {
    SCOPED_TRACE("without packet " + std::to_string(i + 1));
    MadeCapture without = original;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    expect_nothing_wrong(without);
  }
}

TEST_P(Iwarp, SeveralPacketsMayBeMissing) {
  const MadeCapture original = conversation(GetParam());
  for (const std::uint64_t seed : weft::test::seeds(60)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    MadeCapture without = original;
    std::erase_if(without, [&](const MadePacket&) { return random.chance(12); });
    expect_nothing_wrong(without);
  }
}

TEST_P(Iwarp, TheSnapLengthMayCutEverywhere) {
  const MadeCapture original = conversation(GetParam());
  for (std::size_t snap_bytes = 40; snap_bytes < 1'514; snap_bytes += 23) {
    SCOPED_TRACE("snap length " + std::to_string(snap_bytes));
    expect_nothing_wrong(cut(original, snap_bytes));
  }
}

TEST_P(Iwarp, ACaptureMayBeginAnywhere) {
  const MadeCapture original = conversation(GetParam());
  for (std::size_t i = 1; i < original.size(); ++i) {
    SCOPED_TRACE("from packet " + std::to_string(i + 1));
    expect_nothing_wrong({original.begin() + static_cast<std::ptrdiff_t>(i), original.end()});
  }
}

// A capture that begins anywhere, has cut packets and lacks others.
TEST_P(Iwarp, CutsAndGapsMayComeTogether) {
  const MadeCapture original = conversation(GetParam());
  for (const std::uint64_t seed : weft::test::seeds(50)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    weft::test::Random random(seed);
    MadeCapture capture;
    for (std::size_t i = random.below(original.size()); i < original.size(); ++i) {
      if (random.below(20) == 0) continue;
      MadePacket packet = original[i];
      const std::size_t snap_bytes = 60 + random.below(1'500);
      if (random.below(4) == 0) packet = cut({packet}, snap_bytes).front();
      capture.push_back(packet);
    }
    expect_nothing_wrong(capture);
  }
}

TEST_P(Iwarp, ACaptureMayHoldOneDirectionOnly) {
  const MadeCapture original = conversation(GetParam());
  for (const std::uint16_t port : {GetParam().tcp.port_a, GetParam().tcp.port_b}) {
    MadeCapture half;
    const std::size_t port_at = GetParam().tcp.ipv6 ? 54 : 34;
    for (const MadePacket& packet : original) {
      if (load_be<std::uint16_t>(&packet.bytes[port_at]) == port) half.push_back(packet);
    }
    const Outcome outcome(half);
    expect_known_bytes(outcome.traffic);
    EXPECT_GE(outcome.operations.operations.size(), 6U);
  }
}

const Variant variants[] = {
    {"crc", {}, {}},
    {"no_crc", {}, {.crc = false}},
    {"unaligned", {}, {.aligned = false}},
    {"unaligned_no_crc", {}, {.crc = false, .aligned = false}},
    {"small_segments", {.mss_bytes = 61}, {}},
    {"large_segments", {.mss_bytes = 9'000}, {.aligned = false}},
    {"ipv6", {.ipv6 = true}, {}},
    {"markers", {}, {.markers_a = true, .markers_b = true}},
    {"markers_one_way_unaligned", {}, {.markers_b = true, .aligned = false}},
    {"markers_no_crc", {}, {.crc = false, .markers_a = true, .markers_b = true}},
    {"sequence_wraps", {.first_a = 0xFFFFF000, .first_b = 0xFFFFF800}, {}},
    {"revision_1", {}, {.revision = 1}},
    {"one_sink", {}, {}, true},
    {"one_sink_small_segments", {.mss_bytes = 61}, {.crc = false}, true},
};

INSTANTIATE_TEST_SUITE_P(All, Iwarp, testing::ValuesIn(variants),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST(IwarpLoss, OfOnePacketCostsFewOperations) {
  for (const Variant& variant : variants) {
    // With one sink for all, every later answer could be meant for the lost one.
    if (variant.one_sink) continue;
    const MadeCapture original = conversation(variant);
    for (std::size_t i = 6; i < original.size(); ++i) {
      SCOPED_TRACE(variant.name + (", without packet " + std::to_string(i + 1)));
      MadeCapture without = original;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_GE(Outcome(without).complete() + 5, operations_made);
    }
  }
}

TEST(IwarpSequence, WrapsAtEveryByte) {
  const Variant variant{"", {.mss_bytes = 200}, {.aligned = false}};
  const MadeCapture reference = conversation(variant);
  // The sides send some 20 000 bytes each: the wrap falls into every part of them.
  for (std::uint32_t before = 0; before < 21'000; before += 97) {
    SCOPED_TRACE("wraps after " + std::to_string(before));
    Variant wrapping = variant;
    wrapping.tcp.first_a = 0U - before;
    wrapping.tcp.first_b = 0U - before;
    expect_everything(conversation(wrapping));
  }
}

// Two connections with the same keys, addresses and message numbers, their packets interleaved.
TEST(IwarpConnections, DoNotMix) {
  const Variant one{"", {}, {}};
  const Variant two{"", {.host_a = 3}, {.crc = false}};
  const MadeCapture first = conversation(one);
  const MadeCapture second = conversation(two);
  MadeCapture both;
  for (std::size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i < first.size()) both.push_back(first[i]);
    if (i < second.size()) both.push_back(second[i]);
  }
  const Outcome outcome(both);
  expect_known_bytes(outcome.traffic);
  EXPECT_EQ(outcome.complete(), 2 * operations_made);
  EXPECT_EQ(outcome.traffic.ends, 2U);
  EXPECT_TRUE(outcome.traffic.violations.empty());
}

TEST(IwarpConnections, PortsMayBeUsedAgain) {
  const Variant variant{"", {}, {}};
  Variant later = variant;
  later.tcp.first_a = 77'000'000;
  later.tcp.first_b = 88'000'000;
  MadeCapture both = conversation(variant);
  const MadeCapture second = conversation(later);
  both.insert(both.end(), second.begin(), second.end());
  const Outcome outcome(both);
  EXPECT_EQ(outcome.complete(), 2 * operations_made);
  EXPECT_EQ(outcome.traffic.ends, 2U);
}

// Segments that overlap each other by halves, as after a change of the segment size.
TEST(IwarpOverlap, IsTakenOnce) {
  const MadeCapture original = conversation({"", {.mss_bytes = 5'000}, {.aligned = false}});
  MadeCapture overlapping;
  for (const MadePacket& packet : original) {
    constexpr std::size_t headers = 54;
    const std::size_t payload = packet.bytes.size() - headers;
    overlapping.push_back(packet);
    if (payload < 100) continue;
    // Its second half again, by itself, and with it what was sent before.
    MadePacket half = packet;
    const std::size_t skipped = payload / 2;
    half.bytes.erase(half.bytes.begin() + headers,
                     half.bytes.begin() + static_cast<std::ptrdiff_t>(headers + skipped));
    half.wire_bytes = half.bytes.size();
    store_be(&half.bytes[16], static_cast<std::uint16_t>(half.bytes.size() - 14));
    store_be(&half.bytes[38],
             load_be<std::uint32_t>(&half.bytes[38]) + static_cast<std::uint32_t>(skipped));
    overlapping.push_back(half);
    std::swap(overlapping[overlapping.size() - 2], overlapping[overlapping.size() - 1]);
  }
  expect_everything(overlapping);
}

TEST(IwarpChecksum, DamagedFpdusAreNotDelivered) {
  MadeCapture capture = conversation({"", {}, {}});
  std::size_t damaged = 0;
  for (MadePacket& packet : capture) {
    if (packet.bytes.size() < 900 || ++damaged % 2 != 0) continue;
    packet.bytes[600] ^= std::byte{0x40};
  }
  const Outcome outcome(capture);
  expect_known_bytes(outcome.traffic);
  EXPECT_EQ(outcome.traffic.violations.size(), damaged / 2);
  for (const Violation& violation : outcome.traffic.violations) {
    EXPECT_EQ(violation.kind, Violation::Kind::bad_checksum);
  }
  EXPECT_LT(outcome.complete(), operations_made);
}

// The FPDUs after one with a wrong length begin at other places than it seems.
TEST(IwarpChecksum, BehindAWrongLengthTheNextFpduIsSearched) {
  constexpr std::size_t headers = 54;
  for (const std::uint16_t length : std::vector<std::uint16_t>{17, 40, 900}) {
    SCOPED_TRACE(length);
    MadeCapture capture;
    IwarpTalk talk(capture, {}, {});
    talk.connect();
    Operator a(talk, Side::a);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < 40; ++i) {
      if (i == 5) changed = capture.size();
      a.send(300 + i);
    }
    store_be(&capture[changed].bytes[headers], length);
    const Outcome outcome(capture);
    expect_known_bytes(outcome.traffic);
    EXPECT_GE(outcome.complete(), 34U);
    for (const Violation& violation : outcome.traffic.violations) {
      EXPECT_EQ(violation.kind, Violation::Kind::bad_checksum);
    }
  }
}

// Without the handshake it is unknown whether the stream has CRCs, until one of them is correct.
TEST(IwarpChecksum, TheFirstFpduIsNotDeliveredIfTheNextOneShowsThatItIsDamaged) {
  std::size_t damaged = 0;
  for (const std::size_t mss_bytes : {700U, 1000U, 1460U, 2000U, 5000U}) {
    const MadeCapture original =
        conversation({"", {.mss_bytes = mss_bytes}, {.aligned = mss_bytes == 1460U}});
    for (std::size_t begin = 5; begin < original.size(); ++begin) {
      SCOPED_TRACE(std::to_string(mss_bytes) + " bytes, from packet " + std::to_string(begin));
      MadeCapture part(original.begin() + static_cast<std::ptrdiff_t>(begin), original.end());
      const auto large = std::ranges::find_if(
          part, [](const MadePacket& packet) { return packet.bytes.size() >= 600; });
      if (large == part.end()) break;
      large->bytes[500] ^= std::byte{0x40};
      const Outcome outcome(part);
      expect_known_bytes(outcome.traffic);
      damaged += std::ranges::count(outcome.traffic.violations, Violation::Kind::bad_checksum,
                                    &Violation::kind);
    }
  }
  EXPECT_GT(damaged, 0U);
}

// RFC 5041 §4: no DDP segment is shorter than a tagged header. Such an FPDU is named, and with a
// correct CRC the reader continues at the next one.
TEST(IwarpShortFpdu, IsNamedAndNothingElseIsLost) {
  for (const bool markers : {false, true}) {
    for (const std::size_t size : {1U, 2U, 13U}) {
      SCOPED_TRACE(std::to_string(size) + (markers ? " with markers" : ""));
      MadeCapture capture;
      IwarpTalk talk(capture, {}, {.markers_b = markers});
      talk.connect();
      Operator a(talk, Side::a);
      a.send(100);
      talk.fpdu(Side::a, {Content(size, std::byte{0xC1})});
      a.send(200);
      const Outcome outcome(capture);
      expect_known_bytes(outcome.traffic);
      EXPECT_EQ(outcome.traffic.sends.size(), 2U);
      EXPECT_EQ(outcome.traffic.lost_bytes, 0U);
      ASSERT_EQ(outcome.traffic.violations.size(), 1U);
      EXPECT_EQ(outcome.traffic.violations[0].kind, Violation::Kind::bad_header);
      EXPECT_EQ(outcome.traffic.violations[0].found, size);
      EXPECT_EQ(outcome.traffic.violations[0].expected, 14U);
    }
  }
}

// Without CRCs the boundary may be lost, so the next FPDU is searched. The version is no reason.
TEST(IwarpShortFpdu, WithoutCrcsHasNoWrongVersion) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {.crc = false});
  talk.connect();
  Operator a(talk, Side::a);
  for (int i = 0; i < 4; ++i) a.send(100);
  talk.fpdu(Side::a, {Content(5, std::byte{0xC1})});
  for (int i = 0; i < 4; ++i) a.send(100);
  const Outcome outcome(capture);
  expect_known_bytes(outcome.traffic);
  ASSERT_FALSE(outcome.traffic.violations.empty());
  EXPECT_EQ(outcome.traffic.violations[0].kind, Violation::Kind::bad_header);
  EXPECT_EQ(outcome.traffic.violations[0].found, 5U);
}

TEST(IwarpMidStream, IsRecognisedOnAnyPort) {
  const MadeCapture original = conversation({"", {.port_a = 12, .port_b = 80}, {}});
  const MadeCapture tail(original.begin() + 8, original.end());
  Analysis analysis;
  TrafficLog log;
  analysis.add_sink(log);
  feed(analysis, tail);
  ASSERT_EQ(analysis.connections().size(), 1U);
  EXPECT_EQ(analysis.connections()[0].beginning, Connection::Beginning::traffic);
  EXPECT_TRUE(analysis.connections()[0].crc) << "right checksums prove it";
  expect_known_bytes(log);
  EXPECT_GE(log.sends.size(), 5U);
}

TEST(IwarpMidStream, OtherTrafficIsLeftAlone) {
  for (const bool from_the_start : {true, false}) {
    MadeCapture capture;
    TcpTalk talk(capture, {});
    weft::test::Random random(7);
    if (from_the_start) talk.handshake();
    for (int i = 0; i < 400; ++i) {
      Content noise(1'448);
      random.fill(noise);
      talk.send(Side::a, noise);
      talk.send(Side::b, weft::test::text("HTTP/1.1 200 OK\r\n\r\n"));
    }
    Analysis analysis;
    feed(analysis, capture);
    EXPECT_EQ(analysis.connections().size(), 0U);
    EXPECT_EQ(analysis.tcp_connections(), 1U);
  }
}

// A reply without its request answers it, and a reply may be among what the capture lacks.
TEST(IwarpEnds, OnlyARequestCanBeUnanswered) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  const auto end_of = [](MadeCapture trace, std::string_view without) {
    std::erase_if(trace, [&](const MadePacket& packet) {
      return std::ranges::search(packet.bytes, std::as_bytes(std::span(without))).begin() !=
             packet.bytes.end();
    });
    Analysis analysis;
    feed(analysis, trace);
    EXPECT_EQ(analysis.connections().size(), 1U) << without;
    return analysis.connections()[0].end;
  };
  EXPECT_EQ(end_of(capture, "MPA ID Req Frame"), Connection::End::open);
  EXPECT_EQ(end_of(capture, "MPA ID Rep Frame"), Connection::End::unanswered);
  talk.tcp().acknowledge(Side::a);
  talk.tcp().finish(Side::b);
  EXPECT_EQ(end_of(capture, "MPA ID Rep Frame"), Connection::End::open);
}

// Who captures itself ends right after it has closed.
TEST(IwarpEnds, HalfOpenIsWhatTheOtherSideHadTimeToClose) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator(talk, Side::a).send(500);
  talk.tcp().finish(Side::a);
  const auto end_of = [](const MadeCapture& trace) {
    Analysis analysis;
    feed(analysis, trace);
    return analysis.connections()[0].end;
  };
  EXPECT_EQ(end_of(capture), Connection::End::open);
  talk.tcp().acknowledge(Side::b);
  EXPECT_EQ(end_of(capture), Connection::End::open);
  capture.back().time_ns += 100'000'000;
  EXPECT_EQ(end_of(capture), Connection::End::half_open);
}

// iSER speaks iSCSI first, and then begins with MPA on the same connection.
TEST(IwarpMidStream, MpaMayBeginLateInAConnection) {
  MadeCapture capture;
  TcpOptions tcp;
  IwarpTalk talk(capture, tcp, {});
  talk.connect();
  Operator(talk, Side::a).send(500);
  talk.close();
  MadeCapture login;
  TcpOptions before = tcp;
  const Content words = weft::test::text("a login, in whatever words");
  before.first_a -= static_cast<std::uint32_t>(words.size());
  TcpTalk first(login, before);
  first.handshake();
  first.send(Side::a, words);
  // The handshake of TCP is there already.
  login.insert(login.end(), capture.begin() + 3, capture.end());
  const Outcome outcome(login);
  EXPECT_EQ(outcome.complete(), 1U);
  expect_known_bytes(outcome.traffic);
}

// Both sides write 8 bytes to each of two STags, one of which may be for control words.
Outcome words_at(std::uint32_t stag, const MpaOptions& mpa) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, mpa);
  talk.connect();
  for (const Side side : {Side::a, Side::b}) {
    Operator(talk, side).write(stag, 8, 8);
    Operator(talk, side).write(0x77, 8, 8);
  }
  talk.close();
  return Outcome(capture);
}

TEST(IwarpControlWords, AreNoOperationsWhereBothDevicesOfferedThem) {
  constexpr std::uint32_t agreed = wire::agreed_control_stag;
  EXPECT_EQ(words_at(agreed, {.words_a = true, .words_b = true}).traffic.writes.size(), 2U);
  EXPECT_EQ(words_at(agreed, {.words_a = true}).traffic.writes.size(), 4U);
  EXPECT_EQ(words_at(agreed, {.words_b = true}).traffic.writes.size(), 4U);
  EXPECT_EQ(words_at(agreed, {}).traffic.writes.size(), 4U);
}

TEST(IwarpControlWords, GoToTheStagOfTheHello) {
  const auto hello = [](std::uint32_t stag) {
    Content bytes(wire::Hello::bytes);
    wire::Hello{.control_stag = stag}.emit(bytes);
    return bytes;
  };
  const MpaOptions both{.hello_a = hello(0x55), .hello_b = hello(0x55)};
  EXPECT_EQ(words_at(0x55, both).traffic.writes.size(), 2U);
  EXPECT_EQ(words_at(0x56, both).traffic.writes.size(), 4U);
  // b writes to the STag that a names.
  EXPECT_EQ(words_at(0x55, {.hello_a = hello(0x55)}).traffic.writes.size(), 3U);
}

TEST(IwarpEnds, ResetsAreTold) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator(talk, Side::a).send(500);
  talk.tcp().reset(Side::b);
  Analysis analysis;
  TrafficLog log;
  analysis.add_sink(log);
  feed(analysis, capture);
  EXPECT_EQ(analysis.connections()[0].end, Connection::End::reset);
  EXPECT_EQ(log.resets, 1U);
}

// Both sides stop, so the rest of an FPDU that was under way never was on the wire.
TEST(IwarpEnds, AnFpduThatAResetBreaksOffIsNotLost) {
  for (const bool reset : {false, true}) {
    MadeCapture capture;
    IwarpTalk talk(capture, {}, {});
    talk.connect();
    Operator(talk, Side::a).send(500);
    weft::test::Content begun(200);
    begun[0] = std::byte{0x04};  // the length of the ULPDU: 1024
    talk.tcp().send(Side::a, begun);
    if (reset) talk.tcp().reset(Side::b);
    Analysis analysis;
    TrafficLog log;
    analysis.add_sink(log);
    feed(analysis, capture);
    EXPECT_EQ(log.lost_bytes, reset ? 0U : 200U);
  }
}

// A program that rejects a request may end the TCP connection by a reset.
TEST(IwarpEnds, ARejectedConnectionStaysRejected) {
  for (const bool reset : {false, true}) {
    MadeCapture capture;
    IwarpTalk talk(capture, {}, {.reject = true});
    talk.connect();
    if (reset) talk.tcp().reset(Side::b);
    Analysis analysis;
    feed(analysis, capture);
    EXPECT_EQ(analysis.connections()[0].end, Connection::End::rejected) << reset;
  }
}

}  // namespace
}  // namespace weft::capture::test
