#include "capture/sources/protocol_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "wire/tunnel.h"

namespace weft::capture {
namespace {

struct Name {
  std::uint16_t number;
  const char* name;
};

// IEEE 802 numbers.
constexpr Name ethernet_names[] = {
    {0x0806, "ARP"},
    {0x8035, "RARP"},
    {0x809B, "AppleTalk"},
    {0x8137, "IPX"},
    {0x8808, "PAUSE or PFC"},
    {0x8809, "LACP"},
    {0x8863, "PPPoE discovery"},
    {0x8864, "PPPoE"},
    {0x888E, "EAPOL"},
    {0x88A2, "AoE"},
    {0x88B5, "experimental"},
    {0x88CC, "LLDP"},
    {0x88E5, "MACsec"},
    {0x88F7, "PTP"},
    {0x8906, "FCoE"},
    {0x8914, "FIP"},
    {0x8902, "CFM"},
    {0x894F, "NSH"},
    {0x9000, "loopback test"},
};
// Service access points of IEEE 802.2.
constexpr Name llc_names[] = {{0x42, "STP"}, {0xAA, "SNAP"}, {0xFE, "IS-IS"}, {0xE0, "IPX"}};
constexpr Name ip_names[] = {
    {0, "IPv6 options"},    {1, "ICMP"},   {2, "IGMP"},     {4, "IPv4 in IP"}, {41, "IPv6 in IP"},
    {46, "RSVP"},           {47, "GRE"},   {50, "ESP"},     {51, "AH"},        {58, "ICMPv6"},
    {59, "no next header"}, {88, "EIGRP"}, {89, "OSPF"},    {94, "IPIP"},      {97, "EtherIP"},
    {103, "PIM"},           {112, "VRRP"}, {115, "L2TPv3"}, {132, "SCTP"},     {136, "UDP-Lite"},
    {137, "MPLS in IP"},
};
// The port is only a hint at the protocol: QUIC, for example, may use any port.
constexpr Name udp_names[] = {
    {53, "DNS"},
    {67, "DHCP"},
    {68, "DHCP"},
    {69, "TFTP"},
    {123, "NTP"},
    {137, "NetBIOS"},
    {138, "NetBIOS"},
    {161, "SNMP"},
    {319, "PTP"},
    {320, "PTP"},
    {443, "QUIC"},
    {500, "IKE"},
    {514, "syslog"},
    {546, "DHCPv6"},
    {547, "DHCPv6"},
    {1900, "SSDP"},
    {2055, "NetFlow"},
    {3784, "BFD"},
    {4500, "IPsec in UDP"},
    {4739, "IPFIX"},
    {4789, "UDP to the port of VXLAN"},
    {5353, "mDNS"},
    {5355, "LLMNR"},
    {6081, "UDP to the port of Geneve"},
    {6343, "sFlow"},
    {51820, "WireGuard"},
};
using Tunnel = wire::TunnelHeader::Kind;
constexpr Name tunnel_names[] = {
    {static_cast<std::uint16_t>(Tunnel::gre), "GRE"},
    {static_cast<std::uint16_t>(Tunnel::gretap), "GRETAP"},
    {static_cast<std::uint16_t>(Tunnel::erspan_1), "ERSPAN I"},
    {static_cast<std::uint16_t>(Tunnel::erspan_2), "ERSPAN II"},
    {static_cast<std::uint16_t>(Tunnel::erspan_3), "ERSPAN III"},
    {static_cast<std::uint16_t>(Tunnel::vxlan), "VXLAN"},
    {static_cast<std::uint16_t>(Tunnel::vxlan_gpe), "VXLAN-GPE"},
    {static_cast<std::uint16_t>(Tunnel::geneve), "Geneve"},
    {static_cast<std::uint16_t>(Tunnel::mpls), "MPLS"},
    {static_cast<std::uint16_t>(Tunnel::pppoe), "PPPoE"},
    {static_cast<std::uint16_t>(Tunnel::tzsp), "TZSP"},
    {static_cast<std::uint16_t>(Tunnel::etherip), "EtherIP"},
    {static_cast<std::uint16_t>(Tunnel::ipoib), "IPoIB"},
};

const char* find(std::span<const Name> names, std::uint16_t number) {
  const auto found = std::ranges::find(names, number, &Name::number);
  return found == names.end() ? nullptr : found->name;
}

// Unknown Ethertypes are written in hexadecimal, as their registry lists them.
std::string name_of(ProtocolCounts::Layer layer, std::uint16_t number) {
  using Layer = ProtocolCounts::Layer;
  const auto or_number = [&](std::span<const Name> names, const char* unknown) {
    const char* const name = find(names, number);
    if (name != nullptr) return std::string(name);
    return layer == Layer::ethernet ? fmt::format("{} {:#06x}", unknown, number)
                                    : fmt::format("{} {}", unknown, number);
  };
  switch (layer) {
    case Layer::ethernet:
      return or_number(ethernet_names, "Ethertype");
    case Layer::llc:
      return or_number(llc_names, "LLC service");
    case Layer::ip:
      return or_number(ip_names, "IP protocol");
    case Layer::udp:
      return or_number(udp_names, "UDP port");
    case Layer::tunnel:
      return or_number(tunnel_names, "tunnel");
    case Layer::loopback:
      return "an address family of the loopback interface";
    case Layer::infiniband:
      return "raw InfiniBand";
  }
  return "?";
}

// Ports of services are listed; every other one may be that of a client.
bool is_listed(std::uint16_t port) {
  // RFC 6335 §6: the System Ports end at 1023.
  constexpr std::uint16_t first_dynamic = 1024;
  return port < first_dynamic || find(udp_names, port) != nullptr;
}

}  // namespace

void ProtocolCounts::add(Layer layer, std::uint16_t number) {
  if (layer == Layer::udp && !is_listed(number)) {
    ++other_udp_;
    return;
  }
  const std::pair key(layer, number);
  const auto known = counts_.find(key);
  if (known != counts_.end()) {
    ++known->second;
    // The limit bounds the memory: a hostile capture can contain every number of each layer.
  } else if (counts_.size() < max_protocols) {
    counts_.emplace(key, 1);
  } else {
    ++rest_;
  }
}

// Several numbers may have one name. The map sorts the names, and the stable sort keeps that order
// among equal counts, so equal captures give equal reports.
std::vector<PacketDecoder::Named> ProtocolCounts::named() const {
  std::map<std::string, std::uint64_t> sums;
  for (const auto& [key, count] : counts_) sums[name_of(key.first, key.second)] += count;
  if (other_udp_ > 0) sums["other UDP"] += other_udp_;
  if (rest_ > 0) sums["other protocols"] += rest_;
  std::vector<PacketDecoder::Named> all;
  for (const auto& [name, count] : sums) all.push_back({name, count});
  std::ranges::stable_sort(all, std::greater(), &PacketDecoder::Named::packets);
  return all;
}

}  // namespace weft::capture
