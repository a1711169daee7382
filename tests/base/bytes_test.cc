#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

constexpr std::array wire{std::byte{0xFF}, std::byte{0x01}, std::byte{0x02},
                          std::byte{0x03}, std::byte{0x04}, std::byte{0x05},
                          std::byte{0x06}, std::byte{0x07}, std::byte{0x08}};

// Every load starts at an odd address of `wire`.
TEST(Bytes, LoadsNetworkOrderFromUnalignedBytes) {
  EXPECT_EQ(load_be<std::uint8_t>(&wire[1]), 0x01);
  EXPECT_EQ(load_be<std::uint16_t>(&wire[1]), 0x0102);
  EXPECT_EQ(load_be<std::uint32_t>(&wire[1]), 0x01020304U);
  EXPECT_EQ(load_be<std::uint64_t>(&wire[1]), 0x0102030405060708U);
}

TEST(Bytes, LoadsLeastSignificantByteFirst) {
  EXPECT_EQ(load_le<std::uint8_t>(&wire[1]), 0x01);
  EXPECT_EQ(load_le<std::uint16_t>(&wire[1]), 0x0201);
  EXPECT_EQ(load_le<std::uint32_t>(&wire[1]), 0x04030201U);
  EXPECT_EQ(load_le<std::uint64_t>(&wire[1]), 0x0807060504030201U);
}

template <typename T>
class StoredIntegers : public testing::Test {};

using UnsignedTypes = testing::Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(StoredIntegers, UnsignedTypes);

TYPED_TEST(StoredIntegers, ComeBackInEitherOrder) {
  const auto value = static_cast<TypeParam>(0xF1E2D3C4B5A69788U);
  std::array<std::byte, sizeof(TypeParam) + 1> out{};
  store_be(&out[1], value);
  EXPECT_EQ(load_be<TypeParam>(&out[1]), value);
  EXPECT_EQ(out[0], std::byte{0});
  store_le(&out[1], value);
  EXPECT_EQ(load_le<TypeParam>(&out[1]), value);
  EXPECT_EQ(out[0], std::byte{0});
}

TYPED_TEST(StoredIntegers, HaveTheirMostSignificantByteFirstInNetworkOrder) {
  const auto value = static_cast<TypeParam>(TypeParam{0x80} << (8 * (sizeof(TypeParam) - 1)));
  std::array<std::byte, sizeof(TypeParam)> out{};
  store_be(out.data(), value);
  EXPECT_EQ(out.front(), std::byte{0x80});
  store_le(out.data(), value);
  EXPECT_EQ(out.back(), std::byte{0x80});
}

}  // namespace
}  // namespace weft
