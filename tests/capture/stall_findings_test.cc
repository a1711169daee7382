// Connections that stand still: silence, retries without an answer, closed TCP windows.
#include "capture/findings/stall_findings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capture/finding_frames.h"
#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "support/fpdu.h"

namespace weft::capture::test {
namespace {

constexpr std::int64_t ms = 1'000'000;

struct Judged final : FindingSink {
  Analysis analysis;
  StallFindings stalls{analysis.connections(), *this};
  std::vector<Finding> findings;

  explicit Judged(const MadeCapture& capture) {
    analysis.add_sink(stalls);
    analysis.add_operations(stalls);
    feed(analysis, capture);
    stalls.finish();
  }
  void on_finding(const Finding& finding) override { findings.push_back(finding); }
};

// Adds time before a packet and all later ones.
void delay(MadeCapture& capture, std::size_t from, std::int64_t time_ns) {
  for (std::size_t one = from; one < capture.size(); ++one) capture[one].time_ns += time_ns;
}

// --- Silence -------------------------------------------------------------------------------------

// A Read whose answer comes after `wait_ns`.
MadeCapture read_after(std::int64_t wait_ns, std::size_t bytes) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.send(Side::a, 100);
  const std::size_t request = capture.size();
  talk.read(Side::a, 9, 0x2000, bytes);
  delay(capture, request + 1, wait_ns);
  return capture;
}

TEST(StallFindings, SilenceWhileAReadWasOutstandingIsReported) {
  for (const std::size_t bytes : {200U, 2'000U}) {
    const MadeCapture capture = read_after(2'500 * ms, bytes);
    const Judged judged(capture);
    ASSERT_EQ(judged.findings.size(), 1U);
    const Finding& finding = judged.findings[0];
    EXPECT_EQ(finding.kind, finding::silence);
    EXPECT_EQ(severity_of(finding), Severity::warning);
    // The request, and the first packet of the answer.
    EXPECT_EQ(frames_of(finding), (std::vector<std::uint64_t>{6, 7}));
    EXPECT_NE(finding.sentence.find("once, for 2.50 s in all"), std::string::npos)
        << finding.sentence;
    EXPECT_TRUE(Judged(read_after(900 * ms, bytes)).findings.empty());
  }
}

TEST(StallFindings, SilenceUntilAnAcknowledgementIsReported) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.send(Side::a, 100);
  delay(capture, capture.size() - 1, 3'000 * ms);
  const Judged judged(capture);
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].kind, finding::silence);
}

TEST(StallFindings, SilenceOfAnIdleConnectionIsNot) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  for (int i = 0; i < 5; ++i) {
    const std::size_t from = capture.size();
    talk.send(Side::a, 100);
    talk.read(Side::a, 9, 0x2000, 200);
    delay(capture, from, 60'000 * ms * (i + 1));
  }
  EXPECT_TRUE(Judged(capture).findings.empty());
}

// A Send for which no acknowledgement was requested gets it with a later one.
TEST(StallFindings, SilenceBeforeTheNextMessageIsNot) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.acknowledge_all(false);
  talk.send(Side::a, 100);
  talk.acknowledge_all(true);
  const std::size_t from = capture.size();
  talk.send(Side::a, 100);
  delay(capture, from, 60'000 * ms);
  EXPECT_TRUE(Judged(capture).findings.empty());
}

// --- Retries -------------------------------------------------------------------------------------

// A message of three packets that is repeated, and then acknowledged or not.
MadeCapture retried(int rounds, bool answered) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.send(Side::a, 100);
  talk.acknowledge_all(false);
  const std::size_t from = capture.size();
  const std::uint32_t psn = talk.next_psn(Side::a);
  talk.send(Side::a, 700);
  const MadeCapture message(capture.begin() + static_cast<std::ptrdiff_t>(from), capture.end());
  for (int round = 1; round <= rounds; ++round) {
    for (MadePacket packet : message) {
      packet.time_ns += round * 60 * ms;
      capture.push_back(packet);
    }
  }
  if (!answered) return capture;
  const std::size_t answer = capture.size();
  talk.acknowledge(Side::b, psn + 2);
  delay(capture, answer, (rounds + 1) * 60 * ms);
  return capture;
}

TEST(StallFindings, RetriesThatNothingAnsweredAreReported) {
  const Judged judged(retried(7, false));
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings[0];
  EXPECT_EQ(finding.kind, finding::retries_exhausted);
  EXPECT_EQ(severity_of(finding), Severity::error);
  EXPECT_NE(finding.sentence.find("the same request 7 more times"), std::string::npos)
      << finding.sentence;
  EXPECT_EQ(finding.stamps.size(), 7U);
}

TEST(StallFindings, RetriesThatWereAnsweredAreNot) {
  EXPECT_TRUE(Judged(retried(7, true)).findings.empty());
  EXPECT_TRUE(Judged(retried(1, false)).findings.empty());
}

// The other side answers, although it has no receive.
TEST(StallFindings, RetriesThatAnRnrNakAnswersAreNot) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  talk.acknowledge_all(false);
  const std::uint32_t psn = talk.next_psn(Side::a);
  talk.send(Side::a, 100);
  const MadePacket message = capture.back();
  for (int round = 0; round < 5; ++round) {
    const std::int64_t now_ns = capture.back().time_ns;
    talk.acknowledge(Side::b, psn, wire::Aeth::rnr_nak(0, 12));
    capture.back().time_ns = now_ns + ms;
    capture.push_back(message);
    capture.back().time_ns = now_ns + 2 * ms;
  }
  EXPECT_TRUE(Judged(capture).findings.empty());
}

// --- Windows -------------------------------------------------------------------------------------

// Sets the window of the last segment, after Ethernet and IPv4.
void set_window(MadeCapture& capture, std::byte high) {
  constexpr std::size_t window_at = 14 + 20 + 14;
  capture.back().bytes.at(window_at) = high;
  capture.back().bytes.at(window_at + 1) = std::byte{0};
}

MadeCapture closed_for(std::int64_t wait_ns, bool opens) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  talk.fpdu(Side::a, weft::test::send(1, message_bytes(1, 100)));
  talk.tcp().acknowledge(Side::b);
  set_window(capture, std::byte{0});
  const std::size_t from = capture.size();
  talk.tcp().acknowledge(Side::b);
  set_window(capture, opens ? std::byte{1} : std::byte{0});
  delay(capture, from, wait_ns);
  return capture;
}

TEST(StallFindings, AClosedWindowIsReported) {
  for (const bool opens : {true, false}) {
    const Judged judged(closed_for(400 * ms, opens));
    ASSERT_EQ(judged.findings.size(), 1U);
    const Finding& finding = judged.findings[0];
    EXPECT_EQ(finding.kind, finding::zero_window);
    EXPECT_EQ(severity_of(finding), Severity::warning);
    EXPECT_NE(finding.sentence.find("once, for 400 ms in all"), std::string::npos)
        << finding.sentence;
    EXPECT_EQ(finding.stamps.size(), 2U);
  }
  EXPECT_TRUE(Judged(closed_for(ms / 2, true)).findings.empty());
}

// Linux probes without data, and with the sequence number before the next one; others with one byte
// of new data. An acknowledgement is no probe.
TEST(StallFindings, ProbesOfAClosedWindowAreNamed) {
  constexpr std::size_t sequence_low_at = 14 + 20 + 7;
  for (const std::size_t probe_bytes : {0, 1}) {
    MadeCapture capture;
    IwarpTalk talk(capture, {}, {});
    talk.connect();
    talk.fpdu(Side::a, weft::test::send(1, message_bytes(1, 100)));
    talk.tcp().acknowledge(Side::b);
    set_window(capture, std::byte{0});
    talk.tcp().acknowledge(Side::a);
    for (int i = 0; i < 3; ++i) {
      const std::size_t from = capture.size();
      const std::vector<std::byte> byte(probe_bytes);
      talk.tcp().segment(Side::a, byte, wire::tcp_flag::ack);
      std::byte& low = capture.back().bytes[sequence_low_at];
      ASSERT_NE(low, std::byte{0});
      if (probe_bytes == 0) low = static_cast<std::byte>(std::to_integer<unsigned>(low) - 1);
      delay(capture, from, 300 * ms);
    }
    const Judged judged(capture);
    ASSERT_EQ(judged.findings.size(), 1U) << probe_bytes;
    EXPECT_EQ(judged.findings[0].kind, finding::zero_window);
    EXPECT_NE(judged.findings[0].sentence.find("sent 3 persist probes"), std::string::npos)
        << judged.findings[0].sentence;
  }
}

TEST(StallFindings, TheWindowOfASideThatResetsIsNotClosed) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  talk.fpdu(Side::a, weft::test::send(1, message_bytes(1, 100)));
  talk.tcp().reset(Side::b);
  set_window(capture, std::byte{0});
  EXPECT_TRUE(Judged(capture).findings.empty());
}

}  // namespace
}  // namespace weft::capture::test
