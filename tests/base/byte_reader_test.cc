#include "base/byte_reader.h"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

constexpr std::array<std::byte, 16> numbers = [] {
  std::array<std::byte, 16> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + 1);
  return bytes;
}();

TEST(ByteReader, ReadsIntegersOfBothOrders) {
  ByteReader big(numbers);
  EXPECT_EQ(big.u8(), 0x01);
  EXPECT_EQ(big.be16(), 0x0203);
  EXPECT_EQ(big.be32(), 0x04050607U);
  EXPECT_EQ(big.be64(), 0x08090A0B0C0D0E0FU);
  EXPECT_EQ(big.left(), 1U);
  EXPECT_TRUE(big.ok());

  ByteReader little(numbers);
  EXPECT_EQ(little.le16(), 0x0201);
  EXPECT_EQ(little.le32(), 0x06050403U);
  EXPECT_EQ(little.le64(), 0x0E0D0C0B0A090807U);
  EXPECT_EQ(little.position(), 14U);
  EXPECT_TRUE(little.ok());
}

TEST(ByteReader, WorksInConstantExpressions) {
  constexpr auto value = [] {
    ByteReader in(numbers);
    in.skip(1);
    return in.be16() + in.le16();
  }();
  static_assert(value == 0x0203 + 0x0504);
}

TEST(ByteReader, SubSpansPointIntoTheInput) {
  ByteReader in(numbers);
  in.skip(3);
  const Bytes part = in.bytes(5);
  EXPECT_EQ(part.data(), numbers.data() + 3);
  EXPECT_EQ(part.size(), 5U);
  EXPECT_EQ(in.rest().data(), numbers.data() + 8);
  EXPECT_EQ(in.rest().size(), 8U);
}

TEST(ByteReader, PaddingIsCountedFromTheFirstByte) {
  ByteReader in(numbers);
  in.skip_to_multiple(8);
  EXPECT_EQ(in.position(), 0U);
  in.skip(1);
  in.skip_to_multiple(8);
  EXPECT_EQ(in.position(), 8U);
  in.skip(8);
  in.skip_to_multiple(8);
  EXPECT_EQ(in.position(), 16U);
  EXPECT_TRUE(in.ok());
}

// Whatever the first read is that does not fit, it takes nothing, and nothing after it succeeds.
TEST(ByteReader, AReadBeyondTheEndFailsForGood) {
  const auto expect_failed = [](auto read) {
    ByteReader in(Bytes(numbers).first(9));
    in.skip(8);
    read(in);
    EXPECT_FALSE(in.ok());
    EXPECT_EQ(in.position(), 8U);
    EXPECT_EQ(in.u8(), 0);
    EXPECT_TRUE(in.bytes(1).empty());
    EXPECT_TRUE(in.rest().empty());
    EXPECT_EQ(in.position(), 8U);
    EXPECT_FALSE(in.ok());
  };
  expect_failed([](ByteReader& in) { EXPECT_EQ(in.be16(), 0); });
  expect_failed([](ByteReader& in) { EXPECT_EQ(in.be32(), 0U); });
  expect_failed([](ByteReader& in) { EXPECT_EQ(in.be64(), 0U); });
  expect_failed([](ByteReader& in) { EXPECT_EQ(in.le16(), 0); });
  expect_failed([](ByteReader& in) { EXPECT_EQ(in.le32(), 0U); });
  expect_failed([](ByteReader& in) { EXPECT_EQ(in.le64(), 0U); });
  expect_failed([](ByteReader& in) { EXPECT_TRUE(in.bytes(2).empty()); });
  expect_failed([](ByteReader& in) { EXPECT_TRUE(in.bytes(~std::size_t{0}).empty()); });
  expect_failed([](ByteReader& in) { in.skip(2); });
  expect_failed([](ByteReader& in) {
    in.fail();
    in.skip_to_multiple(16);
  });
}

TEST(ByteReader, NothingCanBeReadFromNothing) {
  ByteReader in{Bytes()};
  EXPECT_TRUE(in.bytes(0).empty());
  EXPECT_TRUE(in.rest().empty());
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.u8(), 0);
  EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace weft
