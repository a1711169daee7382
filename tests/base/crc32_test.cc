#include "base/crc32.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace weft {
namespace {

// The definition, bit by bit: reflected polynomial, initial value and final XOR of ones.
std::uint32_t bitwise_crc32(Bytes bytes) {
  std::uint32_t state = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? 0xEDB88320 : 0);
  }
  return ~state;
}

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(4791);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Crc32, HasTheCheckValueOfItsDefinition) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32(std::as_bytes(std::span(digits))), 0xCBF43926U);
}

TEST(Crc32, OfNothingIsZero) {
  EXPECT_EQ(crc32({}), 0U);
  EXPECT_EQ(Crc32().value(), 0U);
}

TEST(Crc32, EqualsTheBitwiseDefinitionAtEveryLengthAndAlignment) {
  const auto bytes = random_bytes(2100);
  for (std::size_t count = 0; count < 300; ++count) {
    const auto piece = Bytes(bytes).subspan(count % 8, count);
    ASSERT_EQ(crc32(piece), bitwise_crc32(piece)) << count << " bytes";
  }
  EXPECT_EQ(crc32(bytes), bitwise_crc32(bytes));
}

TEST(Crc32, OfPiecesEqualsThatOfTheWhole) {
  const auto bytes = random_bytes(300);
  const auto whole = crc32(bytes);
  for (std::size_t split = 0; split <= bytes.size(); ++split) {
    Crc32 crc;
    crc.update(Bytes(bytes).first(split));
    crc.update(Bytes(bytes).subspan(split));
    ASSERT_EQ(crc.value(), whole) << "split at " << split;
  }
}

}  // namespace
}  // namespace weft
