// Waits for TCP's timers, and answers far from the others of their kind.
#include "capture/findings/latency_findings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "support/fpdu.h"

namespace weft::capture::test {
namespace {

constexpr std::int64_t ms = 1'000'000;

struct Judged final : FindingSink {
  Analysis analysis;
  LatencyFindings latency{analysis.connections(), *this};
  std::vector<Finding> findings;

  explicit Judged(const MadeCapture& capture) {
    analysis.add_sink(latency);
    analysis.add_operations(latency);
    feed(analysis, capture);
    latency.finish();
  }
  void on_finding(const Finding& finding) override { findings.push_back(finding); }
};

// A conversation in which each packet is sent at a given time after the one before it.
struct Timed {
  MadeCapture capture;
  IwarpTalk talk{capture, {}, {}};
  std::int64_t now_ns = 0;
  std::uint32_t message = 0;
  std::uint32_t answers = 0;

  Timed() {
    talk.connect();
    now_ns = capture.back().time_ns;
  }
  void stamp(std::int64_t after_ns) {
    now_ns += after_ns;
    capture.back().time_ns = now_ns;
  }
  void send(std::int64_t after_ns) {
    ++message;
    talk.fpdu(Side::a, weft::test::send(message, message_bytes(message, 100)));
    stamp(after_ns);
  }
  void answer(std::int64_t after_ns) {
    ++answers;
    talk.fpdu(Side::b, weft::test::send(answers, message_bytes(answers, 100)));
    stamp(after_ns);
  }
  void acknowledge(std::int64_t after_ns) {
    talk.tcp().acknowledge(Side::b);
    stamp(after_ns);
  }
  void repeat_last(std::int64_t after_ns) {
    capture.push_back(capture.back());
    stamp(after_ns);
  }
};

TEST(LatencyFindings, ADelayedAcknowledgementThatHeldBackDataIsReported) {
  Timed timed;
  for (int i = 0; i < 10; ++i) {
    timed.send(ms);
    timed.acknowledge(41 * ms);
    timed.send(ms / 10);
    timed.acknowledge(ms);
  }
  const Judged judged(timed.capture);
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings[0];
  EXPECT_EQ(finding.kind, finding::delayed_acknowledgement);
  EXPECT_EQ(severity_of(finding), Severity::warning);
  EXPECT_NE(finding.sentence.find("waited 10 times"), std::string::npos) << finding.sentence;
  EXPECT_NE(finding.sentence.find("after 50 % of its messages and for 410 ms"), std::string::npos)
      << finding.sentence;
  EXPECT_LE(finding.stamps.size(), LatencyFindings::max_frames);
}

// The data was there before, so the receiver or its interface held it back.
TEST(LatencyFindings, AReceiverThatGoesOnOnlyAfterADelayedAcknowledgementIsReported) {
  for (const std::int64_t waited_ns : {42 * ms, 60 * ms}) {
    Timed timed;
    for (int i = 0; i < 25; ++i) {
      timed.send(ms);
      timed.acknowledge(waited_ns);
      timed.answer(2 * ms);
      timed.talk.tcp().acknowledge(Side::a);
      timed.stamp(ms);
    }
    const Judged judged(timed.capture);
    ASSERT_EQ(judged.findings.size(), waited_ns == 42 * ms ? 1U : 0U);
    if (judged.findings.empty()) continue;
    EXPECT_EQ(judged.findings[0].kind, finding::delayed_acknowledgement);
    EXPECT_NE(judged.findings[0].sentence.find("25 times, which is 100 %"), std::string::npos)
        << judged.findings[0].sentence;
  }
}

// An idle connection acknowledges late, and that costs nothing.
TEST(LatencyFindings, ADelayedAcknowledgementThatHeldBackNothingIsNot) {
  Timed timed;
  for (int i = 0; i < 10; ++i) {
    timed.send(100 * ms);
    timed.acknowledge(41 * ms);
  }
  EXPECT_TRUE(Judged(timed.capture).findings.empty());
}

TEST(LatencyFindings, ARetransmissionTimerIsReported) {
  Timed timed;
  timed.send(ms);
  timed.repeat_last(203 * ms);
  timed.acknowledge(ms);
  const Judged judged(timed.capture);
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].kind, finding::retransmission_timer);
  EXPECT_NE(judged.findings[0].sentence.find("once, for 203 ms in all"), std::string::npos)
      << judged.findings[0].sentence;
}

TEST(LatencyFindings, AFastRetransmissionIsNot) {
  Timed timed;
  timed.send(ms);
  timed.repeat_last(3 * ms);
  timed.acknowledge(ms);
  EXPECT_TRUE(Judged(timed.capture).findings.empty());
}

MadeCapture reads(std::int64_t slow_ns) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  std::int64_t shift_ns = 0;
  for (int i = 0; i < 150; ++i) {
    const std::size_t from = capture.size();
    talk.read(Side::a, 9, 0x2000, 200);
    if (i == 70) shift_ns += slow_ns;
    const bool slow = i == 70;
    for (std::size_t one = from; one < capture.size(); ++one) {
      capture[one].time_ns += slow && one == from ? shift_ns - slow_ns : shift_ns;
    }
  }
  talk.disconnect();
  for (std::size_t one = capture.size() - 2; one < capture.size(); ++one) {
    capture[one].time_ns += shift_ns;
  }
  return capture;
}

TEST(LatencyFindings, AnAnswerFarFromTheOthersIsReported) {
  const Judged judged(reads(5'000 * ms));
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].kind, finding::slow_answer);
  EXPECT_NE(judged.findings[0].sentence.find("of 150 such requests"), std::string::npos)
      << judged.findings[0].sentence;
  EXPECT_TRUE(Judged(reads(5 * ms)).findings.empty());
}

MadeCapture sends(std::int64_t slow_ns, bool more_behind) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  std::int64_t shift_ns = 0;
  for (int i = 0; i < 150; ++i) {
    const bool slow = i == 70;
    std::size_t from = capture.size();
    const std::uint32_t psn = talk.next_psn(Side::a);
    talk.acknowledge_all(!slow);
    talk.send(Side::a, 100);
    if (slow) {
      // The next message comes after the wait, and before the acknowledgement of both.
      if (more_behind) talk.send(Side::a, 100);
      for (std::size_t one = from++; one < capture.size(); ++one) capture[one].time_ns += shift_ns;
      shift_ns += slow_ns;
      if (more_behind) capture.back().time_ns += slow_ns;
      from = capture.size();
      talk.acknowledge(Side::b, more_behind ? psn + 1 : psn);
    }
    for (std::size_t one = from; one < capture.size(); ++one) capture[one].time_ns += shift_ns;
  }
  return capture;
}

TEST(LatencyFindings, AnAcknowledgementFarFromTheOthersIsReported) {
  const Judged judged(sends(700 * ms, false));
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].kind, finding::slow_acknowledgement);
  EXPECT_EQ(severity_of(judged.findings[0]), Severity::warning);
  EXPECT_NE(judged.findings[0].sentence.find("acknowledged after 700 ms"), std::string::npos)
      << judged.findings[0].sentence;
  EXPECT_TRUE(Judged(sends(5 * ms, false)).findings.empty());
}

// A requester that does not ask for an acknowledgement gets it with that of a later message.
TEST(LatencyFindings, AnAcknowledgementTogetherWithThatOfALaterMessageIsNot) {
  EXPECT_TRUE(Judged(sends(700 * ms, true)).findings.empty());
}

Rpc rpc_of(std::uint32_t procedure, std::int64_t latency_ns) {
  Rpc rpc;
  rpc.has_header = true;
  rpc.program = 100005;
  rpc.procedure = procedure;
  rpc.xid = static_cast<std::uint32_t>(latency_ns);
  rpc.call.emplace().first = {3, 0};
  rpc.reply.emplace().first = {9, latency_ns};
  rpc.latency_ns = latency_ns;
  return rpc;
}

TEST(LatencyFindings, AReplyFarFromTheOthersOfItsProcedureIsReported) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  Judged judged(capture);
  for (int i = 0; i < 99; ++i) judged.latency.on_rpc(rpc_of(1, 10'000));
  for (int i = 0; i < 200; ++i) judged.latency.on_rpc(rpc_of(2, 100 * ms));
  judged.latency.on_rpc(rpc_of(1, 660 * ms));
  judged.latency.finish();
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].kind, finding::slow_reply);
  EXPECT_EQ(judged.findings[0].xid, std::uint32_t{660 * ms});
  EXPECT_NE(judged.findings[0].sentence.find("100 such calls (9.22 µs)"), std::string::npos)
      << judged.findings[0].sentence;
}

}  // namespace
}  // namespace weft::capture::test
