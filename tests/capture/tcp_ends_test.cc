// How a TCP connection begins and ends where its ports were used before, and acknowledgements that
// belong to another connection.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "capture/analysed.h"
#include "wire/tcp.h"

namespace weft::capture::test {
namespace {

constexpr std::size_t ip_at = 14;
constexpr std::size_t tcp_at = ip_at + 20;
constexpr std::size_t sequence_at = tcp_at + 4;
constexpr std::size_t acknowledgement_at = tcp_at + 8;
constexpr std::uint32_t first_a = 1'000;

// Sends of both sides, each with an acknowledgement.
void talk_both_ways(IwarpTalk& talk) {
  Operator a(talk, Side::a);
  Operator b(talk, Side::b);
  for (std::size_t i = 0; i < 20; ++i) {
    a.send(100 + i);
    b.send(100 + i);
  }
}

void set(MadePacket& packet, std::size_t at, std::uint32_t value) {
  store_be(&packet.bytes[at], value);
}

void expect_one_connection(const MadeCapture& capture, Connection::End end) {
  const Analysed seen(capture);
  ASSERT_EQ(seen.connections(), 1U);
  EXPECT_EQ(seen.connection().end, end);
  EXPECT_EQ(seen.whole().size(), 40U);
  EXPECT_EQ(seen.traffic.lost_bytes, 0U);
  EXPECT_EQ(seen.traffic.resets, 0U);
  for (const Operation& one : seen.operations.operations) {
    EXPECT_EQ(one.outcome, Operation::Outcome::complete);
  }
}

// RFC 9293 §3.5.1, figure 9: the other host still has an earlier connection, and answers the SYN
// with what it has received in that one. The reset names this number.
TEST(TcpEnds, AnOldConnectionIsResetBeforeTheNewOne) {
  for (const std::uint32_t old : {first_a + 0x1000'0000U, first_a - 0x1000'0000U}) {
    MadeCapture capture;
    {
      TcpTalk before(capture, {.first_a = first_a});
      before.segment(Side::a, {}, wire::tcp_flag::syn);
      before.segment(Side::b, {}, wire::tcp_flag::ack);
      set(capture.back(), sequence_at, 0x3000'0000);
      set(capture.back(), acknowledgement_at, old);
      before.segment(Side::a, {}, wire::tcp_flag::rst);
      set(capture.back(), sequence_at, old);
    }
    IwarpTalk talk(capture, {.first_a = first_a}, {});
    talk.connect();
    talk_both_ways(talk);
    talk.close();
    expect_one_connection(capture, Connection::End::closed);
  }
}

// One number that no packet explains is no proof that the capture has lost 400 MB.
TEST(TcpEnds, AnAcknowledgementFarAheadIsNotBelieved) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  talk.tcp().acknowledge(Side::b);
  MadePacket wrong = capture.back();
  set(wrong, acknowledgement_at, 400'000'000);
  talk_both_ways(talk);
  capture.insert(capture.end() - 20, wrong);
  talk.close();
  expect_one_connection(capture, Connection::End::closed);
}

// Two of them are: the capture has lost what they acknowledge.
TEST(TcpEnds, TwoAcknowledgementsFarAheadAreBelieved) {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator(talk, Side::a).send(100);
  constexpr std::uint32_t lost_bytes = 40'000'000;
  talk.tcp().acknowledge(Side::b);
  for (int i = 0; i < 1'500; ++i) {
    talk.tcp().acknowledge(Side::b);
    const std::uint32_t now = load_be<std::uint32_t>(&capture.back().bytes[acknowledgement_at]);
    set(capture.back(), acknowledgement_at, now + lost_bytes);
  }
  const Analysed seen(capture);
  EXPECT_EQ(seen.traffic.lost_bytes, lost_bytes);
}

// The SYN of the second connection is not in the capture, and its sequence numbers are higher or
// lower than those of the first one.
TEST(TcpEnds, AnotherConnectionFollowsWithoutItsSyn) {
  for (const std::uint32_t distance : {156'000'000U, 0U - 156'000'000U}) {
    MadeCapture capture;
    for (const std::uint32_t offset : {0U, distance}) {
      MadeCapture one;
      IwarpTalk talk(one, {.first_a = first_a + offset, .first_b = 500'000 + offset}, {});
      talk.connect();
      talk_both_ways(talk);
      talk.close();
      constexpr std::ptrdiff_t handshake_packets = 3;
      if (offset != 0) one.erase(one.begin(), one.begin() + handshake_packets);
      for (MadePacket& packet : one) {
        packet.time_ns += offset != 0 ? 10'000'000'000 : 0;
        capture.push_back(std::move(packet));
      }
    }
    const Analysed seen(capture);
    ASSERT_EQ(seen.connections(), 2U) << distance;
    EXPECT_EQ(seen.connection(1).end, Connection::End::closed);
    EXPECT_EQ(seen.whole().size(), 80U);
    EXPECT_EQ(seen.traffic.lost_bytes, 0U);
    EXPECT_EQ(seen.traffic.repeated_bytes, 0U);
  }
}

// After a loss a sender on IPv6 sends the same bytes again within 500 us, and nothing in the packet
// tells it from a copy that the capture has made.
TEST(TcpEnds, RepetitionsOnIpv6AreNoCopies) {
  MadeCapture sent;
  IwarpTalk talk(sent, {.ipv6 = true}, {});
  talk.connect();
  talk_both_ways(talk);
  talk.close();
  MadeCapture capture;
  std::uint64_t again = 0;
  for (const MadePacket& packet : sent) {
    capture.push_back(packet);
    if (capture.size() % 8 != 0 || packet.bytes.size() < 100) continue;
    capture.push_back(packet);
    capture.back().time_ns += 9'000;
    ++again;
  }
  ASSERT_GT(again, 3U);
  const Analysed seen(capture);
  EXPECT_EQ(seen.analysis.packet_counts().copies, 0U);
  EXPECT_GT(seen.traffic.repeated_bytes, 100 * again);
  EXPECT_EQ(seen.whole().size(), 40U);
}

}  // namespace
}  // namespace weft::capture::test
