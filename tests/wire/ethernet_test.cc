#include "wire/ethernet.h"

#include <gtest/gtest.h>

#include <array>

namespace weft::wire {
namespace {

TEST(Ethernet, EmitsAndParses) {
  EthernetHeader header;
  header.destination = {std::byte{2}, std::byte{0}, std::byte{10},
                        std::byte{0}, std::byte{0}, std::byte{1}};
  header.source[5] = std::byte{7};
  header.type = EtherType::ipv6;
  std::array<std::byte, EthernetHeader::header_bytes> bytes;
  header.emit(bytes);
  EXPECT_EQ(bytes[0], std::byte{2});
  EXPECT_EQ(bytes[11], std::byte{7});
  EXPECT_EQ(bytes[12], std::byte{0x86});
  EXPECT_EQ(bytes[13], std::byte{0xDD});
  const auto parsed = EthernetHeader::parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, header);
}

TEST(Ethernet, UnknownTypesSurvive) {
  EthernetHeader header;
  header.type = EtherType{0x1234};
  std::array<std::byte, EthernetHeader::header_bytes> bytes;
  header.emit(bytes);
  EXPECT_EQ(EthernetHeader::parse(bytes)->type, EtherType{0x1234});
}

TEST(Ethernet, RefusesShortHeaders) {
  const std::array<std::byte, EthernetHeader::header_bytes - 1> bytes{};
  EXPECT_EQ(EthernetHeader::parse(bytes).error(), WireError::truncated);
}

}  // namespace
}  // namespace weft::wire
