// Captures that are out of order, or lack a few packets, in which a connection is known by little:
// by refusals only, by a reset before its SYN, or in one direction first.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capture/analysed.h"
#include "capture/finding_frames.h"
#include "capture/made_roce.h"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {
namespace {

constexpr std::uint32_t key_b = 0x11223344;  // memory of b, which a uses

struct KindLog final : FindingSink {
  void on_finding(const Finding& finding) override { kinds.emplace_back(finding.kind); }
  std::vector<std::string> kinds;
};

std::vector<std::string> finding_kinds(const MadeCapture& capture) {
  KindLog log;
  find_in(capture, log);
  return log.kinds;
}

bool has(const std::vector<std::string>& kinds, std::string_view kind) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

// Moves a packet to another place. Each place keeps its time.
void move_to(MadeCapture& capture, std::size_t from, std::size_t to) {
  const MadeCapture before = capture;
  capture.erase(capture.begin() + static_cast<std::ptrdiff_t>(from));
  capture.insert(capture.begin() + static_cast<std::ptrdiff_t>(to), before[from]);
  for (std::size_t i = 0; i < capture.size(); ++i) capture[i].time_ns = before[i].time_ns;
}

void remove(MadeCapture& capture, std::size_t at) {
  capture.erase(capture.begin() + static_cast<std::ptrdiff_t>(at));
}

// Without the REP only its packets show which queue pair the passive side has. Where it was never
// ready, all of them are RNR NAKs.
TEST(RoceDisorder, RefusalsJoinBothDirections) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  remove(capture, 1);
  talk.acknowledge_all(false);
  const std::uint32_t psn = talk.next_psn(Side::a);
  talk.send(Side::a, 100);
  const MadePacket sent = capture.back();
  for (int i = 0; i < 4; ++i) {
    talk.acknowledge(Side::b, psn, wire::Aeth::rnr_nak(0, 12));
    capture.push_back(sent);
    capture.back().time_ns = capture[capture.size() - 2].time_ns + 10'000'000;
  }
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_GT(seen.connection().side_frames[0], 0U);
  EXPECT_GT(seen.connection().side_frames[1], 0U);
  EXPECT_FALSE(has(finding_kinds(capture), finding::one_direction));
}

// A connection that ends, and then its REQ, or a whole connection, with the same queue pairs, PSNs
// and communication IDs.
struct Again {
  bool rejected = false;
  bool whole = true;
  std::uint64_t transaction = 0;
  std::int64_t after_ns = 0;
};

std::size_t connections_of(const Again& again) {
  MadeCapture capture;
  RoceTalk first(capture, {});
  first.connect();
  if (again.rejected) {
    capture.resize(1);  // the REQ
    first.reject();
  } else {
    first.send(Side::a, 100);
    first.disconnect();
  }
  const std::size_t begin = capture.size();
  RoceTalk second(capture, {.transaction = again.transaction});
  second.connect();
  if (again.whole) {
    second.send(Side::a, 100);
    second.disconnect();
  } else {
    capture.resize(begin + 1);
  }
  for (std::size_t one = begin; one < capture.size(); ++one) capture[one].time_ns += again.after_ns;
  return Analysed(capture).connections();
}

TEST(RoceDisorder, ARequestWithTheSameNumbersIsAnotherConnectionOrARepeatedOne) {
  constexpr std::int64_t s = 1'000'000'000;
  // No sender repeats a REQ after a disconnection, but a network may deliver it late.
  EXPECT_EQ(connections_of({.after_ns = 5 * s}), 2U);
  EXPECT_EQ(connections_of({.whole = false, .after_ns = s / 2}), 2U);
  EXPECT_EQ(connections_of({.whole = false, .after_ns = s / 50}), 1U);
  // After a REJ, which may be lost behind the capture, its sender repeats it.
  EXPECT_EQ(connections_of({.rejected = true, .whole = false, .after_ns = 5 * s}), 1U);
  EXPECT_EQ(connections_of({.rejected = true, .after_ns = 100 * s}), 2U);
  // A repeated REQ has the same transaction.
  EXPECT_EQ(connections_of({.transaction = 7}), 2U);
  EXPECT_EQ(connections_of({.rejected = true, .transaction = 7}), 2U);
}

// Acknowledgements name the ends of messages, which come after many other packets here.
TEST(RoceDisorder, AcknowledgementsOfLateRequestsJoinBothDirections) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  constexpr std::size_t messages = 8;
  constexpr std::size_t packets = 64;
  for (std::size_t i = 0; i < messages; ++i) {
    talk.write(Side::a, key_b, i * 0x10000, packets * RoceOptions{}.mtu_bytes);
  }
  // Each message has `packets` packets and its acknowledgement.
  for (std::size_t i = 0; i < messages; ++i) {
    const std::size_t last = i * (packets + 1) + packets - 1 - i;
    const MadePacket end = capture[last];
    remove(capture, last);
    capture.push_back(end);
  }
  std::int64_t time_ns = capture.front().time_ns;
  for (MadePacket& packet : capture) packet.time_ns = time_ns += 1'000;
  const Analysed seen(capture);
  EXPECT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.whole().size(), messages);
  expect_known_bytes(seen.traffic);
}

// Without the connection manager the lowest PSN of the first packets begins the order, also where
// one of them was repeated before it was captured.
TEST(RoceDisorder, ARepetitionBeforeAnOlderRequest) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.acknowledge_all(false);
  const std::uint32_t psn = talk.next_psn(Side::a);
  talk.send(Side::a, 600);
  talk.send(Side::a, 100);
  const MadePacket second = capture.back();
  talk.acknowledge(Side::b, wire::psn_plus(psn, 3), wire::Aeth::rnr_nak(0, 12));
  capture.push_back(second);
  capture.back().time_ns += 10'000'000;
  talk.acknowledge(Side::b, wire::psn_plus(psn, 3));
  capture.back().time_ns += 10'000'000;
  move_to(capture, 0, 5);
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.whole().size(), 2U);
  EXPECT_EQ(seen.traffic.lost_packets + seen.traffic.lost_bytes, 0U);
  EXPECT_EQ(seen.traffic.repeated_bytes, 100U);
  expect_known_bytes(seen.traffic);
}

// A reset and a packet with data come before everything else of their connection.
TEST(IwarpDisorder, AResetBeforeItsConnection) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator a(talk, Side::a);
  for (int i = 0; i < 3; ++i) a.send(500);
  talk.tcp().reset(Side::b);
  move_to(capture, capture.size() - 1, 0);
  move_to(capture, capture.size() - 1, 0);
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.connection().end, Connection::End::reset);
  EXPECT_EQ(seen.whole().size(), 3U);
  EXPECT_EQ(seen.traffic.lost_bytes, 0U);
  EXPECT_EQ(seen.traffic.resets, 1U);
}

// After a reset the same ports may be used again, although little was seen of the connection
// before.
TEST(IwarpDisorder, AResetThatAnotherConnectionFollows) {
  MadeCapture capture;
  IwarpTalk before(capture, {.first_a = 90'000'000, .first_b = 80'000'000}, {});
  before.connect();
  Operator(before, Side::a).send(500);
  before.tcp().reset(Side::b);
  capture.erase(capture.begin(), capture.begin() + 3);
  MadeCapture next;
  IwarpTalk talk(next, {}, {});
  talk.connect();
  Operator(talk, Side::a).send(700);
  talk.close();
  const std::int64_t end_ns = capture.back().time_ns;
  for (MadePacket& packet : next) {
    packet.time_ns += end_ns;
    capture.push_back(packet);
  }
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 2U);
  EXPECT_EQ(seen.connection(0).end, Connection::End::reset);
  EXPECT_EQ(seen.connection(1).end, Connection::End::closed);
  EXPECT_EQ(seen.whole().size(), 2U);
  EXPECT_EQ(seen.traffic.lost_bytes, 0U);
}

// FPDUs are found in the direction of the requester only. The other one has a response, which
// cannot be decoded because a packet behind it is missing.
TEST(IwarpDisorder, AResponseAmongBytesThatCannotBeDecoded) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {.crc = false});
  talk.connect();
  const std::size_t handshake = capture.size();
  Operator a(talk, Side::a);
  Operator b(talk, Side::b);
  a.read(key_b, 0x1000, 64);
  const std::size_t missing = capture.size();
  b.send(16);
  for (int i = 0; i < 6; ++i) a.send(16);
  talk.close();
  remove(capture, missing);
  capture.erase(capture.begin(), capture.begin() + static_cast<std::ptrdiff_t>(handshake));
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 1U);
  ASSERT_EQ(seen.operations.count(Operation::Kind::read), 1U);
  EXPECT_FALSE(has(finding_kinds(capture), finding::unanswered_request));
}

// Both directions wait for an earlier segment until the end of the capture. A response does not
// come before its request then, whichever direction begins: with a sink that all Reads share it
// would be taken for the response of the next one.
TEST(IwarpDisorder, DirectionsThatBeginAtTheEndOfTheCapture) {
  MadeCapture made;
  IwarpTalk talk(made, {}, {});
  talk.connect();
  Operator a(talk, Side::a, true);
  Operator b(talk, Side::b);
  constexpr std::size_t reads = 5;
  b.send(16);
  for (std::size_t i = 0; i < reads; ++i) {
    a.read(key_b, 0x1000 * i, 64);
    b.send(16);
  }
  talk.close();
  constexpr std::size_t tcp_handshake = 3;
  made.erase(made.begin(), made.begin() + tcp_handshake);
  for (std::size_t late = 1; late < 8; ++late) {
    for (std::size_t first = 0; first < late; ++first) {
      MadeCapture capture = made;
      move_to(capture, late, first);
      const Analysed seen(capture);
      SCOPED_TRACE(testing::Message() << "packet " << late << " at place " << first);
      EXPECT_EQ(seen.traffic.reads.size(), reads);
      EXPECT_TRUE(seen.traffic.violations.empty());
      EXPECT_EQ(seen.traffic.unknown_answers, 0U);
      expect_known_bytes(seen.traffic);
    }
  }
}

// Reads from before the capture may be under way when it begins. With one sink for all, nothing
// tells which Read a response belongs to, until a pause shows that none of them is under way any
// more.
TEST(IwarpDisorder, APauseEndsWhatWasUnderWayBeforeTheCapture) {
  constexpr std::uint64_t before = 12;
  constexpr std::uint64_t behind = 4;
  for (const std::int64_t pause_ns : {1'000'000'000, 900'000'000}) {
    MadeCapture capture;
    IwarpTalk talk(capture, {}, {});
    talk.connect();
    Operator a(talk, Side::a, true);
    Operator b(talk, Side::b);
    a.read(key_b, 0x1000, 64);
    const auto begin = static_cast<std::ptrdiff_t>(capture.size());
    std::size_t pause_at = 0;
    for (std::uint64_t i = 1; i <= before + behind; ++i) {
      a.read(key_b, 0x1000 * (i + 1), 64);
      b.send(16);
      if (i == before) pause_at = capture.size();
    }
    for (std::size_t one = pause_at; one < capture.size(); ++one) capture[one].time_ns += pause_ns;
    capture.erase(capture.begin(), capture.begin() + begin);
    const Analysed seen(capture);
    SCOPED_TRACE(testing::Message() << pause_ns);
    const bool in_step = pause_ns >= 1'000'000'000;
    EXPECT_EQ(seen.traffic.unknown_answers, in_step ? before : before + behind);
    expect_known_bytes(seen.traffic);
  }
}

// A response that was sent before its sender had the next request answers an earlier one, although
// the capture has it behind that request.
TEST(IwarpDisorder, AResponseAnswersWhatItsSenderHadReceived) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  constexpr std::uint32_t sink = 0x77;
  constexpr std::size_t bytes = 64;
  constexpr std::size_t acknowledgement_at = 14 + 20 + 8;
  const auto source = [](std::uint32_t number) { return 0x1000ULL * number; };
  const auto request = [&](std::uint32_t number) {
    talk.fpdu(Side::a, weft::test::read_request(number, {.sink_stag = sink,
                                                         .size_bytes = bytes,
                                                         .source_stag = key_b,
                                                         .source_offset = source(number)}));
  };
  request(1);
  const std::size_t begin = capture.size();
  constexpr std::uint32_t requests = 12;
  for (std::uint32_t number = 2; number <= requests; ++number) {
    request(number);
    std::byte* const sent = &capture.back().bytes[14 + 20 + 4];
    const std::uint32_t begins_at = load_be<std::uint32_t>(sent);
    talk.fpdu(Side::b, weft::test::read_response(
                           sink, 0, memory_bytes(key_b, source(number - 1), bytes), true));
    // It has only received what came before the request.
    store_be(&capture.back().bytes[acknowledgement_at], begins_at);
  }
  capture.erase(capture.begin(), capture.begin() + static_cast<std::ptrdiff_t>(begin));
  const Analysed seen(capture);
  EXPECT_EQ(seen.traffic.unknown_answers, requests - 1);
  expect_known_bytes(seen.traffic);
}

}  // namespace
}  // namespace weft::capture::test
