#include "device/tap/capture_tap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "capture_reader.h"
#include "capture_support.h"

namespace weft::device {
namespace {

namespace flag = wire::tcp_flag;
using testing::ElementsAre;
using testing::SizeIs;
using wire::PcapngDirection;

const auto local4 = address_of("10.1.2.3", 40'000);
const auto remote4 = address_of("10.1.2.4", 7471);

std::vector<int> flags_of(const std::vector<CapturedPacket>& packets) {
  std::vector<int> flags;
  for (const auto& packet : packets) flags.push_back(packet.tcp.flags);
  return flags;
}

TEST_F(CaptureTest, AConnectionOpensWithThreePackets) {
  const auto file = open(path());
  const ConnectionTap tap(file, local4, remote4, true);
  const auto packets = read_capture(path());  // while the file is open
  ASSERT_THAT(packets, SizeIs(3));
  EXPECT_THAT(flags_of(packets), ElementsAre(flag::syn, flag::syn | flag::ack, flag::ack));
  EXPECT_EQ(packets[0].block.direction, PcapngDirection::outbound);
  EXPECT_EQ(packets[1].block.direction, PcapngDirection::inbound);
  EXPECT_EQ(packets[0].tcp.source_port, 40'000);
  EXPECT_EQ(packets[0].tcp.destination_port, 7471);
  EXPECT_EQ(packets[1].tcp.source_port, 7471);
  EXPECT_EQ(packets[0].tcp.acknowledgement, 0u);
  EXPECT_EQ(packets[1].tcp.acknowledgement, packets[0].tcp.sequence + 1);
  EXPECT_EQ(packets[2].tcp.sequence, packets[0].tcp.sequence + 1);
  EXPECT_EQ(packets[2].tcp.acknowledgement, packets[1].tcp.sequence + 1);
  for (const auto& syn : {packets[0], packets[1]}) {
    EXPECT_EQ(syn.tcp.mss_bytes, 65'000);
    EXPECT_TRUE(syn.tcp.window_scale);
  }
}

TEST_F(CaptureTest, ThePassiveSideReceivesTheSyn) {
  const auto file = open(path());
  const ConnectionTap tap(file, local4, remote4, false);
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(3));
  EXPECT_THAT(flags_of(packets), ElementsAre(flag::syn, flag::syn | flag::ack, flag::ack));
  EXPECT_EQ(packets[0].block.direction, PcapngDirection::inbound);
  EXPECT_EQ(packets[0].tcp.source_port, 7471);
}

TEST_F(CaptureTest, HeadersComeFromTheAddresses) {
  const auto file = open(path());
  const ConnectionTap tap(file, local4, remote4, true);
  const auto packet = read_capture(path()).at(0);
  const wire::Ipv4Address source{std::byte{10}, std::byte{1}, std::byte{2}, std::byte{3}};
  const wire::MacAddress mac{std::byte{2}, std::byte{0}, std::byte{10},
                             std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_TRUE(packet.ipv4);
  EXPECT_EQ(packet.ip4.source, source);
  EXPECT_EQ(packet.ethernet.source, mac);
  EXPECT_EQ(packet.ethernet.destination[5], std::byte{4});
}

TEST_F(CaptureTest, MappedAddressesAreIpv4AndOthersIpv6) {
  const auto file = open(path());
  {
    const ConnectionTap mapped(file, address_of("::ffff:10.1.2.3", 1),
                               address_of("::ffff:10.1.2.4", 2), true);
    const ConnectionTap plain(file, address_of("fd00::3", 1), address_of("fd00::4", 2), true);
  }
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(12));
  EXPECT_TRUE(packets[0].ipv4);
  EXPECT_EQ(packets[0].ip4.destination[3], std::byte{4});
  EXPECT_FALSE(packets[3].ipv4);
  EXPECT_EQ(packets[3].ip6.source[0], std::byte{0xFD});
  EXPECT_EQ(packets[3].ethernet.source[5], std::byte{3});
}

TEST_F(CaptureTest, DataCarriesSequenceAndAcknowledgement) {
  const auto file = open(path());
  ConnectionTap tap(file, local4, remote4, true);
  const auto one = pattern(100);
  const auto two = pattern(33);
  const std::vector<iovec> pieces{piece_of(one), piece_of({}), piece_of(two)};
  tap.sent(pieces, 120);  // less than the last piece
  tap.received({pieces.data(), 1}, 7);
  tap.sent(pieces, 133);
  tap.sent(pieces, 0);
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(6));
  const std::uint32_t local = packets[2].tcp.sequence;
  const std::uint32_t remote = packets[2].tcp.acknowledgement;
  EXPECT_THAT(packets[3].payload, SizeIs(120));
  EXPECT_EQ(packets[3].payload[99], one[99]);
  EXPECT_EQ(packets[3].payload[119], two[19]);
  EXPECT_EQ(packets[3].tcp.flags, flag::psh | flag::ack);
  EXPECT_EQ(std::tuple(packets[3].tcp.sequence, packets[3].tcp.acknowledgement),
            std::tuple(local, remote));
  EXPECT_EQ(std::tuple(packets[4].tcp.sequence, packets[4].tcp.acknowledgement),
            std::tuple(remote, local + 120));
  EXPECT_EQ(std::tuple(packets[5].tcp.sequence, packets[5].tcp.acknowledgement),
            std::tuple(local + 120, remote + 7));
  EXPECT_EQ(packets[4].block.direction, PcapngDirection::inbound);
  EXPECT_EQ(packets[5].ip4.id, packets[3].ip4.id + 1);
}

TEST_F(CaptureTest, LongWritesAreCutIntoSegments) {
  for (const char* host : {"10.1.2.3", "fd00::3"}) {
    const auto file = open(path());
    ConnectionTap tap(file, address_of(host, 1), address_of(host, 2), true);
    const auto data = pattern(200'001);
    const std::vector<iovec> pieces{piece_of(Bytes(data).first(64'999)),
                                    piece_of(Bytes(data).subspan(64'999))};
    tap.sent(pieces, data.size());
    const auto packets = read_capture(path());
    ASSERT_THAT(packets, SizeIs(7));
    std::vector<std::byte> joined;
    for (std::size_t i = 3; i < packets.size(); ++i) {
      EXPECT_EQ(packets[i].tcp.sequence, packets[2].tcp.sequence + joined.size());
      joined.insert(joined.end(), packets[i].payload.begin(), packets[i].payload.end());
    }
    EXPECT_EQ(joined, data);
    EXPECT_THAT(packets[3].payload, SizeIs(65'000));
    EXPECT_THAT(packets[6].payload, SizeIs(5'001));
  }
}

TEST_F(CaptureTest, MorePiecesThanOneSystemCallTakes) {
  const auto file = open(path());
  ConnectionTap tap(file, local4, remote4, true);
  const auto data = pattern(3'000);
  std::vector<iovec> pieces;
  for (const std::byte& byte : data) pieces.push_back(piece_of({&byte, 1}));
  tap.sent(pieces, data.size());
  EXPECT_EQ(read_capture(path()).at(3).payload, data);
}

TEST_F(CaptureTest, OneWayFlowsAreAcknowledgedNowAndThen) {
  const auto file = open(path());
  ConnectionTap tap(file, local4, remote4, true);
  const auto data = pattern(2 << 20);
  const iovec piece = piece_of(data);
  tap.sent({&piece, 1}, data.size());
  const auto packets = read_capture(path());
  EXPECT_EQ(packets.back().tcp.flags, flag::ack);
  EXPECT_EQ(packets.back().block.direction, PcapngDirection::inbound);
  EXPECT_EQ(packets.back().tcp.acknowledgement, packets[2].tcp.sequence + data.size());
  EXPECT_EQ(packets.back().tcp.sequence, packets[2].tcp.acknowledgement);
}

TEST_F(CaptureTest, BothEndsFinishOnce) {
  const auto file = open(path());
  const auto data = pattern(10);
  const iovec piece = piece_of(data);
  {
    ConnectionTap tap(file, local4, remote4, true);
    tap.peer_closed();
    tap.peer_closed();
    tap.received({&piece, 1}, 10);  // after its FIN; must be ignored
    tap.sent({&piece, 1}, 10);
    tap.closed();
  }
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(7));
  EXPECT_EQ(packets[3].tcp.flags, flag::fin | flag::ack);
  EXPECT_EQ(packets[3].block.direction, PcapngDirection::inbound);
  EXPECT_EQ(packets[4].tcp.acknowledgement, packets[3].tcp.sequence + 1);
  EXPECT_EQ(packets[5].tcp.flags, flag::fin | flag::ack);
  EXPECT_EQ(packets[5].tcp.sequence, packets[4].tcp.sequence + 10);
  EXPECT_EQ(packets[6].tcp.flags, flag::ack);
  EXPECT_EQ(packets[6].block.direction, PcapngDirection::inbound);
  EXPECT_EQ(packets[6].tcp.acknowledgement, packets[5].tcp.sequence + 1);
}

TEST_F(CaptureTest, NothingFollowsAReset) {
  const auto file = open(path());
  const auto data = pattern(10);
  const iovec piece = piece_of(data);
  {
    ConnectionTap tap(file, local4, remote4, true);
    tap.reset();
    tap.reset();
    tap.sent({&piece, 1}, 10);
  }
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(4));
  EXPECT_EQ(packets[3].tcp.flags, flag::rst | flag::ack);
}

// A client and a server in one process: every byte is in the file once, in one sequence space.
TEST_F(CaptureTest, BothEndsOfAConnectionShareTheirNumbers) {
  for (const bool client_first : {true, false}) {
    const auto file = open(path());
    {
      ConnectionTap first(file, client_first ? local4 : remote4, client_first ? remote4 : local4,
                          client_first);
      ConnectionTap second(file, client_first ? remote4 : local4, client_first ? local4 : remote4,
                           !client_first);
      ConnectionTap& client = client_first ? first : second;
      ConnectionTap& server = client_first ? second : first;
      const auto data = pattern(100);
      const iovec piece = piece_of(data);
      client.sent({&piece, 1}, 100);
      server.received({&piece, 1}, 100);
      server.sent({&piece, 1}, 40);
      client.sent({&piece, 1}, 7);
      client.received({&piece, 1}, 40);
      server.received({&piece, 1}, 7);
      client.closed();
      server.peer_closed();
      server.sent({&piece, 1}, 3);
      client.received({&piece, 1}, 3);
    }
    const auto packets = read_capture(path());
    constexpr int data_flags = flag::psh | flag::ack;
    EXPECT_THAT(
        flags_of(packets),
        ElementsAre(flag::syn, flag::syn | flag::ack, flag::ack, data_flags, data_flags, data_flags,
                    flag::fin | flag::ack, data_flags, flag::fin | flag::ack, flag::ack));
    ASSERT_THAT(packets, SizeIs(10));
    EXPECT_EQ(packets[0].tcp.source_port, 40'000);
    const std::uint32_t client = packets[2].tcp.sequence;
    const std::uint32_t server = packets[2].tcp.acknowledgement;
    EXPECT_EQ(std::tuple(packets[4].tcp.sequence, packets[4].tcp.acknowledgement),
              std::tuple(server, client + 100));
    EXPECT_EQ(std::tuple(packets[5].tcp.sequence, packets[5].tcp.acknowledgement),
              std::tuple(client + 100, server + 40));
    EXPECT_EQ(packets[9].tcp.acknowledgement, server + 44);
  }
}

// The server closes first, and the client, which lives longer, writes its own FIN.
TEST_F(CaptureTest, AnEndThatIsGoneLeavesTheOtherToItself) {
  const auto file = open(path());
  ConnectionTap client(file, local4, remote4, true);
  auto server = std::make_unique<ConnectionTap>(file, remote4, local4, false);
  server.reset();
  const auto data = pattern(5);
  const iovec piece = piece_of(data);
  client.sent({&piece, 1}, 5);
  client.reset();
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(6));
  EXPECT_EQ(packets[3].tcp.flags, flag::fin | flag::ack);
  EXPECT_EQ(packets[3].tcp.source_port, 7471);
  EXPECT_THAT(packets[4].payload, SizeIs(5));
  EXPECT_EQ(packets[5].tcp.flags, flag::rst | flag::ack);
  EXPECT_EQ(packets[5].tcp.source_port, 40'000);
}

// Ports that are used again by two ends, and by one end whose peer is in another process.
TEST_F(CaptureTest, PairsAreOfOneConnectionOnly) {
  const auto file = open(path());
  for (const bool both : {true, true, false, true}) {
    const ConnectionTap client(file, local4, remote4, true);
    std::optional<ConnectionTap> server;
    if (both) server.emplace(file, remote4, local4, false);
  }
  EXPECT_THAT(read_capture(path()), SizeIs(4 * 6));
}

TEST_F(CaptureTest, TimestampsAreRealTimeInNanoseconds) {
  using namespace std::chrono;
  const auto now_ns = [] {
    return static_cast<std::uint64_t>(
        duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count());
  };
  const std::uint64_t before = now_ns();
  const auto file = open(path());
  const ConnectionTap tap(file, local4, remote4, true);
  const std::uint64_t after = now_ns();
  for (const auto& packet : read_capture(path())) {
    EXPECT_GE(packet.block.timestamp, before);
    EXPECT_LE(packet.block.timestamp, after);
  }
}

TEST_F(CaptureTest, ReusedPortsGetAnotherFirstSequenceNumber) {
  const auto file = open(path());
  { const ConnectionTap first(file, local4, remote4, true); }
  { const ConnectionTap second(file, local4, remote4, true); }
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(12));
  EXPECT_NE(packets[0].tcp.sequence, packets[6].tcp.sequence);
}

// --- Captures that begin and end within a connection ---------------------------------------------

TEST_F(CaptureTest, ATapThatBeginsInTheMiddleWritesNoHandshake) {
  const auto file = open(path());
  ConnectionTap tap(file, local4, remote4, true, {.sent = 100, .received = 50});
  const auto data = pattern(10);
  const auto piece = piece_of(data);
  tap.sent({&piece, 1}, 10);
  tap.received({&piece, 1}, 5);
  tap.sent({&piece, 1}, 10);
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(3));
  EXPECT_THAT(packets[0].payload, SizeIs(10));
  EXPECT_EQ(packets[2].tcp.sequence, packets[0].tcp.sequence + 10);
  EXPECT_EQ(packets[1].tcp.sequence, packets[0].tcp.acknowledgement);
  EXPECT_EQ(packets[2].tcp.acknowledgement, packets[0].tcp.acknowledgement + 5);
}

// The receiving end was first; the sending end had sent more before it joined than had arrived.
TEST_F(CaptureTest, BytesThatWereOnTheirWayKeepTheirPlace) {
  const auto file = open(path());
  const auto data = pattern(40);
  const auto piece = piece_of(data);
  ConnectionTap receiver(file, local4, remote4, true, {.sent = 7, .received = 100});
  receiver.received({&piece, 1}, 20);
  ConnectionTap sender(file, remote4, local4, false, {.sent = 150, .received = 7});
  sender.sent({&piece, 1}, 10);
  receiver.received({&piece, 1}, 40);
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(3));
  const std::uint32_t first = packets[0].tcp.sequence;
  EXPECT_EQ(packets[1].tcp.sequence, first + 50);
  EXPECT_THAT(packets[1].payload, SizeIs(10));
  EXPECT_EQ(packets[2].tcp.sequence, first + 20);
  EXPECT_THAT(packets[2].payload, SizeIs(30));
}

// The sending end was first. A capture begins with what is sent after its beginning.
TEST_F(CaptureTest, WhatWasSentBeforeTheCaptureIsLeftOut) {
  const auto file = open(path());
  const auto data = pattern(60);
  const auto piece = piece_of(data);
  ConnectionTap sender(file, remote4, local4, false, {.sent = 150, .received = 7});
  sender.sent({&piece, 1}, 10);
  ConnectionTap receiver(file, local4, remote4, true, {.sent = 7, .received = 100});
  receiver.received({&piece, 1}, 60);
  const auto packets = read_capture(path());
  ASSERT_THAT(packets, SizeIs(1));
  EXPECT_THAT(packets[0].payload, SizeIs(10));
}

TEST_F(CaptureTest, AStoppedCaptureTakesNothingAndLosesNothing) {
  const auto file = open(path());
  const auto data = pattern(10);
  const auto piece = piece_of(data);
  {
    ConnectionTap tap(file, local4, remote4, true);
    EXPECT_TRUE(file->stop());
    EXPECT_FALSE(file->writable());
    tap.sent({&piece, 1}, 10);
  }
  EXPECT_THAT(read_capture(path()), SizeIs(3));
  EXPECT_EQ(file->packets(), 3U);
  EXPECT_EQ(file->packets_lost(), 0U);
}

}  // namespace
}  // namespace weft::device
