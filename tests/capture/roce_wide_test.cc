// RoCE: Reads with more response packets than a queue pair may have under way otherwise, and what
// the capture holds behind the end of a connection.
#include <gtest/gtest.h>

#include <algorithm>

#include "capture/analysed.h"
#include "capture/made_roce.h"

namespace weft::capture::test {
namespace {

constexpr std::size_t mtu_bytes = 256;
constexpr std::size_t wide_bytes = 70'000 * mtu_bytes;

const Operation* read_of(const Analysed& seen) {
  const auto& all = seen.operations.operations;
  const auto found = std::ranges::find(all, Operation::Kind::read, &Operation::kind);
  return found == all.end() ? nullptr : &*found;
}

// With the connection manager, without it, and as the first packet of the capture.
TEST(RoceWide, AReadOfManyPacketsStaysInItsConnection) {
  for (const bool managed : {true, false}) {
    for (const int sends_before : {0, 4}) {
      MadeCapture capture;
      RoceTalk talk(capture, {.mtu_bytes = mtu_bytes});
      if (managed) talk.connect();
      for (int i = 0; i < sends_before; ++i) talk.send(Side::a, 64);
      talk.read(Side::a, 9, 0x1000, Content(wide_bytes));
      for (int i = 0; i < 20; ++i) talk.send(Side::a, 64);
      const Analysed seen(capture);
      ASSERT_EQ(seen.connections(), 1U) << managed << sends_before;
      const Operation* const read = read_of(seen);
      ASSERT_NE(read, nullptr);
      EXPECT_EQ(read->outcome, Operation::Outcome::complete);
      EXPECT_EQ(read->bytes, wide_bytes);
      EXPECT_EQ(seen.traffic.lost_packets, 0U);
      EXPECT_EQ(seen.traffic.unknown_answers, 0U);
    }
  }
}

// The next request is sent before the response, and the Read is requested again when it seems to be
// over.
TEST(RoceWide, RequestsBehindAndAgainStayInTheConnection) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = mtu_bytes});
  talk.send(Side::a, 64);
  const auto length = static_cast<std::uint32_t>(wide_bytes);
  const std::uint32_t psn = talk.read_request(Side::a, 9, 0x1000, length);
  const MadePacket request = capture.back();
  talk.acknowledge_all(false);
  talk.send(Side::a, 64);
  const Content answer(wide_bytes);
  talk.read_answer(Side::b, psn, answer);
  capture.push_back(request);
  capture.back().time_ns = capture[capture.size() - 2].time_ns + 1'000'000'000;
  const std::size_t behind = capture.size();
  talk.read_answer(Side::b, psn, Bytes(answer).first(10 * mtu_bytes));
  for (std::size_t i = behind; i < capture.size(); ++i) capture[i].time_ns += 1'000'000'000;
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 1U);
  const Operation* const read = read_of(seen);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->outcome, Operation::Outcome::complete);
}

// Another connection with the same queue pair numbers is still told apart.
TEST(RoceWide, APsnFarFromAllReadsBeginsAnotherConnection) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = mtu_bytes});
  for (int i = 0; i < 20; ++i) talk.send(Side::a, 64);
  talk.read(Side::a, 9, 0x1000, Content(100 * mtu_bytes));
  for (int i = 0; i < 20; ++i) talk.send(Side::a, 64);
  RoceTalk later(capture, {.mtu_bytes = mtu_bytes, .psn_a = 9'000'000, .psn_b = 8'000'000});
  for (int i = 0; i < 20; ++i) later.send(Side::a, 64);
  EXPECT_EQ(Analysed(capture).connections(), 2U);
}

// Sends with their acknowledgements, which count the messages.
void talk_counted(MadeCapture& capture, std::int64_t later_ns, std::uint32_t messages) {
  const std::size_t begin = capture.size();
  RoceTalk talk(capture, {});
  talk.acknowledge_all(false);
  for (std::uint32_t msn = 1; msn <= messages; ++msn) {
    const std::uint32_t psn = talk.next_psn(Side::a);
    talk.send(Side::a, 64);
    talk.acknowledge(Side::b, psn, wire::Aeth::ack(msn));
  }
  for (std::size_t i = begin; i < capture.size(); ++i) capture[i].time_ns += later_ns;
}

// Programs are run twice, with fixed queue pair numbers and PSNs: the message sequence number shows
// that it is another connection.
TEST(RoceRestart, TheSameNumbersAreAnotherConnection) {
  MadeCapture capture;
  constexpr std::uint32_t messages = 50;
  talk_counted(capture, 0, messages);
  talk_counted(capture, 5'000'000'000, messages);
  const Analysed seen(capture);
  EXPECT_EQ(seen.connections(), 2U);
  EXPECT_EQ(seen.operations.operations.size(), 2 * messages);
  EXPECT_EQ(seen.traffic.repeated_bytes, 0U);
  EXPECT_EQ(seen.traffic.lost_packets, 0U);
}

// A repetition is acknowledged with the number of messages so far.
TEST(RoceRestart, ARepetitionOfTheFirstRequestIsNone) {
  MadeCapture capture;
  constexpr std::uint32_t messages = 20;
  talk_counted(capture, 0, messages);
  MadePacket again = capture.front();
  again.time_ns = capture.back().time_ns + 1'000'000'000;
  capture.push_back(again);
  RoceTalk answers(capture, {});
  const std::uint32_t last = wire::psn_plus(answers.next_psn(Side::a), messages - 1);
  answers.acknowledge(Side::b, last, wire::Aeth::ack(messages));
  capture.back().time_ns = again.time_ns + 1'000;
  const Analysed seen(capture);
  EXPECT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.operations.operations.size(), messages);
  EXPECT_EQ(seen.traffic.repeated_bytes, 64U);
}

// The capture holds the last packet of a message behind the messages that end the connection.
TEST(RoceWide, AMessageMayEndBehindItsConnection) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = mtu_bytes});
  talk.connect();
  talk.acknowledge_all(false);
  talk.send(Side::a, 3 * mtu_bytes);
  const MadePacket last = capture.back();
  capture.pop_back();
  talk.disconnect();
  capture.push_back(last);
  capture.back().time_ns = capture[capture.size() - 2].time_ns + 1'000;
  const Analysed seen(capture);
  ASSERT_EQ(seen.operations.operations.size(), 1U);
  EXPECT_EQ(seen.operations.operations[0].outcome, Operation::Outcome::complete);
  EXPECT_EQ(seen.operations.operations[0].bytes, 3 * mtu_bytes);
  EXPECT_EQ(seen.whole().size(), 1U);
}

}  // namespace
}  // namespace weft::capture::test
