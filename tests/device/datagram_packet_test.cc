#include "device/datagram/datagram_packet.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/addresses.h"

namespace weft::device {
namespace {

sockaddr_storage address(const std::string& text, std::uint16_t port) {
  sockaddr_storage parsed{};
  EXPECT_TRUE(parse_address(text, parsed));
  set_port(parsed, port);
  return parsed;
}

ibv_gid gid(const std::string& text) {
  return gid_of(address(text, 0));
}

std::vector<std::byte> packet_of(const DatagramRoute& route, std::vector<std::uint8_t> text) {
  wire::IbHeaders headers;
  headers.bth.opcode = {wire::IbTransport::ud, wire::IbOperation::send_only_immediate};
  headers.bth.destination_qp = 0x123456;
  headers.bth.psn = 7;
  headers.deth = {.queue_key = 0x11111111, .source_qp = 0xABCDEF};
  headers.immediate = 0xCAFEF00D;
  const iovec message{text.data(), text.size()};
  return make_datagram(route, headers, {&message, 1});
}

class DatagramPacket : public ::testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  DatagramRoute route{.source = address(GetParam().first, 28700),
                      .destination = address(GetParam().second, 28800)};
};

TEST_P(DatagramPacket, IsWhatItWasMadeOf) {
  for (std::uint8_t bytes = 0; bytes < 9; ++bytes) {
    const auto packet = packet_of(route, std::vector<std::uint8_t>(bytes, 0x5A));
    EXPECT_EQ(packet.size() % 4, 0U);
    const auto view = wire::IbPacketView::check(packet);
    ASSERT_TRUE(view);
    EXPECT_EQ(view->bth().destination_qp, 0x123456U);
    EXPECT_EQ(view->headers().deth.source_qp, 0xABCDEFU);
    EXPECT_EQ(view->headers().immediate, 0xCAFEF00DU);
    EXPECT_EQ(view->payload().size(), bytes);
    EXPECT_TRUE(icrc_is_right(route, *view));
  }
}

TEST_P(DatagramPacket, TheIcrcCoversAddressesAndMessageButNotHops) {
  auto packet = packet_of(route, {1, 2, 3, 4});
  DatagramRoute hops = route;
  hops.hop_limit = 3;
  hops.traffic_class = 0x20;
  EXPECT_TRUE(icrc_is_right(hops, *wire::IbPacketView::check(packet)));
  DatagramRoute translated = route;
  set_port(translated.source, 1);
  EXPECT_FALSE(icrc_is_right(translated, *wire::IbPacketView::check(packet)));
  packet[packet.size() - 5] ^= std::byte{1};
  EXPECT_FALSE(icrc_is_right(route, *wire::IbPacketView::check(packet)));
}

// In a capture a packet that was wrong stays wrong.
TEST_P(DatagramPacket, AtRocesPortTheIcrcSaysTheSame) {
  auto packet = packet_of(route, {1, 2, 3, 4, 5});
  DatagramRoute shown = route;
  set_port(shown.destination, wire::roce_v2_port);
  for (const bool damaged : {false, true}) {
    if (damaged) packet[20] ^= std::byte{0x40};
    const std::uint32_t icrc = icrc_at_roce_port(route, *wire::IbPacketView::check(packet));
    auto copy = packet;
    store_le(copy.data() + copy.size() - 4, icrc);
    EXPECT_EQ(icrc_is_right(shown, *wire::IbPacketView::check(copy)), !damaged);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DatagramPacket,
                         ::testing::Values(std::pair("192.0.2.1", "198.51.100.2"),
                                           std::pair("2001:db8::1", "2001:db8::2")));

TEST(MulticastAddress, IsTheGroupItselfWhereThereIsOne) {
  EXPECT_TRUE(
      same_host_address(multicast_address(gid("239.1.2.3"), AF_INET), address("239.1.2.3", 0)));
  EXPECT_TRUE(
      same_host_address(multicast_address(gid("ff0e::5"), AF_INET6), address("ff0e::5", 0)));
}

TEST(MulticastAddress, OfTheOtherKindIsAlwaysTheSameSubstitute) {
  const auto ipv4 = multicast_address(gid("ff0e::5"), AF_INET);
  EXPECT_EQ(ipv4.ss_family, AF_INET);
  EXPECT_TRUE(is_multicast(gid_of(ipv4)));
  EXPECT_TRUE(same_host_address(ipv4, multicast_address(gid("ff0e::5"), AF_INET)));
  EXPECT_FALSE(same_host_address(ipv4, multicast_address(gid("ff0e::6"), AF_INET)));
  const auto ipv6 = multicast_address(gid("239.1.2.3"), AF_INET6);
  EXPECT_EQ(ipv6.ss_family, AF_INET6);
  EXPECT_TRUE(is_multicast(gid_of(ipv6)));
}

TEST(MulticastAddress, KnowsAGroupFromAHost) {
  for (const char* text : {"224.0.0.1", "239.255.255.255", "ff02::1"}) {
    EXPECT_TRUE(is_multicast(gid(text))) << text;
  }
  for (const char* text : {"223.255.255.255", "240.0.0.1", "fe80::1", "::1"}) {
    EXPECT_FALSE(is_multicast(gid(text))) << text;
  }
}

}  // namespace
}  // namespace weft::device
