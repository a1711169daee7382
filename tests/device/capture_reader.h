// Reads a capture of the capture tap and checks the invariants of every packet.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/pcapng.h"
#include "wire/tcp.h"

namespace weft::device {

struct CapturedPacket {
  wire::PcapngPacket block;
  wire::EthernetHeader ethernet;
  bool ipv4 = false;
  wire::Ipv4Header ip4;
  wire::Ipv6Header ip6;
  wire::TcpHeader tcp;
  std::vector<std::byte> payload;
};

inline std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::byte> bytes(chars.size());
  std::ranges::transform(chars, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

// The TCP segment; all checksums and lengths have been verified.
inline Bytes read_ip(Bytes bytes, CapturedPacket& packet) {
  packet.ipv4 = packet.ethernet.type == wire::EtherType::ipv4;
  wire::InternetChecksum checksum;
  Bytes segment;
  if (packet.ipv4) {
    packet.ip4 = *wire::Ipv4Header::parse(bytes);
    EXPECT_TRUE(wire::ipv4_checksum_ok(bytes.first(packet.ip4.size())));
    EXPECT_EQ(packet.ip4.total_bytes, bytes.size());
    EXPECT_EQ(packet.ip4.protocol, wire::IpProtocol::tcp);
    EXPECT_TRUE(packet.ip4.dont_fragment);
    segment = bytes.subspan(packet.ip4.size());
    checksum = wire::pseudo_header(packet.ip4.source, packet.ip4.destination, wire::IpProtocol::tcp,
                                   segment.size());
  } else {
    packet.ip6 = *wire::Ipv6Header::parse(bytes);
    segment = bytes.subspan(wire::Ipv6Header::header_bytes);
    EXPECT_EQ(packet.ip6.payload_bytes, segment.size());
    EXPECT_EQ(packet.ip6.next_header, wire::IpProtocol::tcp);
    checksum = wire::pseudo_header(packet.ip6.source, packet.ip6.destination, wire::IpProtocol::tcp,
                                   segment.size());
  }
  checksum.update(segment);
  EXPECT_EQ(checksum.value(), 0);
  return segment;
}

inline CapturedPacket read_packet(const wire::PcapngBlock& block) {
  CapturedPacket packet;
  packet.block = *wire::PcapngPacket::parse(block);
  const Bytes data = packet.block.data(block);
  EXPECT_EQ(packet.block.original_bytes, data.size());
  packet.ethernet = *wire::EthernetHeader::parse(data);
  const Bytes segment = read_ip(data.subspan(wire::EthernetHeader::header_bytes), packet);
  packet.tcp = *wire::TcpHeader::parse(segment);
  const Bytes payload = segment.subspan(packet.tcp.size());
  packet.payload.assign(payload.begin(), payload.end());
  return packet;
}

// Fails the test unless the file consists of a section header, an interface description and whole
// packets.
inline std::vector<CapturedPacket> read_capture(const std::string& path) {
  const auto bytes = read_bytes(path);
  std::vector<CapturedPacket> packets;
  Bytes rest = bytes;
  for (int index = 0; !rest.empty(); ++index) {
    const auto block = wire::PcapngBlock::parse(rest, wire::PcapngOrder::little);
    EXPECT_TRUE(block) << "block " << index;
    if (!block) break;
    rest = rest.subspan(block->size());
    if (index == 0) {
      EXPECT_EQ(block->type, wire::PcapngType::section);
    } else if (index == 1) {
      EXPECT_EQ(block->type, wire::PcapngType::interface);
      const auto interface = wire::PcapngInterface::parse(*block);
      EXPECT_EQ(interface->name, "weft0");
      EXPECT_EQ(interface->resolution, wire::PcapngInterface::resolution_nanoseconds);
      EXPECT_EQ(interface->snap_bytes, 0u);
    } else {
      EXPECT_EQ(block->type, wire::PcapngType::packet);
      packets.push_back(read_packet(*block));
    }
  }
  return packets;
}

}  // namespace weft::device
