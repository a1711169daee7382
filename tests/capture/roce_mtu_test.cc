// The path MTU of connections whose handshake was not captured. Packets of full length prove it;
// the distance from a Read to the next captured request does not, because requests between the two
// may come late.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "capture/analysed.h"
#include "capture/damage.h"
#include "capture/made_roce.h"
#include "support/random.h"

namespace weft::capture::test {
namespace {

std::size_t whole_reads(const Analysed& seen) {
  return static_cast<std::size_t>(std::ranges::count_if(
      seen.traffic.reads, [](const auto& one) { return one.second.whole(); }));
}

void expect_clean(const Analysed& seen) {
  EXPECT_EQ(seen.connections(), 1U);
  for (const Violation& one : seen.traffic.violations) {
    ADD_FAILURE() << "violation " << int(one.kind) << ": " << one.found << " instead of "
                  << one.expected;
  }
  EXPECT_EQ(seen.traffic.unknown_answers, 0U);
  EXPECT_EQ(seen.traffic.lost_packets, 0U);
  expect_known_bytes(seen.traffic);
}

constexpr std::size_t late_reads = 5;

// So many that the decoder knows the first PSN before it comes to the Reads behind them.
void send_short_messages(RoceTalk& talk) {
  constexpr std::size_t messages = 200;
  for (std::size_t i = 0; i < messages; ++i) talk.send(Side::a, 100);
}

// Short messages, then five Reads whose second to fourth request come
// after `answers` of the five responses.
MadeCapture with_late_reads(std::size_t mtu_bytes, std::size_t read_bytes, std::size_t answers) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = mtu_bytes});
  send_short_messages(talk);
  const auto address = [](std::size_t read) { return 0x10000 * (read + 1); };
  std::vector<std::uint32_t> psns;
  MadeCapture requests;
  RoceTalk reads(requests, {.mtu_bytes = mtu_bytes, .psn_a = talk.next_psn(Side::a)});
  for (std::size_t i = 0; i < late_reads; ++i) {
    psns.push_back(
        reads.read_request(Side::a, 9, address(i), static_cast<std::uint32_t>(read_bytes)));
  }
  capture.push_back(requests.front());
  capture.push_back(requests.back());
  const auto add_late_ones = [&] {
    capture.insert(capture.end(), requests.begin() + 1, requests.end() - 1);
  };
  for (std::size_t i = 0; i < late_reads; ++i) {
    if (i == answers) add_late_ones();
    talk.read_answer(Side::b, psns[i], memory_bytes(9, address(i), read_bytes));
  }
  if (answers == late_reads) add_late_ones();
  // The times of the packets are those of their places.
  for (std::size_t i = 0; i < capture.size(); ++i) {
    capture[i].time_ns = capture[0].time_ns + static_cast<std::int64_t>(i) * 10'000;
  }
  return capture;
}

TEST(RoceMtu, ReadRequestsMayComeLate) {
  for (const std::size_t mtu_bytes : {256U, 512U, 1'024U, 2'048U, 4'096U}) {
    for (const std::size_t read_bytes : {300U, 1'000U, 1'024U, 2'048U, 4'096U, 10'000U}) {
      for (std::size_t answers = 0; answers <= late_reads; ++answers) {
        SCOPED_TRACE(testing::Message() << "MTU " << mtu_bytes << ", Reads of " << read_bytes
                                        << " bytes, after " << answers << " responses");
        const Analysed seen(with_late_reads(mtu_bytes, read_bytes, answers));
        expect_clean(seen);
        EXPECT_EQ(whole_reads(seen), late_reads);
        EXPECT_EQ(seen.traffic.repeated_requests, 0U);
        // One packet of more than half the largest MTU proves it as well.
        const bool known = read_bytes > mtu_bytes || read_bytes > 2'048;
        EXPECT_EQ(seen.connection().mtu_bytes, known ? mtu_bytes : 0);
      }
    }
  }
}

// Reads of one packet each show that the MTU is not smaller, but not how large it is.
TEST(RoceMtu, MayBeLargerThanReadsOfOnePacket) {
  for (const bool answered : {true, false}) {
    MadeCapture capture;
    RoceTalk talk(capture, {.mtu_bytes = 4'096});
    send_short_messages(talk);
    for (const std::uint64_t address : {0x10000, 0x20000, 0x30000}) {
      const std::uint32_t psn = talk.read_request(Side::a, 9, address, 1'000);
      if (answered) talk.read_answer(Side::b, psn, memory_bytes(9, address, 1'000));
    }
    talk.send(Side::a, 5'000);
    const Analysed seen(capture);
    expect_clean(seen);
    EXPECT_EQ(seen.connection().mtu_bytes, 4'096U);
    EXPECT_EQ(whole_reads(seen), answered ? 3U : 0U);
  }
}

// The request for the rest of a Read lies within its PSNs, so it says nothing of its width.
TEST(RoceMtu, TheRestOfAReadIsNoNextRequest) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 256});
  send_short_messages(talk);
  const std::uint32_t psn = talk.read_request(Side::a, 9, 0x10000, 1'000);
  wire::IbHeaders again;
  again.bth.opcode = {wire::IbTransport::rc, wire::IbOperation::read_request};
  again.bth.psn = psn + 1;
  again.reth = {.address = 0x10100, .key = 9, .length_bytes = 1'000 - 256};
  talk.packet(Side::a, again);
  talk.read_answer(Side::b, psn, memory_bytes(9, 0x10000, 1'000));
  talk.send(Side::a, 100);
  const Analysed seen(capture);
  expect_clean(seen);
  EXPECT_EQ(seen.traffic.repeated_requests, 1U);
  EXPECT_EQ(whole_reads(seen), 1U);
  EXPECT_EQ(seen.connection().mtu_bytes, 256U);
}

// Without responses, only the distances show how many PSNs each Read takes.
TEST(RoceMtu, DistancesAloneExplainTheNumbersOfReads) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1'024});
  constexpr std::size_t reads = 6'000;
  for (std::size_t i = 0; i < reads; ++i) {
    talk.read_request(Side::a, 9, 0x10000 * (i + 1), i % 2 == 0 ? 5'000 : 3'000);
  }
  const Analysed seen(capture);
  expect_clean(seen);
  EXPECT_EQ(seen.operations.count(Operation::Kind::read), reads);
  EXPECT_EQ(seen.connection().mtu_bytes, 0U);
}

// A response may lie in the largest possible range of an earlier Read that is open, while its own
// request is late.
TEST(RoceMtu, AResponseMayComeBeforeItsRequestAndBeforeThatOfAnEarlierRead) {
  for (const std::size_t later_bytes : {100U, 700U, 1'000U}) {
    MadeCapture capture;
    RoceTalk talk(capture, {.mtu_bytes = 1'024});
    send_short_messages(talk);
    const std::uint32_t first = talk.read_request(Side::a, 9, 0x10000, 900);
    const std::uint32_t second =
        talk.read_request(Side::a, 9, 0x20000, static_cast<std::uint32_t>(later_bytes));
    const MadePacket late = capture.back();
    capture.pop_back();
    talk.read_answer(Side::b, second, memory_bytes(9, 0x20000, later_bytes));
    capture.push_back(late);
    talk.read_answer(Side::b, first, memory_bytes(9, 0x10000, 900));
    const Analysed seen(capture);
    SCOPED_TRACE(later_bytes);
    expect_clean(seen);
    EXPECT_EQ(whole_reads(seen), 2U);
  }
}

// The same where it is the last packet of a longer response, whose other packets were lost.
TEST(RoceMtu, ALastPacketIsPlacedWhereAnMtuExplainsIt) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1'024});
  send_short_messages(talk);
  const std::uint32_t psn = talk.read_request(Side::a, 9, 0x10000, 1'500);
  talk.read_answer(Side::b, psn, memory_bytes(9, 0x10000, 1'500));
  capture.erase(capture.end() - 2);
  talk.send(Side::a, 100);
  const Analysed seen(capture);
  expect_clean(seen);
  ASSERT_EQ(seen.traffic.reads.size(), 1U);
  EXPECT_EQ(std::ranges::count(seen.traffic.reads.begin()->second.have, true), 1'500 - 1'024);
}

// Bursts of Reads and their responses between short Sends. No payload but that of the responses
// shows the MTU.
MadeCapture bursts_of_reads(std::size_t mtu_bytes, Random& random) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = mtu_bytes});
  std::uint64_t address = 0x10000;
  send_short_messages(talk);
  for (int burst = 0; burst < 40; ++burst) {
    std::vector<std::pair<std::uint32_t, Content>> asked;
    for (std::size_t i = random.between(1, 6); i > 0; --i, address += 0x10000) {
      const auto bytes = static_cast<std::uint32_t>(1 + random.below(6'000));
      const std::uint32_t psn = talk.read_request(Side::a, 9, address, bytes);
      asked.emplace_back(psn, memory_bytes(9, address, bytes));
    }
    for (const auto& [psn, answer] : asked) talk.read_answer(Side::b, psn, answer);
    if (random.chance(2)) talk.send(Side::a, 100);
  }
  return capture;
}

TEST(RoceMtu, ShuffledBurstsOfReadsComeOutInOrder) {
  for (const std::uint64_t seed : weft::test::seeds(30)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    Random random(seed);
    const MadeCapture capture = bursts_of_reads(256U << random.below(5), random);
    const std::size_t reads = whole_reads(Analysed(capture));
    for (const std::size_t window : {2, 8, 64}) {
      const Analysed seen(shuffled(capture, 0, window, random));
      expect_clean(seen);
      EXPECT_EQ(whole_reads(seen), reads) << window;
      EXPECT_EQ(seen.traffic.repeated_requests, 0U) << window;
    }
  }
}

// What is lost must not make the decoder accuse the rest.
TEST(RoceMtu, LostPacketsAreNoViolations) {
  for (const std::uint64_t seed : weft::test::seeds(30)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    Random random(seed);
    const MadeCapture capture = bursts_of_reads(256U << random.below(5), random);
    const Damage damage{.window = 8, .by_tap = 30};
    const Analysed seen(damaged({capture, 0}, damage, random).capture);
    expect_known_bytes(seen.traffic);
    for (const Violation& one : seen.traffic.violations) {
      ADD_FAILURE() << int(one.kind) << ": " << one.found << " instead of " << one.expected;
    }
  }
}

}  // namespace
}  // namespace weft::capture::test
