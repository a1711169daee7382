#include "base/crc_table.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/crc32.h"
#include "base/crc32c.h"

namespace weft {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(3720);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::uint32_t bit_by_bit(std::uint32_t polynomial, Bytes bytes) {
  std::uint32_t state = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? polynomial : 0);
  }
  return ~state;
}

TEST(CrcTable, IsTheDivisionBitByBitAtEveryLength) {
  for (const std::uint32_t polynomial : {0xEDB88320U, 0x82F63B78U}) {
    const CrcTable table(polynomial);
    const auto bytes = random_bytes(100);
    for (std::size_t length = 0; length <= bytes.size(); ++length) {
      const auto part = Bytes(bytes).first(length);
      EXPECT_EQ(~table.update(0xFFFFFFFF, part), bit_by_bit(polynomial, part)) << length;
    }
  }
}

TEST(CrcTable, AgreesWithTheChecksumsInUse) {
  const auto bytes = random_bytes(65536 + 3);
  EXPECT_EQ(~CrcTable(0xEDB88320).update(0xFFFFFFFF, bytes), crc32(bytes));
  EXPECT_EQ(~CrcTable(0x82F63B78).update(0xFFFFFFFF, bytes), crc32c(bytes));
}

TEST(CrcTable, PiecesMakeTheSameAsTheWhole) {
  const CrcTable table(0x82F63B78);
  const auto bytes = random_bytes(64);
  const std::uint32_t whole = table.update(0xFFFFFFFF, bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::uint32_t first = table.update(0xFFFFFFFF, Bytes(bytes).first(cut));
    EXPECT_EQ(table.update(first, Bytes(bytes).subspan(cut)), whole) << cut;
  }
}

}  // namespace
}  // namespace weft
