#include "wire/pcapng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace weft::wire {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

template <typename Value>
std::vector<std::byte> emitted(const Value& value) {
  std::vector<std::byte> out(value.size());
  value.emit(out);
  return out;
}

// A view of `bytes`.
PcapngBlock block_of(const std::vector<std::byte>& bytes) {
  const auto block = PcapngBlock::parse(bytes, PcapngOrder::little);
  EXPECT_TRUE(block);
  return block ? *block : PcapngBlock{};
}

std::vector<std::byte> emitted_packet(const PcapngPacket& packet) {
  std::vector<std::byte> out(PcapngPacket::head_bytes + packet.captured_bytes);
  packet.emit_head(out);
  std::fill(out.begin() + PcapngPacket::head_bytes, out.end(), std::byte{0x77});
  out.resize(out.size() + packet.tail_bytes());
  packet.emit_tail(MutableBytes(out).last(packet.tail_bytes()));
  return out;
}

TEST(Pcapng, SectionRoundTrips) {
  const auto bytes = emitted(PcapngSection{"weft"});
  EXPECT_EQ(*pcapng_section_order(bytes), PcapngOrder::little);
  const auto block = block_of(bytes);
  EXPECT_EQ(block.type, PcapngType::section);
  EXPECT_EQ(block.size(), bytes.size());
  EXPECT_EQ(*PcapngSection::parse(block), PcapngSection{"weft"});
  EXPECT_EQ(*PcapngSection::parse(block_of(emitted(PcapngSection{}))), PcapngSection{});
}

TEST(Pcapng, CommentOfAPacketIsAnOption) {
  PcapngPacket packet;
  packet.captured_bytes = 2;
  packet.comment = "frame 7";
  const auto bytes = emitted_packet(packet);
  const auto block = block_of(bytes);
  ASSERT_EQ(block.size(), bytes.size());
  // opt_comment: its code, its length, the text and a byte of padding.
  const auto wanted = bytes_of({1, 0, 7, 0, 'f', 'r', 'a', 'm', 'e', ' ', '7', 0});
  EXPECT_NE(std::search(bytes.begin(), bytes.end(), wanted.begin(), wanted.end()), bytes.end());
  packet.comment = {};
  EXPECT_EQ(*PcapngPacket::parse(block), packet);
}

TEST(Pcapng, InterfaceIsWhatTheDraftSays) {
  PcapngInterface interface;
  interface.resolution = PcapngInterface::resolution_nanoseconds;
  interface.name = "weft0";
  const auto bytes = emitted(interface);
  EXPECT_EQ(bytes,
            bytes_of({1,   0,   0,   0, 44, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 5,  0, 'w', 'e',
                      'f', 't', '0', 0, 0,  0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 44, 0, 0,   0}));
  EXPECT_EQ(*PcapngInterface::parse(block_of(bytes)), interface);
}

// opt_comment (code 1) comes before the flags, padded to four bytes.
TEST(Pcapng, APacketMayHaveAComment) {
  PcapngPacket packet;
  packet.captured_bytes = packet.original_bytes = 2;
  packet.direction = PcapngDirection::outbound;
  packet.comment = "faulty";
  const auto bytes = emitted_packet(packet);
  const std::vector<std::byte> tail(bytes.end() - static_cast<std::ptrdiff_t>(packet.tail_bytes()),
                                    bytes.end());
  EXPECT_EQ(tail, bytes_of({0,   0,   1,   0, 6, 0, 'f', 'a', 'u',
                            'l', 't', 'y', 0, 0, 2, 0,   4,   0,
                            2,   0,   0,   0, 0, 0, 0,   0,   static_cast<int>(bytes.size()),
                            0,   0,   0}));
  const auto parsed = PcapngPacket::parse(block_of(bytes));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->direction, PcapngDirection::outbound);
  EXPECT_EQ(parsed->captured_bytes, 2U);
}

TEST(Pcapng, PacketsOfEveryPaddingRoundTrip) {
  for (std::uint32_t captured = 60; captured < 64; ++captured) {
    PcapngPacket packet;
    packet.interface_id = 3;
    packet.timestamp = 0x0102030405060708;
    packet.captured_bytes = captured;
    packet.original_bytes = 1500;
    packet.direction = PcapngDirection::outbound;
    const auto bytes = emitted_packet(packet);
    const auto block = block_of(bytes);
    const auto parsed = PcapngPacket::parse(block);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, packet);
    const std::vector<std::byte> expected(captured, std::byte{0x77});
    EXPECT_TRUE(std::ranges::equal(parsed->data(block), expected));
  }
}

TEST(Pcapng, ReadsBigEndianFiles) {
  const auto section =
      bytes_of({0x0A, 0x0D, 0x0D, 0x0A, 0,   0,   0,   28,  0x1A, 0x2B, 0x3C, 0x4D, 0, 1,
                0,    0,    255,  255,  255, 255, 255, 255, 255,  255,  0,    0,    0, 28});
  ASSERT_EQ(*pcapng_section_order(section), PcapngOrder::big);
  const auto block = PcapngBlock::parse(section, PcapngOrder::big);
  ASSERT_TRUE(block);
  EXPECT_TRUE(PcapngSection::parse(*block));
  const auto packet = bytes_of({0, 0, 0, 6, 0, 0, 0, 36, 0, 0, 0,   2,   0,   0, 0, 1, 0, 0,
                                0, 5, 0, 0, 0, 3, 0, 0,  0, 9, 0xA, 0xB, 0xC, 0, 0, 0, 0, 36});
  const auto packet_block = PcapngBlock::parse(packet, PcapngOrder::big);
  ASSERT_TRUE(packet_block);
  const auto parsed = PcapngPacket::parse(*packet_block);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->timestamp, (std::uint64_t{1} << 32) + 5);
  EXPECT_EQ(parsed->original_bytes, 9u);
  EXPECT_EQ(parsed->data(*packet_block)[2], std::byte{0xC});
}

// Option if_tsresol with its highest bit: negative powers of two.
TEST(Pcapng, TimesInBinaryFractionsOfASecond) {
  const auto ns = [](unsigned exponent, std::uint64_t timestamp) {
    PcapngInterface interface;
    interface.resolution = static_cast<std::uint8_t>(0x80 | exponent);
    return pcapng_nanoseconds(interface, timestamp);
  };
  EXPECT_EQ(ns(0, 7), 7'000'000'000);
  EXPECT_EQ(ns(1, 3), 1'500'000'000);
  EXPECT_EQ(ns(20, (std::uint64_t{5} << 20) + 1), 5'000'000'953);
  EXPECT_EQ(ns(31, 0x7FFFFFFF), 999'999'999);
  EXPECT_EQ(ns(32, 0x1'8000'0000), 1'500'000'000);
  EXPECT_EQ(ns(33, 0x1'8000'0000), 750'000'000);
  EXPECT_EQ(ns(63, 0xFFFF'FFFF'FFFF'FFFF), 1'999'999'999);
  EXPECT_EQ(ns(64, std::uint64_t{1} << 63), 500'000'000);
  EXPECT_EQ(ns(90, 0xFFFF'FFFF'FFFF'FFFF), 14);
  EXPECT_EQ(ns(127, 0xFFFF'FFFF'FFFF'FFFF), 0);
}

TEST(Pcapng, EveryPrefixOfABlockIsTruncated) {
  PcapngPacket packet;
  packet.captured_bytes = 5;
  const auto bytes = emitted_packet(packet);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto block = PcapngBlock::parse(Bytes(bytes).first(size), PcapngOrder::little);
    ASSERT_FALSE(block);
    EXPECT_EQ(block.error(), WireError::truncated);
  }
}

TEST(Pcapng, RefusesLengthsThatDisagree) {
  PcapngPacket packet;
  packet.captured_bytes = 5;
  auto bytes = emitted_packet(packet);
  bytes[20] = std::byte{40};  // captured bytes beyond the block
  EXPECT_EQ(PcapngPacket::parse(block_of(bytes)).error(), WireError::bad_length);
  bytes[20] = std::byte{5};
  bytes[38] = std::byte{12};  // the option's length
  EXPECT_EQ(PcapngPacket::parse(block_of(bytes)).error(), WireError::bad_length);
  bytes.back() = std::byte{1};
  EXPECT_EQ(PcapngBlock::parse(bytes, PcapngOrder::little).error(), WireError::bad_length);
  bytes[4] = std::byte{8};
  EXPECT_EQ(PcapngBlock::parse(bytes, PcapngOrder::little).error(), WireError::bad_length);
  EXPECT_EQ(pcapng_section_order(bytes).error(), WireError::bad_key);
}

}  // namespace
}  // namespace weft::wire
