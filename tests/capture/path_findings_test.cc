// Packets that begin to take another path, segments of another size, and congestion that spreads
// from one port.
#include "capture/findings/path_findings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capture/finding_frames.h"
#include "capture/findings/congestion_findings.h"
#include "capture/findings/loss_findings.h"
#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "weft/capture/quality.hpp"

namespace weft::capture::test {
namespace {

constexpr std::size_t ttl_at = 14 + 8;  // Ethernet, and the place in the header of IPv4

template <typename Findings>
struct Judged final : FindingSink {
  Analysis analysis;
  Findings sink{analysis.connections(), *this};
  std::vector<Finding> findings;

  explicit Judged(const MadeCapture& capture) {
    analysis.add_sink(sink);
    feed(analysis, capture);
    sink.finish();
  }
  void on_finding(const Finding& finding) override { findings.push_back(finding); }
};
using Paths = Judged<PathFindings>;
using Congested = Judged<CongestionFindings>;

// --- Paths ---------------------------------------------------------------------------------------

MadeCapture roce_sends(std::uint16_t later_port, int later) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  for (int one = 0; one < 20; ++one) talk.send(Side::a, 100);
  talk.set_source_port(later_port);
  for (int one = 0; one < later; ++one) talk.send(Side::a, 100);
  talk.set_source_port(0xC000);
  for (int one = 0; one < 4; ++one) talk.send(Side::a, 100);
  return capture;
}

TEST(PathFindings, AnotherSourcePortIsAnotherPath) {
  const Paths judged(roce_sends(0xC123, 12));
  ASSERT_EQ(judged.findings.size(), 2U);  // requests, and acknowledgements
  const Finding& finding = judged.findings[0];
  EXPECT_EQ(finding.kind, finding::path_change);
  EXPECT_EQ(severity_of(finding), Severity::note);
  EXPECT_NE(finding.sentence.find("changed from 49152 to 49443"), std::string::npos)
      << finding.sentence;
}

TEST(PathFindings, FewPacketsWithAnotherPortAreNone) {
  EXPECT_TRUE(Paths(roce_sends(0xC123, 5)).findings.empty());
}

// A network that sprays packets over all paths has no path that changes.
TEST(PathFindings, APortThatChangesAllTheTimeIsNone) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  for (int one = 0; one < 100; ++one) {
    talk.set_source_port(static_cast<std::uint16_t>(0xC000 + one % 7));
    talk.send(Side::a, 100);
  }
  EXPECT_TRUE(Paths(capture).findings.empty());
}

// Routers decrease the time to live, and the ICRC leaves it out.
TEST(PathFindings, AnotherHopLimitIsAnotherPath) {
  for (const bool iwarp : {false, true}) {
    MadeCapture capture;
    IwarpTalk talk(capture, {}, {});
    RoceTalk roce(capture, {});
    iwarp ? talk.connect() : roce.connect();
    Operator operations(talk, Side::a);
    for (int one = 0; one < 30; ++one) iwarp ? operations.send(100) : roce.send(Side::a, 100);
    for (std::size_t one = capture.size() / 2; one < capture.size(); ++one) {
      auto& ttl = capture[one].bytes[ttl_at];
      ttl = static_cast<std::byte>(std::to_integer<unsigned>(ttl) - 2);
    }
    const Paths judged(capture);
    ASSERT_FALSE(judged.findings.empty()) << iwarp;
    const Finding& finding = judged.findings[0];
    EXPECT_EQ(finding.kind, finding::path_change);
    EXPECT_NE(finding.sentence.find("the hop limit changed from 64 to 62."), std::string::npos)
        << finding.sentence;
    ASSERT_EQ(finding.stamps.size(), 1U);
    EXPECT_GT(finding.stamps[0].frame, capture.size() / 2);
  }
}

// --- Sizes of segments ---------------------------------------------------------------------------

MadeCapture writes(std::size_t before_bytes, std::size_t after_bytes) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator before(talk, Side::a, false, before_bytes);
  before.write(7, 0x1000, 20'000);
  Operator after(talk, Side::a, false, after_bytes);
  after.write(7, 0x1000, 20'000);
  return capture;
}

TEST(PathFindings, SmallerSegmentsAreAnotherMtu) {
  const Paths judged(writes(1'000, 900));
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings[0];
  EXPECT_EQ(finding.kind, finding::mtu_change);
  EXPECT_EQ(severity_of(finding), Severity::warning);
  EXPECT_EQ(severity_of(Paths(writes(900, 1'000)).findings.at(0)), Severity::note);
}

TEST(PathFindings, TheEndsOfMessagesAreNone) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator operations(talk, Side::a);
  for (int one = 0; one < 12; ++one) operations.write(7, 0x1000, 3'500);
  for (int one = 0; one < 40; ++one) operations.write(7, 0x1000, 300);
  for (int one = 0; one < 12; ++one) operations.send(4'100);
  EXPECT_TRUE(Paths(capture).findings.empty());
}

// --- Path MTUs of later connections --------------------------------------------------------------

// Connections with these path MTUs, one after the other.
MadeCapture connections_with(const std::vector<std::size_t>& mtus, std::uint8_t last_host = 1) {
  MadeCapture capture;
  std::uint32_t number = 0x20;
  for (const std::size_t& mtu : mtus) {
    RoceTalk talk(capture, {.mtu_bytes = mtu,
                            .host_b = &mtu == &mtus.back() ? last_host : std::uint8_t{1},
                            .qp_a = number,
                            .qp_b = number,
                            .psn_a = number << 12,
                            .psn_b = number << 13});
    talk.connect();
    talk.send(Side::a, 2 * mtu);
    talk.disconnect();
    ++number;
  }
  return capture;
}

TEST(PathFindings, ALaterConnectionWithASmallerMtuIsReported) {
  const Paths judged(connections_with({4'096, 1'024}));
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings[0];
  EXPECT_EQ(finding.kind, finding::mtu_change);
  EXPECT_EQ(severity_of(finding), Severity::note);
  EXPECT_EQ(finding.connection, 1U);
  EXPECT_EQ(
      finding.sentence,
      "The path MTU of this connection is 1024 bytes. That of an earlier one between the same "
      "hosts, which begins in frame 1, was 4096 bytes.");
  ASSERT_EQ(finding.stamps.size(), 2U);
  EXPECT_EQ(finding.stamps[0].frame, 1U);
}

TEST(PathFindings, EachSmallerMtuIsReportedOnce) {
  const auto count = [](const std::vector<std::size_t>& mtus) {
    return Paths(connections_with(mtus)).findings.size();
  };
  EXPECT_EQ(count({1'024, 4'096}), 0U);
  EXPECT_EQ(count({1'024, 1'024}), 0U);
  EXPECT_EQ(count({4'096, 1'024, 4'096, 1'024, 4'096, 1'024}), 1U);
  EXPECT_EQ(count({4'096, 2'048, 1'024, 256}), 3U);
  EXPECT_TRUE(Paths(connections_with({4'096, 1'024}, 3)).findings.empty());  // another host
}

// --- Losses before the capture -------------------------------------------------------------------

// One packet of a Send comes 20 ms after the others.
TEST(LossFindings, APacketThatWasLostBeforeTheCaptureIsNamed) {
  for (const std::int64_t late_ns : {20'000'000, 1'000'000}) {
    MadeCapture capture;
    RoceTalk talk(capture, {});
    talk.connect();
    talk.send(Side::a, 100);
    talk.acknowledge_all(false);
    const auto begin = static_cast<std::ptrdiff_t>(capture.size());
    talk.send(Side::a, 1'000);
    const MadePacket lost = capture[static_cast<std::size_t>(begin) + 1];
    capture.erase(capture.begin() + begin + 1);
    capture.push_back(lost);
    capture.back().time_ns += late_ns;
    const std::uint64_t frame = capture.size();
    talk.acknowledge(Side::b, talk.next_psn(Side::a) - 1);
    capture.back().time_ns = capture[frame - 1].time_ns + 1'000;
    const Judged<LossFindings> judged(capture);
    if (late_ns < longest_detour_ns) {
      EXPECT_TRUE(judged.findings.empty());
      continue;
    }
    ASSERT_EQ(judged.findings.size(), 1U);
    const Finding& finding = judged.findings[0];
    EXPECT_EQ(finding.kind, finding::lost_before);
    EXPECT_EQ(severity_of(finding), Severity::warning);
    EXPECT_TRUE(
        finding.sentence.starts_with("1 packet from 10.0.0.2 QP 0x11 was lost before the capture"))
        << finding.sentence;
    EXPECT_EQ(frames_of(finding), std::vector<std::uint64_t>{frame});
  }
}

// --- Congestion ----------------------------------------------------------------------------------

// Marked packets from one host to another one.
void marked(MadeCapture& capture, std::uint8_t from, std::uint8_t to, std::uint32_t queue_pair) {
  RoceTalk talk(capture, {.host_a = from,
                          .host_b = to,
                          .qp_a = queue_pair,
                          .qp_b = queue_pair,
                          .psn_a = queue_pair << 12,
                          .psn_b = queue_pair << 13});
  talk.connect();
  talk.send(Side::a, 100);
  talk.set_ecn(3);
  talk.acknowledge_all(false);
  for (int one = 0; one < 3; ++one) talk.send(Side::a, 100);
}

TEST(CongestionFindings, OneSenderDoesNotShowTheOnePort) {
  MadeCapture capture;
  marked(capture, 2, 9, 0x20);
  EXPECT_TRUE(Congested(capture).findings.empty());
}

TEST(CongestionFindings, SeveralSendersToOneHostMeetAtItsPort) {
  MadeCapture capture;
  marked(capture, 2, 9, 0x20);
  marked(capture, 3, 9, 0x21);
  const Congested judged(capture);
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings[0];
  EXPECT_EQ(finding.kind, finding::congested_port);
  EXPECT_EQ(severity_of(finding), Severity::warning);
  EXPECT_TRUE(finding.sentence.starts_with("6 packets from 2 hosts to 10.0.0.9 met congestion"))
      << finding.sentence;
  EXPECT_EQ(finding.sentence.find("spread"), std::string::npos) << finding.sentence;
  EXPECT_EQ(finding.stamps.size(), 2U);
}

TEST(CongestionFindings, ItSpreadsToWhatTheSameHostsSendElsewhere) {
  MadeCapture capture;
  marked(capture, 2, 9, 0x20);
  marked(capture, 3, 9, 0x21);
  marked(capture, 3, 8, 0x22);
  marked(capture, 5, 7, 0x23);  // another host
  const Congested judged(capture);
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings[0];
  EXPECT_NE(finding.sentence.find("It spread: what the same hosts sent to 10.0.0.8 (frame"),
            std::string::npos)
      << finding.sentence;
  EXPECT_EQ(finding.sentence.find("10.0.0.7"), std::string::npos) << finding.sentence;
  EXPECT_EQ(finding.stamps.size(), 3U);
}

}  // namespace
}  // namespace weft::capture::test
