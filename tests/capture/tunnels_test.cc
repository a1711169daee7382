// The same conversation comes out of every tunnel, with the addresses of the inner packets. The
// headers are written as their specifications draw them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/bytes.h"
#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "capture/traffic_log.h"

namespace weft::capture::test {
namespace {

constexpr std::size_t ethernet_bytes = 14;

// Both transports; every byte is known.
MadeCapture conversation(bool ipv6 = false) {
  MadeCapture capture;
  IwarpTalk iwarp(capture, {.ipv6 = ipv6}, {});
  iwarp.connect();
  Operator operations(iwarp, Side::a);
  RoceTalk roce(capture,
                {.carrier = ipv6 ? RoceOptions::Carrier::ipv6 : RoceOptions::Carrier::ipv4});
  roce.connect();
  for (const std::size_t size : {1U, 300U, 900U}) {
    operations.send(size);
    roce.write(Side::a, 7, 0x1000, size);
    roce.read(Side::b, 8, 0x3000, size);
  }
  iwarp.close();
  return capture;
}

struct Seen {
  Analysis analysis;
  TrafficLog traffic;
  OperationLog operations;
  PacketDecoder::Counts counts;

  explicit Seen(const MadeCapture& capture) {
    analysis.add_sink(traffic);
    analysis.add_operations(operations);
    feed(analysis, capture);
    counts = analysis.packet_counts();
  }
  [[nodiscard]] std::string tunnels() const { return names(analysis.tunnels()); }
  [[nodiscard]] std::string others() const { return names(analysis.other_protocols()); }

 private:
  static std::string names(const std::vector<PacketDecoder::Named>& all) {
    std::string text;
    for (const auto& one : all) text += (text.empty() ? "" : ", ") + one.name;
    return text;
  }
};

void expect_all(const Seen& seen) {
  ASSERT_EQ(seen.analysis.connections().size(), 2U);
  EXPECT_EQ(seen.operations.operations.size(), 9U);
  EXPECT_TRUE(std::ranges::all_of(seen.operations.operations, [](const Operation& one) {
    return one.outcome == Operation::Outcome::complete;
  }));
  EXPECT_EQ(seen.traffic.lost_bytes + seen.traffic.lost_packets, 0U);
  EXPECT_TRUE(seen.traffic.violations.empty());
  EXPECT_EQ(seen.counts.malformed + seen.counts.cut_short + seen.counts.other, 0U);
  expect_known_bytes(seen.traffic);
  // Of the inner packets.
  for (const Connection& one : seen.analysis.connections()) {
    const std::string address = to_string(one.a.address);
    EXPECT_TRUE(address == "10.0.0.2" || address.starts_with("fd00::")) << address;
  }
}

Content bytes_of(std::initializer_list<unsigned> values) {
  Content out;
  for (const unsigned value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

Content joined(std::initializer_list<Content> parts) {
  Content all;
  for (const Content& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Content ethernet_header(unsigned type) {
  Content out(12);
  out.push_back(static_cast<std::byte>(type >> 8));
  out.push_back(static_cast<std::byte>(type));
  return out;
}

// The outer headers, of machines that have nothing to do with the conversation.
Content in_ipv4(unsigned protocol, const Content& payload) {
  Content header =
      bytes_of({0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2});
  store_be(&header[2], static_cast<std::uint16_t>(header.size() + payload.size()));
  return joined({header, payload});
}

Content in_ipv6(unsigned next, const Content& payload) {
  Content header(40);
  header[0] = std::byte{0x60};
  store_be(&header[4], static_cast<std::uint16_t>(payload.size()));
  header[6] = static_cast<std::byte>(next);
  header[8] = header[24] = std::byte{0x20};
  return joined({header, payload});
}

Content in_udp(unsigned port, const Content& payload) {
  Content header(8);
  store_be(&header[0], std::uint16_t{50'000});
  store_be(&header[2], static_cast<std::uint16_t>(port));
  store_be(&header[4], static_cast<std::uint16_t>(8 + payload.size()));
  return in_ipv4(17, joined({header, payload}));
}

Content in_ethernet(const Content& packet) {
  return joined({ethernet_header(0x0800), packet});
}

Content network_of(const Content& frame) {
  return {frame.begin() + ethernet_bytes, frame.end()};
}

using Wrap = std::function<Content(const Content& frame)>;

MadeCapture wrapped(const Wrap& wrap, bool ipv6 = false) {
  MadeCapture capture = conversation(ipv6);
  for (MadePacket& packet : capture) {
    packet.bytes = wrap(packet.bytes);
    packet.wire_bytes = packet.bytes.size();
  }
  return capture;
}

void expect_tunnel(const std::string& name, const Wrap& wrap, bool ipv6 = false) {
  SCOPED_TRACE(name);
  const MadeCapture capture = wrapped(wrap, ipv6);
  const Seen seen(capture);
  expect_all(seen);
  EXPECT_EQ(seen.tunnels(), name);
}

const Content erspan_2_gre = bytes_of({0x10, 0, 0x88, 0xBE, 0, 0, 0, 7});
const Content erspan_2 = bytes_of({0x10, 0x2A, 0x18, 0x01, 0, 0, 0, 3});

Wrap in_erspan_2() {
  return [](const Content& frame) {
    return in_ethernet(in_ipv4(47, joined({erspan_2_gre, erspan_2, frame})));
  };
}

TEST(Tunnels, ErspanOfAllTypes) {
  expect_tunnel("ERSPAN I", [](const Content& frame) {
    return in_ethernet(in_ipv4(47, joined({bytes_of({0, 0, 0x88, 0xBE}), frame})));
  });
  expect_tunnel("ERSPAN II", in_erspan_2());
  const Content gre_3 = bytes_of({0x10, 0, 0x22, 0xEB, 0, 0, 0, 7});
  expect_tunnel("ERSPAN III", [&](const Content& frame) {
    const Content header = bytes_of({0x20, 0x2A, 0, 1, 0, 0, 0, 9, 0, 0, 0x00, 0x00});
    return in_ethernet(in_ipv4(47, joined({gre_3, header, frame})));
  });
  expect_tunnel("ERSPAN III", [&](const Content& frame) {
    const Content header = bytes_of({0x20, 0x2A, 0, 1, 0, 0, 0, 9, 0, 0, 0x00, 0x01});
    return in_ethernet(in_ipv4(47, joined({gre_3, header, Content(8), frame})));
  });
  expect_tunnel("ERSPAN III", [&](const Content& frame) {  // IP without Ethernet
    const Content header = bytes_of({0x20, 0x2A, 0, 1, 0, 0, 0, 9, 0, 0, 0x08, 0x00});
    return in_ethernet(in_ipv4(47, joined({gre_3, header, network_of(frame)})));
  });
}

TEST(Tunnels, Gre) {
  expect_tunnel("GRE", [](const Content& frame) {
    return in_ethernet(in_ipv4(47, joined({bytes_of({0, 0, 0x08, 0}), network_of(frame)})));
  });
  expect_tunnel("GRE", [](const Content& frame) {  // checksum, key and sequence number
    return in_ethernet(
        in_ipv4(47, joined({bytes_of({0xB0, 0, 0x08, 0}), Content(12), network_of(frame)})));
  });
  expect_tunnel("GRETAP", [](const Content& frame) {
    return in_ethernet(in_ipv4(47, joined({bytes_of({0, 0, 0x65, 0x58}), frame})));
  });
  expect_tunnel(
      "GRE",
      [](const Content& frame) {
        return joined({ethernet_header(0x86DD),
                       in_ipv6(47, joined({bytes_of({0, 0, 0x86, 0xDD}), network_of(frame)}))});
      },
      true);
}

TEST(Tunnels, IpInIp) {
  expect_tunnel("IPv4 in IP",
                [](const Content& frame) { return in_ethernet(in_ipv4(4, network_of(frame))); });
  expect_tunnel(
      "IPv6 in IP",
      [](const Content& frame) { return in_ethernet(in_ipv4(41, network_of(frame))); }, true);
  expect_tunnel("EtherIP", [](const Content& frame) {
    return in_ethernet(in_ipv4(97, joined({bytes_of({0x30, 0}), frame})));
  });
}

TEST(Tunnels, InUdp) {
  const Content vxlan = bytes_of({0x08, 0, 0, 0, 0, 0, 42, 0});
  for (const unsigned port : {4789U, 8472U}) {
    expect_tunnel("VXLAN", [&](const Content& frame) {
      return in_ethernet(in_udp(port, joined({vxlan, frame})));
    });
  }
  expect_tunnel("VXLAN-GPE", [](const Content& frame) {
    return in_ethernet(in_udp(4790, joined({bytes_of({0x0C, 0, 0, 3, 0, 0, 42, 0}), frame})));
  });
  expect_tunnel("VXLAN-GPE", [](const Content& frame) {
    return in_ethernet(
        in_udp(4790, joined({bytes_of({0x0C, 0, 0, 1, 0, 0, 42, 0}), network_of(frame)})));
  });
  expect_tunnel("Geneve", [](const Content& frame) {  // with an option of eight bytes
    return in_ethernet(in_udp(6081, joined({bytes_of({2, 0, 0x65, 0x58, 0, 0, 42, 0}),
                                            bytes_of({1, 2, 3, 1, 0, 0, 0, 0}), frame})));
  });
  expect_tunnel("TZSP", [](const Content& frame) {  // padding, a tag of two bytes, and the end
    return in_ethernet(in_udp(37008, joined({bytes_of({1, 0, 0, 1, 0, 12, 2, 9, 9, 1}), frame})));
  });
  expect_tunnel("MPLS", [](const Content& frame) {
    return in_ethernet(in_udp(6635, joined({bytes_of({0, 1, 1, 64}), network_of(frame)})));
  });
}

TEST(Tunnels, OnEthernet) {
  expect_tunnel("MPLS", [](const Content& frame) {  // two labels
    return joined(
        {ethernet_header(0x8847), bytes_of({0, 1, 0, 64, 0, 2, 1, 64}), network_of(frame)});
  });
  expect_tunnel("MPLS", [](const Content& frame) {  // a pseudowire with its control word
    return joined({ethernet_header(0x8847), bytes_of({0, 1, 1, 64}), Content(4), frame});
  });
  for (const bool ipv6 : {false, true}) {
    expect_tunnel(
        "PPPoE",
        [ipv6](const Content& frame) {
          const Content network = network_of(frame);
          Content header = bytes_of({0x11, 0, 0, 5, 0, 0, 0, ipv6 ? 0x57U : 0x21U});
          store_be(&header[4], static_cast<std::uint16_t>(2 + network.size()));
          return joined({ethernet_header(0x8864), header, network});
        },
        ipv6);
  }
}

TEST(Tunnels, InEachOther) {
  const Wrap erspan = in_erspan_2();
  const Seen seen(wrapped([&](const Content& frame) {
    const Content vxlan = bytes_of({0x08, 0, 0, 0, 0, 0, 42, 0});
    return erspan(in_ethernet(in_udp(4789, joined({vxlan, frame}))));
  }));
  expect_all(seen);
  EXPECT_EQ(seen.tunnels(), "ERSPAN II, VXLAN");
}

// As a switch does that mirrors large frames over a path with a smaller MTU.
TEST(Tunnels, InFragments) {
  MadeCapture fragments;
  const Wrap erspan = in_erspan_2();
  std::uint16_t id = 0;
  for (const MadePacket& packet : conversation()) {
    const Content whole = erspan(packet.bytes);
    const Bytes payload = Bytes(whole).subspan(ethernet_bytes + 20);
    constexpr std::size_t piece_bytes = 200;
    ++id;
    for (std::size_t at = 0; at < payload.size(); at += piece_bytes) {
      const Bytes piece = payload.subspan(at, std::min(piece_bytes, payload.size() - at));
      const bool more = at + piece.size() < payload.size();
      Content bytes(whole.begin(), whole.begin() + ethernet_bytes + 20);
      store_be(&bytes[ethernet_bytes + 2], static_cast<std::uint16_t>(20 + piece.size()));
      store_be(&bytes[ethernet_bytes + 4], id);
      store_be(&bytes[ethernet_bytes + 6],
               static_cast<std::uint16_t>(at / 8 | (more ? 0x2000U : 0U)));
      bytes.insert(bytes.end(), piece.begin(), piece.end());
      fragments.push_back({.time_ns = packet.time_ns, .bytes = bytes, .wire_bytes = bytes.size()});
    }
  }
  expect_all(Seen(fragments));
}

TEST(Tunnels, EndAtTheSnapLengthLikeEverythingElse) {
  const MadeCapture whole = wrapped(in_erspan_2());
  for (const std::size_t snap_bytes : {20U, 40U, 50U, 60U, 90U, 140U, 200U}) {
    const Seen seen(cut(whole, snap_bytes));
    expect_known_bytes(seen.traffic);
    EXPECT_EQ(seen.counts.malformed, 0U) << snap_bytes;
  }
}

TEST(Tunnels, TooManyAreAnAttack) {
  Content packet = network_of(conversation()[0].bytes);
  for (int i = 0; i < 9; ++i) packet = in_ipv4(4, packet);
  const Content frame = in_ethernet(packet);
  const Seen seen({{.bytes = frame, .wire_bytes = frame.size()}});
  EXPECT_EQ(seen.counts.malformed, 1U);
}

TEST(Tunnels, WhatIsNotUnderstoodIsNamed) {
  MadeCapture capture;
  const auto add = [&](const Content& frame, int times) {
    for (int i = 0; i < times; ++i) capture.push_back({.bytes = frame, .wire_bytes = frame.size()});
  };
  add(joined({ethernet_header(0x0806), Content(28)}), 7);
  add(joined({ethernet_header(0x88CC), Content(28)}), 6);
  add(joined({ethernet_header(38), bytes_of({0x42, 0x42, 3}), Content(35)}), 5);
  add(in_ethernet(in_ipv4(47, joined({bytes_of({0x30, 0x01, 0x88, 0x0B}), Content(20)}))), 4);
  add(in_ethernet(in_ipv4(253, Content(20))), 3);
  add(in_ethernet(in_udp(4789, Content(30))), 2);
  add(joined({ethernet_header(0x1234), Content(28)}), 1);
  const Seen seen(capture);
  EXPECT_EQ(seen.counts.other, 28U);
  EXPECT_EQ(seen.others(),
            "ARP, LLDP, STP, GRE, IP protocol 253, UDP to the port of VXLAN, Ethertype 0x1234");
}

// Each packet without its Ethernet header, in a datagram of native InfiniBand (RFC 4391 §6).
MadeCapture over_infiniband(const MadeCapture& inner, RoceOptions::Carrier carrier,
                            std::uint16_t reserved = 0) {
  MadeCapture outer;
  RoceTalk talk(outer, {.carrier = carrier, .transport = wire::IbTransport::ud});
  for (const MadePacket& packet : inner) {
    Content payload = bytes_of({0x08, 0x00, 0, reserved});
    payload.insert(payload.end(), packet.bytes.begin() + ethernet_bytes, packet.bytes.end());
    wire::IbHeaders headers;
    headers.bth.opcode = {wire::IbTransport::ud, wire::IbOperation::send_only};
    headers.deth.source_qp = 0x99;
    talk.packet(Side::a, headers, payload);
  }
  return outer;
}

TEST(Ipoib, IsDecodedAsATunnel) {
  for (const auto carrier : {RoceOptions::Carrier::native, RoceOptions::Carrier::native_global}) {
    const Seen seen(over_infiniband(conversation(), carrier));
    expect_all(seen);
    EXPECT_EQ(seen.tunnels(), "IPoIB");
  }
}

TEST(Ipoib, DatagramsOfAnotherFormAreMessages) {
  const Seen seen(over_infiniband(conversation(), RoceOptions::Carrier::native, 1));
  EXPECT_EQ(seen.tunnels(), "");
  ASSERT_EQ(seen.analysis.connections().size(), 1U);
  EXPECT_EQ(seen.analysis.connections()[0].transport, Transport::ud);
}

}  // namespace
}  // namespace weft::capture::test
