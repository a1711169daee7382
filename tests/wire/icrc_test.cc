#include "wire/icrc.h"

#include <gtest/gtest.h>

#include "wire/ib_link.h"
#include "wire/ib_transport.h"
#include "wire/roce_packets.h"

namespace weft::wire {
namespace {

constexpr std::byte ones{0xFF};
constexpr std::size_t icrc_bytes = IbPacketView::icrc_bytes;

std::uint32_t icrc_of(Bytes network, Bytes transport) {
  return Icrc::roce_v2(network, transport.first(transport.size() - icrc_bytes)).value();
}

// RoCE v2 over IPv4: what another implementation has computed.
TEST(Icrc, IsThatOfRxe) {
  for (const Bytes packet : {Bytes(rxe_send_only), Bytes(rxe_write_only), Bytes(rxe_read_request),
                             Bytes(rxe_read_only), Bytes(rxe_acknowledge), Bytes(rxe_fetch_add)}) {
    const auto view = IbPacketView::check(transport_of(packet));
    ASSERT_TRUE(view);
    EXPECT_EQ(icrc_of(network_of(packet), transport_of(packet)), view->icrc());
    EXPECT_EQ(Icrc::roce_v2(network_of(packet), view->covered()).value(), view->icrc());
  }
}

// What routers and switches change leaves it alone; every other bit counts.
TEST(Icrc, IgnoresWhatHopsMayChangeAndNothingElse) {
  const auto whole = copy_of(rxe_write_only);
  const std::uint32_t expected = icrc_of(network_of(whole), transport_of(whole));
  for (std::size_t at = 0; at + icrc_bytes < whole.size(); ++at) {
    auto changed = whole;
    changed[at] ^= std::byte{0x04};
    if (at == 0) continue;  // no longer IPv4 of this length
    const bool may_change = at == 1 || at == 8 || at == 10 || at == 11 || at == 26 || at == 27 ||
                            at == roce_network_bytes + 4;
    const auto value = icrc_of(network_of(changed), transport_of(changed));
    EXPECT_EQ(value == expected, may_change) << "byte " << at;
  }
}

TEST(Icrc, TakesTheRestInPieces) {
  const auto whole = copy_of(rxe_send_only);
  const Bytes network = network_of(whole);
  const Bytes transport = transport_of(whole);
  auto icrc = Icrc::roce_v2(network, transport.first(Bth::header_bytes));
  for (std::size_t at = Bth::header_bytes; at + icrc_bytes < transport.size(); ++at) {
    icrc.update(transport.subspan(at, 1));
  }
  EXPECT_EQ(icrc.value(), icrc_of(network, transport));
}

// The definition, written out: everything masked by hand.
std::uint32_t by_hand(const std::vector<std::byte>& masked, Bytes bth_and_rest) {
  std::vector<std::byte> all(LocalRouteHeader::header_bytes, ones);
  all.insert(all.end(), masked.begin(), masked.end());
  all.insert(all.end(), bth_and_rest.begin(), bth_and_rest.end());
  all[all.size() - bth_and_rest.size() + 4] = ones;
  return crc32(all);
}

std::vector<std::byte> ipv6_like(std::uint8_t next) {
  Ipv6Header header;
  header.traffic_class = 0x5A;
  header.flow_label = 0x12345;
  header.payload_bytes = 40;
  header.next_header = static_cast<IpProtocol>(next);
  header.hop_limit = 17;
  header.source[15] = std::byte{1};
  header.destination[15] = std::byte{2};
  std::vector<std::byte> bytes(Ipv6Header::header_bytes);
  header.emit(bytes);
  return bytes;
}

std::vector<std::byte> masked_ipv6(std::vector<std::byte> header) {
  header[0] = std::byte{0x6F};
  header[1] = header[2] = header[3] = header[7] = ones;
  return header;
}

TEST(Icrc, MasksIpv6AndItsUdpChecksum) {
  const Bytes rest = transport_of(rxe_send_only).first(44);
  auto network = ipv6_like(17);
  auto masked = masked_ipv6(network);
  const auto udp = "c0d112b70038beef"_hex;
  network.insert(network.end(), udp.begin(), udp.end());
  masked.insert(masked.end(), udp.begin(), udp.begin() + 6);
  masked.insert(masked.end(), 2, ones);
  EXPECT_EQ(Icrc::roce_v2(network, rest).value(), by_hand(masked, rest));
}

TEST(Icrc, MasksTheGlobalRouteHeaderOfRoceV1) {
  const Bytes rest = transport_of(rxe_send_only).first(44);
  const auto grh = ipv6_like(GlobalRouteHeader::next_transport);
  EXPECT_EQ(Icrc::roce_v1(grh, rest).value(), by_hand(masked_ipv6(grh), rest));
}

// The specification's example of a packet without a Global Route Header, and its ICRC.
TEST(Icrc, MasksTheVirtualLaneOfNativeInfiniband) {
  const auto local = "7012 375c 000e 17d2"_hex;
  const auto rest =
      "0a202487 0087b1b3 000dec2a 01710a1c 015d4002 38f27a05 0000000e bb884d85 fd5cfba4 728bc069"
      "0ed40000"_hex;
  const auto icrc = "9625b75a"_hex;
  EXPECT_EQ(Icrc::native(local, rest).value(), load_le<std::uint32_t>(icrc.data()));
  auto changed = copy_of(local);
  changed[0] ^= std::byte{0x40};  // the virtual lane
  EXPECT_EQ(Icrc::native(changed, rest).value(), load_le<std::uint32_t>(icrc.data()));
  changed[3] ^= std::byte{0x40};  // the destination LID
  EXPECT_NE(Icrc::native(changed, rest).value(), load_le<std::uint32_t>(icrc.data()));
}

// A multicast packet of real adapters: an ARP reply of IPoIB. It is frame 5 of Wireshark's sample
// capture infiniband.pcap, and its variant CRC is right.
TEST(Icrc, MasksTheWholeLocalRouteHeaderBeforeAGlobalOne) {
  const Bytes packet = infiniband_multicast;
  const Bytes network =
      packet.first(LocalRouteHeader::header_bytes + GlobalRouteHeader::header_bytes);
  const auto view = IbPacketView::check(packet.subspan(network.size()));
  ASSERT_TRUE(view);
  EXPECT_EQ(Icrc::native(network, view->covered()).value(), view->icrc());
  for (std::size_t at = 0; at < LocalRouteHeader::header_bytes; ++at) {
    auto changed = copy_of(network);
    changed[at] ^= std::byte{0x04};
    EXPECT_EQ(Icrc::native(changed, view->covered()).value(), view->icrc()) << "byte " << at;
  }
}

TEST(Icrc, OfTooLittleIsSomethingWithoutAReadBeyondIt) {
  const auto whole = copy_of(rxe_acknowledge);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = copy_of(Bytes(whole).first(size));
    (void)Icrc::roce_v2(cut, cut);
    (void)Icrc::roce_v1(cut, cut);
    (void)Icrc::native(cut, cut);
  }
}

}  // namespace
}  // namespace weft::wire
