#include "wire/udp.h"

#include <gtest/gtest.h>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

constexpr auto roce = "c14412b7001c0000"_hex;

TEST(UdpHeader, DeconstructsAndConstructs) {
  const UdpHeader value{
      .source_port = 0xC144, .destination_port = roce_v2_port, .length_bytes = 28};
  EXPECT_EQ(*UdpHeader::parse(roce), value);
  EXPECT_EQ(emitted(value), copy_of(roce));
  expect_truncated_below(UdpHeader::header_bytes, roce,
                         [](Bytes cut) { return UdpHeader::parse(cut); });
}

TEST(UdpHeader, RefusesALengthBelowItsOwn) {
  auto bytes = roce;
  bytes[5] = std::byte{7};
  EXPECT_EQ(UdpHeader::parse(bytes).error(), WireError::bad_length);
  bytes[5] = std::byte{0};
  EXPECT_TRUE(UdpHeader::parse(bytes));
}

}  // namespace
}  // namespace weft::wire
