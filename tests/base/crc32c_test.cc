#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "base/crc32c_lanes.h"
#include "base/crc32c_state.h"

namespace weft {
namespace {

// The definition, bit by bit: reflected Castagnoli polynomial, initial value and final XOR of ones.
std::uint32_t bitwise_crc32c(Bytes bytes) {
  std::uint32_t state = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~state;
}

Bytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(5044);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Crc32c, HasTheCheckValueOfItsDefinition) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(bitwise_crc32c(bytes_of("123456789")), 0xE3069283U);
}

// RFC 3720 §B.4
TEST(Crc32c, HasTheValuesOfTheIscsiExamples) {
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0x00})), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43U);
}

TEST(Crc32c, OfNothingIsZero) {
  EXPECT_EQ(crc32c({}), 0U);
  EXPECT_EQ(Crc32c().value(), 0U);
}

TEST(Crc32c, EqualsTheBitwiseDefinitionAtEveryLengthAndAlignment) {
  const auto bytes = random_bytes(2100);
  for (std::size_t count = 0; count < 300; ++count) {
    const auto piece = Bytes(bytes).subspan(count % 8, count);
    ASSERT_EQ(crc32c(piece), bitwise_crc32c(piece)) << count << " bytes";
  }
  EXPECT_EQ(crc32c(bytes), bitwise_crc32c(bytes));
}

TEST(Crc32c, OfManyBytesEqualsTheBitwiseDefinition) {
  const auto bytes = random_bytes(70'100);
  for (const std::size_t count : {2048, 3000, 4096, 4097, 16'384, 64'768, 70'000}) {
    const auto piece = Bytes(bytes).subspan(count % 67, count);
    EXPECT_EQ(crc32c(piece), bitwise_crc32c(piece)) << count << " bytes";
  }
}

// Processors with wider registers do not use them otherwise.
TEST(Crc32c, InLanesEqualsTheBitwiseDefinitionWithFewAndManyBlocks) {
  if (!crc32c_lanes::usable()) GTEST_SKIP() << "not with this processor";
  constexpr std::size_t block_bytes = 248;
  const auto bytes = random_bytes(70'100);
  for (std::size_t blocks = 1; blocks <= 270; blocks += blocks < 40 ? 1 : 23) {
    const auto whole = Bytes(bytes).subspan(3, blocks * block_bytes + blocks % block_bytes);
    Bytes rest = whole;
    const std::uint32_t state = crc32c_lanes::update(crc32c_begin, rest);
    ASSERT_EQ(rest.size(), blocks % block_bytes);
    ASSERT_EQ(~state, bitwise_crc32c(whole.first(blocks * block_bytes))) << blocks << " blocks";
  }
}

// The lanes that accompany a copy.
TEST(Crc32c, OfBlocksInLanesGoesOnFromAnyState) {
  if (!crc32c_lanes::usable()) GTEST_SKIP() << "not with this processor";
  constexpr std::size_t block_bytes = Crc32cLanes::block_bytes;
  const auto bytes = random_bytes(33 * block_bytes + 5);
  for (const std::uint32_t before : {crc32c_begin, std::uint32_t{0x1234ABCD}}) {
    Crc32cLanes lanes;
    for (std::size_t blocks = 1; blocks <= 33; ++blocks) {
      lanes.add(bytes.data() + 5 + (blocks - 1) * block_bytes);
      const Bytes whole = Bytes(bytes).subspan(5, blocks * block_bytes);
      ASSERT_EQ(lanes.state(before, blocks), update_crc32c(before, whole)) << blocks;
    }
  }
}

TEST(Crc32c, OfPiecesEqualsThatOfTheWhole) {
  const auto bytes = random_bytes(700);
  const auto whole = crc32c(bytes);
  for (std::size_t split = 0; split <= bytes.size(); ++split) {
    Crc32c crc;
    crc.update(Bytes(bytes).first(split));
    crc.update(Bytes(bytes).subspan(split));
    ASSERT_EQ(crc.value(), whole) << "split at " << split;
  }
}

TEST(Crc32c, OfSingleBytesEqualsThatOfTheWhole) {
  const auto bytes = random_bytes(99);
  Crc32c crc;
  for (const std::byte& byte : bytes) crc.update(Bytes(&byte, 1));
  EXPECT_EQ(crc.value(), crc32c(bytes));
}

TEST(Crc32c, IsAValueWhoseCopyForksTheComputation) {
  Crc32c crc;
  crc.update(bytes_of("12345"));
  Crc32c fork = crc;
  fork.update(bytes_of("6789"));
  EXPECT_EQ(crc.value(), crc32c(bytes_of("12345")));
  EXPECT_EQ(fork.value(), 0xE3069283U);
}

}  // namespace
}  // namespace weft
