#include "wire/ip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

namespace weft::wire {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::uint16_t checksum(Bytes bytes) {
  InternetChecksum sum;
  sum.update(bytes);
  return sum.value();
}

// RFC 1071 §3: the sum of these words is ddf2.
TEST(InternetChecksum, ExampleOfRfc1071) {
  EXPECT_EQ(checksum(bytes_of({0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7})), 0xFFFF ^ 0xDDF2);
}

TEST(InternetChecksum, AnOddLastByteIsPaddedWithZero) {
  EXPECT_EQ(checksum(bytes_of({0x12, 0x34, 0x56})), checksum(bytes_of({0x12, 0x34, 0x56, 0})));
}

TEST(InternetChecksum, PiecesOfAnyLengthGiveTheSame) {
  std::vector<std::byte> bytes(257);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  const auto whole = checksum(bytes);
  for (std::size_t first = 0; first <= 9; ++first) {
    for (std::size_t second = 0; second <= 9; ++second) {
      InternetChecksum sum;
      sum.update(Bytes(bytes).first(first));
      sum.update(Bytes(bytes).subspan(first, second));
      sum.update(Bytes(bytes).subspan(first + second));
      EXPECT_EQ(sum.value(), whole) << first << ' ' << second;
    }
  }
}

// A header seen in the wild, with its checksum b861.
const auto ipv4_example = bytes_of({0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11,
                                    0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7});

TEST(Ipv4, ParsesAndEmitsAKnownHeader) {
  const auto header = Ipv4Header::parse(ipv4_example);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->total_bytes, 0x73);
  EXPECT_TRUE(header->dont_fragment);
  EXPECT_EQ(header->protocol, IpProtocol::udp);
  EXPECT_EQ(header->destination[3], std::byte{0xc7});
  std::vector<std::byte> out(header->size());
  header->emit(out);
  EXPECT_EQ(out, ipv4_example);
  EXPECT_TRUE(ipv4_checksum_ok(out));
  out[8] = std::byte{63};
  EXPECT_FALSE(ipv4_checksum_ok(out));
}

TEST(Ipv4, FragmentsAndOptionsRoundTrip) {
  Ipv4Header header;
  header.options_bytes = 8;
  header.traffic_class = 0xB8;
  header.total_bytes = 1500;
  header.id = 77;
  header.more_fragments = true;
  header.fragment_offset_bytes = 1480;
  std::vector<std::byte> out(header.size());
  header.emit(out);
  EXPECT_TRUE(ipv4_checksum_ok(out));
  EXPECT_EQ(*Ipv4Header::parse(out), header);
}

TEST(Ipv4, RefusesWhatCannotBe) {
  auto bytes = ipv4_example;
  EXPECT_EQ(Ipv4Header::parse(Bytes(bytes).first(19)).error(), WireError::truncated);
  bytes[0] = std::byte{0x46};
  EXPECT_EQ(Ipv4Header::parse(bytes).error(), WireError::truncated);
  bytes[0] = std::byte{0x44};
  EXPECT_EQ(Ipv4Header::parse(bytes).error(), WireError::bad_length);
  bytes[0] = std::byte{0x65};
  EXPECT_EQ(Ipv4Header::parse(bytes).error(), WireError::bad_version);
  bytes[0] = std::byte{0x45};
  bytes[3] = std::byte{19};
  EXPECT_EQ(Ipv4Header::parse(bytes).error(), WireError::bad_length);
  bytes[3] = std::byte{0};  // written by segmentation offload
  EXPECT_TRUE(Ipv4Header::parse(bytes));
}

TEST(Ipv6, RoundTrips) {
  Ipv6Header header;
  header.traffic_class = 0x5A;
  header.flow_label = 0xABCDE;
  header.payload_bytes = 65'020;
  header.next_header = IpProtocol::udp;
  header.hop_limit = 3;
  header.source[15] = std::byte{1};
  header.destination[0] = std::byte{0xFE};
  std::array<std::byte, Ipv6Header::header_bytes> out;
  header.emit(out);
  EXPECT_EQ(out[0], std::byte{0x65});
  EXPECT_EQ(out[1], std::byte{0xAA});
  EXPECT_EQ(*Ipv6Header::parse(out), header);
  EXPECT_EQ(Ipv6Header::parse(Bytes(out).first(39)).error(), WireError::truncated);
  out[0] = std::byte{0x45};
  EXPECT_EQ(Ipv6Header::parse(out).error(), WireError::bad_version);
}

// The UDP datagram of RFC 768's pseudo header, computed by hand: 7f00 + 1 + 7f00 + 1 + 0011 + 8.
TEST(PseudoHeader, SumsAddressesProtocolAndLength) {
  const Ipv4Address loopback{std::byte{127}, std::byte{0}, std::byte{0}, std::byte{1}};
  EXPECT_EQ(pseudo_header(loopback, loopback, IpProtocol::udp, 8).value(), 0xFFFF ^ 0xFE1B);
  Ipv6Address one{};
  one[15] = std::byte{1};
  EXPECT_EQ(pseudo_header(one, one, IpProtocol::tcp, 0x10014).value(), 0xFFFF ^ 0x001D);
}

}  // namespace
}  // namespace weft::wire
