// What is reported about a capture itself, and which verdicts it allows.
#include "weft/capture/quality.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>

#include "capture/analysed.h"
#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "support/fpdu.h"
#include "weft/capture/credit_findings.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {
namespace {

struct Judged final : FindingSink {
  Analysis analysis;
  QualityMeter meter{analysis};
  TrafficFindings traffic{analysis.connections(), *this};
  std::vector<Finding> findings;

  explicit Judged(const MadeCapture& capture) {
    analysis.add_sink(meter);
    analysis.add_sink(traffic);
    analysis.add_operations(traffic);
    feed(analysis, capture);
    traffic.finish();
  }
  void on_finding(const Finding& finding) override {
    if (is_supported(finding, analysis.connections()[finding.connection])) {
      findings.push_back(finding);
    }
  }
  [[nodiscard]] CaptureQuality quality() const { return meter.quality(); }
  [[nodiscard]] std::set<std::string_view> kinds() const {
    std::set<std::string_view> kinds;
    for (const Finding& one : findings) kinds.insert(one.kind);
    return kinds;
  }
};

MadeCapture roce(bool managed = true) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  if (managed) talk.connect();
  for (const std::size_t bytes : {100U, 600U, 1'100U}) {
    talk.send(Side::a, bytes);
    talk.write(Side::b, 7, 0x1000, bytes);
    talk.read(Side::a, 9, 0x2000, bytes);
  }
  if (managed) talk.disconnect();
  return capture;
}

MadeCapture iwarp() {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator a(talk, Side::a);
  for (std::uint64_t i = 0; i < 5; ++i) {
    a.send(800 + i);
    a.write(7, 0x1000 * i, 800);
    a.read(9, 0x1000 * i, 800);
  }
  talk.close();
  return capture;
}

// Several FPDUs in each segment, so that the snap length cuts headers.
MadeCapture packed_iwarp() {
  constexpr std::uint32_t sink = 0xA0B0C0D0;
  constexpr std::size_t read_bytes = 90;
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {.crc = false});
  talk.connect();
  std::uint32_t request = 0;
  const auto send = [&talk](Side side, std::initializer_list<Ulpdu> ulpdus) {
    Content segment;
    for (const Ulpdu& ulpdu : ulpdus) {
      const Content one = weft::test::fpdu(ulpdu, false);
      segment.insert(segment.end(), one.begin(), one.end());
    }
    talk.tcp().send(side, segment);
  };
  const auto read = [&request](std::uint64_t at) {
    return weft::test::read_request(++request, {.sink_stag = sink,
                                                .sink_offset = at,
                                                .size_bytes = read_bytes,
                                                .source_stag = 9,
                                                .source_offset = at});
  };
  const Content content = memory_bytes(9, 0, read_bytes);
  const auto answer = [&content](std::uint64_t at) {
    return weft::test::read_response(sink, at, content, true);
  };
  for (std::uint32_t i = 0; i < 20; ++i) {
    send(Side::a, {weft::test::send(2 * i + 1, message_bytes(2 * i + 1, 10 + i)), read(0),
                   weft::test::send(2 * i + 2, message_bytes(2 * i + 2, 10)), read(100)});
    send(Side::b, {answer(0), answer(100)});
  }
  talk.close();
  return capture;
}

MadeCapture of_one_side(MadeCapture capture, std::byte host) {
  constexpr std::size_t source_at = 14 + 15;  // the last byte of the source address
  std::erase_if(capture, [&](const MadePacket& one) { return one.bytes[source_at] != host; });
  return capture;
}

TEST(CaptureQuality, NothingIsSaidAboutAGoodOne) {
  for (const MadeCapture& capture : {roce(), iwarp()}) {
    const Judged judged(capture);
    EXPECT_TRUE(describe(judged.quality()).empty());
    EXPECT_TRUE(judged.findings.empty());
  }
}

TEST(CaptureQuality, CutFramesAreNotLost) {
  for (const MadeCapture& capture : {roce(), iwarp()}) {
    const Judged judged(cut(capture, 120));
    EXPECT_GT(judged.quality().cut_frames, 0U);
    EXPECT_EQ(judged.quality().missing_bytes + judged.quality().missing_packets, 0U);
    EXPECT_TRUE(judged.findings.empty()) << judged.findings[0].sentence;
    ASSERT_EQ(describe(judged.quality()).size(), 1U);
  }
}

// Cut or not, the operations have the same outcomes, sizes and times.
TEST(CaptureQuality, CutOperationsKeepTheirOutcomesAndTimes) {
  constexpr std::size_t snap_bytes = 120;
  for (const MadeCapture& capture : {roce(), iwarp()}) {
    const Analysed whole(capture);
    const Analysed seen(cut(capture, snap_bytes));
    const auto& operations = seen.operations.operations;
    ASSERT_EQ(operations.size(), whole.operations.operations.size());
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const Operation& expected = whole.operations.operations[i];
      EXPECT_EQ(operations[i].outcome, Operation::Outcome::complete) << i;
      EXPECT_EQ(operations[i].latency_ns(), expected.latency_ns()) << i;
      EXPECT_EQ(operations[i].bytes, expected.bytes) << i;
      EXPECT_EQ(operations[i].missing_bytes, 0U) << i;
      EXPECT_GT(operations[i].cut_bytes, 0U) << i;
    }
  }
}

// A Read of which a packet in the middle is missing has ended when its last packet came.
TEST(CaptureQuality, ReadsWithoutAPacketInTheMiddleHaveATime) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.read(Side::a, 9, 0x2000, 1'100);
  const Stamp last{capture.size() - 1, capture.back().time_ns};
  talk.send(Side::a, 100);
  capture.erase(capture.begin() + 5);
  const Analysed seen(capture);
  const auto& operations = seen.operations.operations;
  const auto read = std::ranges::find(operations, Operation::Kind::read, &Operation::kind);
  ASSERT_NE(read, operations.end());
  EXPECT_EQ(read->outcome, Operation::Outcome::incomplete);
  EXPECT_EQ(read->missing_bytes, 256U);
  EXPECT_EQ(read->end.frame, last.frame);
  EXPECT_EQ(read->latency_ns(), last.time_ns - read->start.time_ns);
}

// Wherever the snap length cuts: in private data, in a header, in the request of a Read. From 74
// bytes on, each frame has the fixed part of MPA's handshake, and the connection is recognised.
TEST(CaptureQuality, CutHeadersAreNotLost) {
  constexpr std::size_t with_handshake_bytes = 74;
  for (const MadeCapture& capture : {iwarp(), packed_iwarp()}) {
    for (std::size_t snap_bytes = 60; snap_bytes < 220; ++snap_bytes) {
      const Judged judged(cut(capture, snap_bytes));
      ASSERT_TRUE(judged.findings.empty()) << snap_bytes << ": " << judged.findings[0].sentence;
      ASSERT_EQ(judged.quality().missing_bytes, 0U) << snap_bytes;
      if (snap_bytes >= with_handshake_bytes) {
        ASSERT_EQ(judged.quality().connections, 1U) << snap_bytes;
        ASSERT_EQ(judged.quality().begun_before, 0U) << snap_bytes;
      }
    }
  }
}

// The same for RoCE. Below 54 bytes the connection is not known.
TEST(CaptureQuality, CutHeadersOfRoceAreNotLost) {
  for (const bool managed : {true, false}) {
    for (std::size_t snap_bytes = 42; snap_bytes < 100; ++snap_bytes) {
      const Judged judged(cut(roce(managed), snap_bytes));
      ASSERT_TRUE(judged.findings.empty()) << snap_bytes << ": " << judged.findings[0].sentence;
    }
  }
}

// One sentence, instead of one for each request without an answer.
TEST(CaptureQuality, OneDirectionIsSaidOnce) {
  for (const MadeCapture& capture : {roce(false), iwarp()}) {
    for (const std::byte host : {std::byte{1}, std::byte{2}}) {
      const MadeCapture half = of_one_side(capture, host);
      const Judged judged(half);
      EXPECT_EQ(judged.quality().one_direction, 1U);
      EXPECT_EQ(judged.kinds(), std::set<std::string_view>{finding::one_direction});
      EXPECT_EQ(judged.findings.size(), 1U);
      EXPECT_EQ(severity_of(judged.findings[0]), Severity::note);
    }
  }
}

// The request or the reply of the connection manager is there, and the other one is not.
TEST(CaptureQuality, OneDirectionIsSaidOnceWithTheConnectionManager) {
  for (const std::byte host : {std::byte{1}, std::byte{2}}) {
    const MadeCapture half = of_one_side(roce(), host);
    const Judged judged(half);
    EXPECT_EQ(judged.quality().one_direction, 1U);
    EXPECT_EQ(judged.kinds(), std::set<std::string_view>{finding::one_direction});
    EXPECT_EQ(judged.findings.size(), 1U);
  }
}

TEST(CaptureQuality, WhatTheCaptureLostIsCounted) {
  MadeCapture capture = roce();
  capture.erase(capture.begin() + 5);
  const Judged judged(capture);
  EXPECT_EQ(judged.quality().missing_packets, 1U);
  EXPECT_EQ(judged.kinds(), std::set<std::string_view>{finding::not_captured});
}

TEST(CaptureQuality, LatePacketsAreNotLost) {
  for (MadeCapture capture : {roce(), iwarp()}) {
    const auto at =
        std::ranges::find_if(capture, [](const auto& one) { return one.bytes.size() > 300; });
    std::swap(at[0], at[1]);
    std::swap(at[0].time_ns, at[1].time_ns);
    const Judged judged(capture);
    EXPECT_LE(judged.quality().late_packets, 1U);
    EXPECT_TRUE(judged.findings.empty()) << judged.findings[0].sentence;
  }
}

TEST(CaptureQuality, CopiesAreCountedAndLeftOut) {
  for (const MadeCapture& capture : {roce(), iwarp()}) {
    MadeCapture doubled;
    for (const MadePacket& packet : capture) {
      doubled.push_back(packet);
      doubled.push_back(packet);
      doubled.back().time_ns += 1'500;
    }
    const Judged judged(doubled);
    EXPECT_GT(judged.quality().copies, 0U);
    EXPECT_TRUE(judged.findings.empty()) << judged.findings[0].sentence;
  }
}

TEST(CaptureQuality, ABeginningInTheMiddleIsSaid) {
  MadeCapture capture = iwarp();
  capture.erase(capture.begin(), capture.begin() + 6);
  const Judged judged(capture);
  EXPECT_EQ(judged.quality().begun_before, 1U);
  ASSERT_EQ(describe(judged.quality()).size(), 1U);
  EXPECT_EQ(describe(judged.quality())[0], "The beginning of 1 of 1 connection was not captured.");
}

// --- Severities ----------------------------------------------------------------------------------

TEST(Severities, FollowTheKind) {
  Finding finding;
  finding.kind = finding::refused;
  EXPECT_EQ(severity_of(finding), Severity::error);
  finding.kind = finding::repeated;
  EXPECT_EQ(severity_of(finding), Severity::warning);
  finding.severity = Severity::note;
  EXPECT_EQ(severity_of(finding), Severity::note);
  EXPECT_STREQ(to_string(Severity::warning), "warning");
}

// TCP repeats its last segment to ask whether it has arrived.
TEST(Severities, AProbeIsANote) {
  MadeCapture capture = iwarp();
  const auto at =
      std::ranges::find_if(capture, [](const auto& one) { return one.bytes.size() > 300; });
  MadePacket again = *at;
  again.time_ns += 3'000'000;
  for (auto one = at + 1; one != capture.end(); ++one) one->time_ns += 4'000'000;
  capture.insert(at + 1, again);
  const Judged one(capture);
  ASSERT_EQ(one.findings.size(), 1U);
  EXPECT_EQ(one.findings[0].kind, finding::repeated);
  EXPECT_EQ(severity_of(one.findings[0]), Severity::note);
}

}  // namespace
}  // namespace weft::capture::test
