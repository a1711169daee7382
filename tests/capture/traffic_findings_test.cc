// Each finding about the transport, from a capture that shows what it is about; and none from one
// that does not.
#include "weft/capture/traffic_findings.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "capture/analysed.h"
#include "capture/finding_frames.h"
#include "capture/made_roce.h"
#include "wire/hello.h"

namespace weft::capture::test {
namespace {

struct FindingLog final : FindingSink {
  void on_finding(const Finding& finding) override { findings.push_back(finding); }
  std::vector<Finding> findings;
};

std::vector<Finding> findings_of(const MadeCapture& capture) {
  FindingLog log;
  find_in(capture, log);
  return log.findings;
}

struct TrafficFindingsTest : testing::Test {
  MadeCapture capture;
  RoceTalk talk{capture, {}};

  void SetUp() override { talk.connect(); }

  // The number of the frame that was made last.
  [[nodiscard]] std::uint64_t last_frame() const { return capture.size(); }
  void again(std::size_t frame) { capture.push_back(MadePacket(capture[frame - 1])); }
  Finding only() {
    const auto found = findings_of(capture);
    EXPECT_EQ(found.size(), 1U);
    if (found.empty()) return {};
    EXPECT_EQ(found[0].sentence.back(), '.');
    return found[0];
  }
  void expect_only(std::string_view kind, const std::vector<std::uint64_t>& frames) {
    const Finding found = only();
    EXPECT_EQ(found.kind, kind) << found.sentence;
    EXPECT_EQ(frames_of(found), frames) << found.sentence;
  }
};

TEST_F(TrafficFindingsTest, NothingIsFoundWhereNothingIsWrong) {
  talk.send(Side::a, 1'000);
  talk.write(Side::b, 1, 0x1000, 1'000);
  talk.read(Side::a, 1, 0x1000, 1'000);
  talk.disconnect();
  EXPECT_TRUE(findings_of(capture).empty());
}

TEST_F(TrafficFindingsTest, Refused) {
  talk.acknowledge_all(false);
  const auto psn = talk.next_psn(Side::a);
  talk.write(Side::a, 1, 0x1000, 10);
  talk.acknowledge(Side::b, psn, wire::Aeth::nak(0, wire::Aeth::Nak::remote_access_error));
  expect_only(finding::refused, {last_frame()});
}

TEST_F(TrafficFindingsTest, NotReadyTellsTimersAndWhatTheyCost) {
  talk.acknowledge_all(false);
  const auto psn = talk.next_psn(Side::a);
  talk.send(Side::a, 10);
  talk.acknowledge(Side::b, psn, wire::Aeth::rnr_nak(0, 12));
  const auto first = last_frame();
  talk.acknowledge(Side::b, psn, wire::Aeth::rnr_nak(0, 12));
  const auto second = last_frame();
  talk.acknowledge(Side::b, psn);
  const Finding found = only();
  EXPECT_EQ(found.kind, finding::not_ready);
  EXPECT_EQ(frames_of(found), (std::vector<std::uint64_t>{first, second}));
  EXPECT_NE(found.sentence.find("2 RNR NAKs (timers of 1.28 ms in all), which cost 20.0 µs"),
            std::string::npos)
      << found.sentence;
}

TEST_F(TrafficFindingsTest, Repeated) {
  talk.send(Side::a, 10);
  again(last_frame() - 1);
  capture.back().time_ns += 5'000'000;
  expect_only(finding::repeated, {last_frame()});
  EXPECT_NE(only().sentence.find("10 B again, in 1 packet, which cost 5.00 ms at most"),
            std::string::npos)
      << only().sentence;
}

TEST_F(TrafficFindingsTest, SequenceError) {
  const auto psn = talk.next_psn(Side::a);
  talk.acknowledge(Side::b, psn, wire::Aeth::nak(0, wire::Aeth::Nak::psn_sequence_error));
  expect_only(finding::sequence_error, {last_frame()});
}

TEST_F(TrafficFindingsTest, NotCaptured) {
  talk.send(Side::a, 10);
  capture.erase(capture.end() - 2);
  talk.send(Side::a, 10);
  expect_only(finding::not_captured, {last_frame() - 1});
  EXPECT_NE(only().sentence.find("11, 1 packet is not in the capture"), std::string::npos)
      << only().sentence;
}

// A repetition that costs nothing has no cost, and congestion that only one side reports no zero.
TEST_F(TrafficFindingsTest, NothingIsPrintedAboutZero) {
  talk.send(Side::a, 10);
  again(last_frame() - 1);
  capture.back().time_ns -= 1'000'000;
  EXPECT_TRUE(only().sentence.ends_with("10 B again, in 1 packet.")) << only().sentence;
}

TEST_F(TrafficFindingsTest, MarksWithoutNotifications) {
  talk.set_ecn(3);
  talk.send(Side::a, 10);
  talk.set_ecn(0);
  for (const Finding& found : findings_of(capture)) {
    EXPECT_EQ(found.kind, finding::congestion);
    EXPECT_TRUE(found.sentence.ends_with("met congestion.")) << found.sentence;
  }
}

TEST_F(TrafficFindingsTest, UnansweredRequest) {
  talk.read(Side::a, 1, 0x1000, 10);
  capture.pop_back();
  const auto request = last_frame();
  talk.acknowledge(Side::b, talk.next_psn(Side::a) - 2);
  // The capture ends before there was time for an answer.
  EXPECT_TRUE(findings_of(capture).empty());
  capture.back().time_ns += 2'000'000'000;
  expect_only(finding::unanswered_request, {request});
}

// The response to a later request shows that there will be none.
TEST_F(TrafficFindingsTest, UnansweredRequestBeforeAnAnsweredOne) {
  talk.read(Side::a, 1, 0x1000, 10);
  capture.pop_back();
  const auto request = last_frame();
  talk.read(Side::a, 1, 0x2000, 10);
  EXPECT_TRUE(std::ranges::any_of(findings_of(capture), [&](const Finding& found) {
    return found.kind == finding::unanswered_request &&
           frames_of(found) == std::vector<std::uint64_t>{request};
  }));
}

// An empty Read moves nothing: a device asks with it whether everything before it has arrived.
TEST_F(TrafficFindingsTest, AnEmptyReadWithoutAnAnswerIsANote) {
  talk.read(Side::a, 1, 0x1000, 0);
  capture.pop_back();
  talk.acknowledge(Side::b, talk.next_psn(Side::a) - 2);
  capture.back().time_ns += 2'000'000'000;
  const Finding found = only();
  EXPECT_EQ(found.kind, finding::unanswered_request);
  EXPECT_EQ(severity_of(found), Severity::note);
}

// Of two requests of Weft's devices that cross, one is rejected.
TEST(RejectedConnections, AttemptsOfDevicesAreNoFinding) {
  using wire::HelloAnswer;
  for (const auto& [answer, found] :
       {std::pair{HelloAnswer::crossed, 0U}, std::pair{HelloAnswer::not_yet, 0U},
        std::pair{HelloAnswer::refused, 1U}}) {
    ConnectionTable connections;
    FindingLog log;
    TrafficFindings findings(connections, log);
    Connection rejected{.end = Connection::End::rejected};
    rejected.offer_b.private_data.resize(wire::Hello::bytes);
    wire::Hello{.answer = answer}.emit(rejected.offer_b.private_data);
    connections.add(rejected);
    findings.finish();
    EXPECT_EQ(log.findings.size(), found);
  }
}

// A device also refuses a request that crosses once its own request was accepted.
TEST(RejectedConnections, AttemptsOfConnectedQueuePairsAreNoFinding) {
  struct Attempt {
    std::uint32_t source_qpn;
    std::uint32_t destination_qpn;
    std::size_t findings;
  };
  for (const auto& [source, destination, found] :
       {Attempt{7, 8, 0}, Attempt{8, 7, 0}, Attempt{7, 9, 1}, Attempt{7, 7, 1}}) {
    ConnectionTable connections;
    FindingLog log;
    TrafficFindings findings(connections, log);
    const auto attempt = [&](wire::HelloAnswer answer, std::uint32_t a, std::uint32_t b) {
      Connection one{.end = answer == wire::HelloAnswer::accepted ? Connection::End::open
                                                                  : Connection::End::rejected};
      one.offer_a.private_data.resize(wire::Hello::bytes);
      wire::Hello{.source_qpn = a, .destination_qpn = b}.emit(one.offer_a.private_data);
      one.offer_b.private_data.resize(wire::Hello::bytes);
      wire::Hello{.answer = answer, .source_qpn = b, .destination_qpn = a}.emit(
          one.offer_b.private_data);
      connections.add(one);
    };
    attempt(wire::HelloAnswer::refused, source, destination);
    attempt(wire::HelloAnswer::accepted, 8, 7);
    findings.finish();
    EXPECT_EQ(log.findings.size(), found) << source << " and " << destination;
  }
}

TEST_F(TrafficFindingsTest, CongestionMet) {
  talk.set_ecn(3);
  talk.acknowledge_all(false);
  talk.send(Side::a, 10);
  expect_only(finding::congestion, {last_frame()});
}

// Packets are 1 µs apart while the sender is fast, and 10 µs after it was asked to slow down.
TEST_F(TrafficFindingsTest, CongestionSaysWhoSlowedDown) {
  talk.acknowledge_all(false);
  const auto send = [&](std::int64_t gap_ns) {
    const std::int64_t time_ns = capture.back().time_ns + gap_ns;
    talk.send(Side::a, 100);
    capture.back().time_ns = time_ns;
  };
  for (int i = 0; i < 101; ++i) send(1'000);
  wire::IbHeaders notification;
  notification.bth.opcode = wire::congestion_notification;
  notification.bth.becn = true;
  const std::int64_t told_ns = capture.back().time_ns;
  talk.packet(Side::b, notification, Content(16));
  capture.back().time_ns = told_ns;
  for (int i = 0; i < 100; ++i) send(10'000);
  const std::int64_t end_ns = capture.back().time_ns;
  talk.acknowledge(Side::b, talk.next_psn(Side::a) - 1);
  capture.back().time_ns = end_ns;
  const Finding found = only();
  EXPECT_EQ(found.kind, finding::congestion);
  EXPECT_TRUE(
      found.sentence.ends_with("sent 101 MB/s before the first one, and 10.0 MB/s after it."))
      << found.sentence;
  EXPECT_TRUE(
      found.sentence.starts_with("10.0.0.1 QP 0x11 sent 1 congestion notification. "
                                 "10.0.0.2 QP 0x11 sent"))
      << found.sentence;
}

TEST_F(TrafficFindingsTest, BadChecksum) {
  talk.send(Side::a, 10);
  again(last_frame() - 1);
  capture.back().bytes.back() ^= std::byte{1};
  expect_only("bad-checksum", {last_frame()});
}

TEST_F(TrafficFindingsTest, BadVersion) {
  wire::IbHeaders headers;
  headers.bth.opcode.operation = wire::IbOperation::send_only;
  headers.bth.psn = talk.next_psn(Side::a);
  headers.bth.version = 3;
  talk.packet(Side::a, headers);
  expect_only("bad-version", {last_frame()});
}

TEST_F(TrafficFindingsTest, ConnectionsThatCameToNothing) {
  capture.resize(1);
  expect_only(finding::unanswered_connection, {1});
  talk.reject();
  expect_only(finding::rejected_connection, {2});
}

// The message that follows a reply shows that there was one.
TEST_F(TrafficFindingsTest, AReplyThatTheCaptureLacks) {
  capture.erase(capture.begin() + 1);
  for (const Finding& found : findings_of(capture)) {
    EXPECT_NE(found.kind, finding::unanswered_connection) << found.sentence;
  }
}

// A requester without an answer repeats its request, after 6.4 seconds with these timeouts.
TEST_F(TrafficFindingsTest, ARequestThatIsNotRepeatedWasAnswered) {
  capture.resize(1);
  RoceTalk later(capture, {.qp_a = 0x99, .qp_b = 0x98});
  later.connect();
  later.disconnect();
  const auto go_on = [&](std::int64_t seconds) {
    for (std::size_t i = 1; i < capture.size(); ++i) {
      capture[i].time_ns += seconds * 1'000'000'000;
    }
  };
  go_on(6);
  expect_only(finding::unanswered_connection, {1});
  go_on(2);
  EXPECT_TRUE(findings_of(capture).empty());
  // It was repeated, so there was none.
  capture.insert(capture.begin() + 1, MadePacket(capture[0]));
  capture[1].time_ns += 6'500'000'000;
  expect_only(finding::unanswered_connection, {2});
}

// Where the capture is out of order, packets may come before the reply that their connection
// follows from, and before its request.
TEST_F(TrafficFindingsTest, PacketsBeforeTheReplyMakeNoConnectionOfTheirOwn) {
  talk.acknowledge_all(false);
  for (int i = 0; i < 4; ++i) talk.send(Side::a, 10);
  talk.acknowledge(Side::b, talk.next_psn(Side::a) - 1, {});
  talk.disconnect();
  for (std::size_t before = 1; before < 5; ++before) {
    MadeCapture late = capture;
    // The request, the reply, or both come after a packet or some.
    for (std::size_t first : {0U, 1U}) {
      const auto at = late.begin() + static_cast<std::ptrdiff_t>(first);
      std::rotate(
          at, at + 3 - static_cast<std::ptrdiff_t>(first),
          at + 3 - static_cast<std::ptrdiff_t>(first) + static_cast<std::ptrdiff_t>(before));
      Analysis analysis;
      feed(analysis, late);
      for (const Connection& one : analysis.connections()) EXPECT_GT(one.frames, 0U);
      EXPECT_EQ(analysis.connections().size(), analysis.connections().known());
    }
  }
}

// Elsewhere the capture lacks packets, so the answer may be among them.
TEST_F(TrafficFindingsTest, ALossyCaptureLeavesARequestOpen) {
  capture.resize(1);
  RoceTalk later(capture, {.qp_a = 0x99, .qp_b = 0x98});
  later.connect();
  later.send(Side::a, 10);
  later.send(Side::a, 10);
  expect_only(finding::unanswered_connection, {1});
  capture.erase(capture.begin() + 4);
  expect_only(finding::not_captured, {6});
}

// Where the capture is out of order, a message may come after the one that ends the connection.
TEST_F(TrafficFindingsTest, PacketsBehindTheEndAreNoImpossibleHeaders) {
  talk.acknowledge_all(false);
  talk.send(Side::a, 3'000);
  const std::uint32_t last_psn = talk.next_psn(Side::a) - 1;
  const auto second = static_cast<std::ptrdiff_t>(capture.size());
  talk.send(Side::a, 3'000);
  const auto end = static_cast<std::ptrdiff_t>(capture.size());
  talk.acknowledge(Side::b, last_psn, {});
  talk.disconnect();
  std::rotate(capture.begin() + second, capture.begin() + end, capture.end());
  // The last packet of the first Send is missing.
  capture.erase(capture.begin() + second - 1);
  for (const Finding& found : findings_of(capture)) {
    EXPECT_NE(found.kind, "bad-header") << found.sentence;
  }
}

TEST_F(TrafficFindingsTest, HalfOpen) {
  talk.disconnect();
  capture.pop_back();
  expect_only(finding::half_open, {last_frame()});
}

TEST_F(TrafficFindingsTest, OftenIsOneFindingWithItsFirstFrames) {
  talk.send(Side::a, 10);
  const auto sent = last_frame() - 1;
  for (int i = 1; i <= 100; ++i) {
    again(sent);
    capture.back().time_ns += i * 1'000'000;  // a copy that the capture made would come sooner
  }
  const Finding found = only();
  EXPECT_EQ(found.stamps.size(), TrafficFindings::max_frames);
  EXPECT_NE(found.sentence.find("1.00 kB again, in 100 packets"), std::string::npos)
      << found.sentence;
}

}  // namespace
}  // namespace weft::capture::test
