// Waits for credits: seen where a sender had none left and went on when it was given some, and not
// where it had some, or may have had nothing to send.
#include "weft/capture/credit_findings.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string_view>
#include <vector>

#include "capture/finding_frames.h"
#include "capture/findings/credit_watch.h"
#include "capture/made_roce.h"

namespace weft::capture::test {
namespace {

using Frames = std::vector<std::uint64_t>;

struct FindingLog final : FindingSink {
  void on_finding(const Finding& finding) override { findings.push_back(finding); }
  std::vector<Finding> findings;
};

// --- What counts as a wait -----------------------------------------------------------------------

TEST(CreditWatch, MeasuresFromTheLastCreditToTheNext) {
  CreditWatch watch;
  watch.sent({1, 1'000}, false);
  watch.sent({2, 2'000}, true);
  watch.given({3, 9'000}, false);
  EXPECT_EQ(watch.waits().count, 0U);  // no request needs it yet
  watch.sent({4, 9'500}, true);
  watch.given({5, 10'500}, false);
  watch.sent({6, 11'000}, false);
  EXPECT_EQ(watch.waits().count, 2U);
  EXPECT_EQ(watch.waits().total_ns, 8'000);
  EXPECT_EQ(watch.waits().longest_ns, 7'000);
}

TEST(CreditWatch, WhoGoesOnLaterHadNothingToSend) {
  CreditWatch watch;
  watch.sent({1, 1'000}, true);
  watch.given({2, 2'000}, false);
  watch.sent({3, 3'001}, false);
  EXPECT_EQ(watch.waits().count, 0U);
}

TEST(CreditWatch, MoreCreditsBeforeItGoesOnDoNotMakeTheWaitLonger) {
  CreditWatch watch;
  watch.sent({1, 1'000}, true);
  watch.given({2, 2'000}, false);
  watch.given({3, 2'500}, false);
  watch.sent({4, 2'900}, false);
  EXPECT_EQ(watch.waits().count, 1U);
  EXPECT_EQ(watch.waits().total_ns, 1'000);
}

// --- InfiniBand's end-to-end credits -------------------------------------------------------------

struct EndToEnd : testing::Test {
  MadeCapture capture;
  RoceTalk talk{capture, {}};
  std::int64_t delay_ns = 0;

  void SetUp() override {
    talk.connect();
    talk.acknowledge_all(false);
    give(2);
  }
  // Credits behind everything that has been sent.
  void give(std::uint8_t code, std::uint32_t before = 1) {
    talk.acknowledge(Side::b, talk.next_psn(Side::a) - before, wire::Aeth::ack(0, code));
    capture.back().time_ns += delay_ns;
  }
  void send() {
    talk.send(Side::a, 10);
    capture.back().time_ns += delay_ns;
  }
  std::vector<Finding> found() {
    FindingLog log;
    Analysis analysis;
    CreditFindings findings(analysis.connections(), log);
    analysis.add_sink(findings);
    feed(analysis, capture);
    findings.finish();
    return log.findings;
  }
};

TEST_F(EndToEnd, AWaitIsFound) {
  send();
  send();  // the second of two
  const auto last = capture.size();
  delay_ns += 1'000'000;
  give(2);
  const auto given = capture.size();
  send();
  const auto findings = found();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, finding::credit_stall);
  EXPECT_EQ(frames_of(findings[0]), (Frames{last, given}));
  EXPECT_EQ(findings[0].stamps[0].time_ns, capture[last - 1].time_ns);
  EXPECT_NE(findings[0].sentence.find("10.0.0.2 QP 0x11 had no end-to-end credits left, once"),
            std::string::npos)
      << findings[0].sentence;
  EXPECT_NE(findings[0].sentence.find("up to 1.01 ms in all"), std::string::npos)
      << findings[0].sentence;
}

TEST_F(EndToEnd, NoneIsFoundWhereCreditsAreLeft) {
  for (int i = 0; i < 10; ++i) {
    send();
    delay_ns += 1'000'000;
    give(2);
  }
  EXPECT_TRUE(found().empty());
}

TEST_F(EndToEnd, ALaterMessageNeedNotHaveWaited) {
  send();
  send();
  give(2);
  delay_ns += 1'000'000;
  send();
  EXPECT_TRUE(found().empty());
}

TEST_F(EndToEnd, WhatIsStillUnderWayUsesCredits) {
  send();
  give(2, 2);  // up to what came before it: one of two is under way
  send();      // the second
  delay_ns += 1'000'000;
  give(2, 2);  // the first is done: one is left
  send();
  EXPECT_EQ(found().size(), 1U);
}

TEST_F(EndToEnd, ResponderThatDoesNotCountIsNotLookedAt) {
  capture.pop_back();
  for (int i = 0; i < 10; ++i) {
    send();
    delay_ns += 1'000'000;
    give(wire::Aeth::no_credit_limit);
  }
  EXPECT_TRUE(found().empty());
}

TEST_F(EndToEnd, NothingIsSaidBehindAGap) {
  send();
  capture.pop_back();
  send();
  send();
  delay_ns += 1'000'000;
  give(2);
  send();
  EXPECT_TRUE(found().empty());
}

// --- Weft's messages and streams -----------------------------------------------------------------

Content bytes(std::initializer_list<unsigned> values) {
  Content content;
  for (const unsigned value : values) content.push_back(static_cast<std::byte>(value));
  return content;
}

// A side reports events, 1 µs apart.
struct Told : testing::Test {
  ConnectionTable connections;
  FindingLog log;
  CreditFindings findings{connections, log};
  std::uint64_t frame = 0;
  std::int64_t time_ns = 0;

  void connect(const Content& greeting) {
    Connection connection;
    connection.offer_a = {.seen = true, .private_data = greeting};
    connection.offer_b = connection.offer_a;
    connections.add(std::move(connection));
  }
  Origin from(Side side) {
    return {.connection = 0, .side = side, .stamp = {++frame, time_ns += 1'000}};
  }
  void send(Side side, const Content& message) {
    findings.on_send(from(side), {.message = frame, .bytes = message, .last = true});
  }
  void write_with(Side side, std::uint32_t immediate) {
    WritePart part;
    part.first = part.last = part.has_immediate = true;
    part.immediate = immediate;
    findings.on_write(from(side), part);
  }
  Frames finish() {
    findings.finish();
    if (log.findings.empty()) return {};
    EXPECT_EQ(log.findings.size(), 1U);
    EXPECT_EQ(log.findings[0].kind, finding::credit_stall);
    return frames_of(log.findings[0]);
  }
};

struct Messages : Told {
  // Two credits for each side.
  void SetUp() override { connect(bytes({'W', 'E', 'F', 'M', 1, 0, 0, 2, 0, 0, 16})); }
  void message(Side side, unsigned credits = 0) {
    Content sent = bytes({1, 0, 0, credits});
    sent.resize(40);
    send(side, sent);
  }
  void update(Side side, unsigned credits) {
    Content sent = bytes({3, 0, 0, credits});
    sent.resize(16);
    send(side, sent);
  }
};

TEST_F(Messages, AWaitIsFound) {
  message(Side::a);
  message(Side::a);  // frame 2
  message(Side::b);
  update(Side::b, 1);  // frame 4
  message(Side::a);
  EXPECT_EQ(finish(), (Frames{2, 4}));
  EXPECT_NE(log.findings[0].sentence.find("no credits for messages left, once"), std::string::npos)
      << log.findings[0].sentence;
}

TEST_F(Messages, NoneIsFoundWhereCreditsAreLeft) {
  for (int i = 0; i < 10; ++i) {
    message(Side::a, 1);
    message(Side::b, 1);
  }
  EXPECT_EQ(finish(), Frames{});
}

TEST_F(Messages, MoreThanThereIsMeansThatTheAccountIsWrong) {
  message(Side::a);
  message(Side::a);
  message(Side::a);  // what gave this credit was not seen
  update(Side::b, 1);
  message(Side::a);
  EXPECT_EQ(finish(), Frames{});
}

struct Streams : Told {
  // Three receives, a ring of 256 bytes.
  void SetUp() override {
    Content greeting = bytes({'W', 'E', 'F', 'S', 1, 1, 0, 3, 0, 0, 0, 0, 0, 0});
    greeting.resize(22);
    greeting.push_back(std::byte{1});
    greeting.resize(28);
    connect(greeting);
  }
  static constexpr std::uint32_t update(std::uint32_t receives, std::uint32_t ring_bytes) {
    return 1U << 31 | receives << 21 | ring_bytes;
  }
};

TEST_F(Streams, AFullRingIsFound) {
  write_with(Side::a, 200);
  write_with(Side::a, 56);  // frame 2
  write_with(Side::b, 7);
  write_with(Side::b, update(0, 200));  // frame 4
  write_with(Side::a, 100);
  EXPECT_EQ(finish(), (Frames{2, 4}));
}

TEST_F(Streams, NoReceivesLeftIsFoundInEitherVariant) {
  for (int i = 0; i < 3; ++i) send(Side::b, bytes({0, 0, 0, 8}));  // frames 1 to 3
  const Content word = bytes({0x80, 0x40, 0, 16, 0, 0, 0, 0});
  findings.on_immediate(from(Side::a), {.message = 1, .bytes = word});  // two receives
  send(Side::b, bytes({0, 0, 0, 8}));
  EXPECT_EQ(finish(), (Frames{3, 4}));
}

TEST_F(Streams, NoneIsFoundWhereThereIsRoom) {
  for (int i = 0; i < 10; ++i) {
    write_with(Side::a, 255);
    write_with(Side::b, update(1, 255));
  }
  EXPECT_EQ(finish(), Frames{});
}

}  // namespace
}  // namespace weft::capture::test
