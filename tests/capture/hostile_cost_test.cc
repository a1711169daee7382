// Traffic that is made so that it costs much: the time for a packet must not grow with what came
// before. Processor time is compared with that of harmless traffic of the same size.
#include <gtest/gtest.h>

#include <array>
#include <ctime>

#include "capture/analysed.h"
#include "capture/made_roce.h"
#include "support/random.h"

namespace weft::capture::test {
namespace {

template <typename Work>
double seconds_of(const Work& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

void analyse_only(const MadeCapture& capture) {
  Analysis analysis;
  feed(analysis, capture);
}

// Places that each look like the beginning of a long FPDU.
Content long_fpdus(std::size_t count, weft::test::Random& random) {
  Content bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t chance = random.next();
    const auto part = [chance](unsigned shift) { return static_cast<std::byte>(chance >> shift); };
    bytes.insert(bytes.end(), {std::byte{0xFC} | (part(0) & std::byte{3}), part(8) | std::byte{2},
                               std::byte{0x81} | (part(16) & std::byte{0x40}), std::byte{0x40},
                               part(24), part(32), part(40), part(48) | std::byte{2}});
  }
  return bytes;
}

// The capture begins in the middle of the connection, so FPDUs are searched. Nearly 200 KB fill the
// window of the search. After that each byte may move it.
TEST(HostileCost, OfPlacesThatLookLikeAnFpdu) {
  constexpr std::size_t segments = 150;
  constexpr std::size_t places = 175;
  const auto capture_with = [](std::size_t small_segments) {
    weft::test::Random random(2);
    MadeCapture capture;
    TcpTalk talk(capture, {});
    for (std::size_t i = 0; i < segments; ++i) {
      talk.send(Side::a, long_fpdus(places, random));
      talk.acknowledge(Side::b);
    }
    for (std::size_t i = 0; i < small_segments; ++i) talk.send(Side::a, long_fpdus(1, random));
    return capture;
  };
  const double without = seconds_of([&] { analyse_only(capture_with(0)); });
  const double with = seconds_of([&] { analyse_only(capture_with(100)); });
  EXPECT_LT(with, 3 * without + 0.5);
}

// Many queue pairs between the same hosts with the same traffic and PSNs.
TEST(HostileCost, OfQueuePairsThatLookAlike) {
  const auto capture_with = [](std::uint32_t pairs, std::size_t rounds) {
    MadeCapture capture;
    std::vector<RoceTalk> talks;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      talks.emplace_back(capture, RoceOptions{.qp_a = 0x5000 + i, .qp_b = 0x1000 + i});
      talks.back().acknowledge_all(false);
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      for (RoceTalk& talk : talks) talk.send(Side::a, 16);
      for (RoceTalk& talk : talks) {
        talk.acknowledge(Side::b, wire::psn_plus(talk.next_psn(Side::a), wire::psn_mask));
      }
    }
    return capture;
  };
  const double few = seconds_of([&] { analyse_only(capture_with(8, 2'000)); });
  const double many = seconds_of([&] { analyse_only(capture_with(800, 20)); });
  EXPECT_LT(many, 10 * few + 0.2);
}

// Each request for a connection stays without an answer, and its finding depends on all other
// connections.
TEST(HostileCost, OfConnectionsWithoutAnswer) {
  struct Count final : FindingSink {
    void on_finding(const Finding& /*finding*/) override { ++findings; }
    std::size_t findings = 0;
  };
  const auto find_among = [](std::uint64_t connections) {
    ConnectionTable table;
    Count count;
    TrafficFindings findings(table, count);
    for (std::uint64_t i = 0; i < connections; ++i) {
      std::array<std::byte, 4> host{std::byte{10}};
      host[2] = static_cast<std::byte>(i >> 8);
      host[3] = static_cast<std::byte>(i);
      table.add({.transport = Transport::rc,
                 .a = {.address = HostAddress::ipv4(host.data())},
                 .b = {},
                 .end = Connection::End::unanswered,
                 .first = {i + 1, 0},
                 .last = {i + 1, 0},
                 .frames = 2,
                 .side_frames = {2, 0}});
    }
    findings.finish();
    EXPECT_GE(count.findings, connections);
  };
  constexpr std::uint64_t few = 2'000;
  constexpr std::uint64_t many = 10 * few;
  const double of_few = seconds_of([&] { find_among(few); });
  const double of_many = seconds_of([&] { find_among(many); });
  EXPECT_LT(of_many, 40 * of_few + 0.2);
}

}  // namespace
}  // namespace weft::capture::test
