#include "base/byte_writer.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/byte_reader.h"

namespace weft {
namespace {

constexpr std::byte untouched{0xEE};

TEST(ByteWriter, WritesIntegersOfBothOrders) {
  std::array<std::byte, 29> bytes{};
  ByteWriter out(bytes);
  out.u8(0x01);
  out.be16(0x0203);
  out.be32(0x04050607);
  out.be64(0x08090A0B0C0D0E0F);
  out.le16(0x1110);
  out.le32(0x15141312);
  out.le64(0x1D1C1B1A19181716);
  EXPECT_TRUE(out.ok());
  EXPECT_EQ(out.left(), 0U);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(bytes[i], static_cast<std::byte>(i + 1)) << i;
  }
}

TEST(ByteWriter, WhatItWritesCanBeRead) {
  std::array<std::byte, 29> bytes{};
  ByteWriter out(bytes);
  out.u8(1);
  out.be16(2);
  out.be32(3);
  out.be64(4);
  out.le16(5);
  out.le32(6);
  out.le64(7);
  ByteReader in(bytes);
  EXPECT_EQ(in.u8(), 1);
  EXPECT_EQ(in.be16(), 2);
  EXPECT_EQ(in.be32(), 3U);
  EXPECT_EQ(in.be64(), 4U);
  EXPECT_EQ(in.le16(), 5);
  EXPECT_EQ(in.le32(), 6U);
  EXPECT_EQ(in.le64(), 7U);
  EXPECT_TRUE(in.ok());
}

TEST(ByteWriter, WorksInConstantExpressions) {
  constexpr auto bytes = [] {
    std::array<std::byte, 8> made{};
    ByteWriter out(made);
    out.be16(0x0102);
    out.le16(0x0102);
    out.bytes(std::array{std::byte{9}});
    out.zeros_to_multiple(4);
    return made;
  }();
  static_assert(bytes[0] == std::byte{1} && bytes[1] == std::byte{2});
  static_assert(bytes[2] == std::byte{2} && bytes[3] == std::byte{1});
  static_assert(bytes[4] == std::byte{9} && bytes[5] == std::byte{0});
}

TEST(ByteWriter, SkippedBytesStayAsTheyAre) {
  std::array<std::byte, 8> bytes;
  bytes.fill(untouched);
  ByteWriter out(bytes);
  out.u8(1);
  out.skip(2);
  out.zeros_to_multiple(4);
  out.zeros_to_multiple(4);
  EXPECT_EQ(out.position(), 4U);
  EXPECT_EQ(bytes[1], untouched);
  EXPECT_EQ(bytes[2], untouched);
  EXPECT_EQ(bytes[3], std::byte{0});
  EXPECT_EQ(bytes[4], untouched);
}

TEST(ByteWriter, AWriteBeyondTheEndWritesNothingAndFailsForGood) {
  const auto expect_failed = [](auto write) {
    std::array<std::byte, 3> bytes;
    bytes.fill(untouched);
    ByteWriter out(bytes);
    out.be16(0);
    write(out);
    EXPECT_FALSE(out.ok());
    EXPECT_EQ(out.position(), 2U);
    EXPECT_EQ(bytes[2], untouched);
    out.u8(1);
    EXPECT_FALSE(out.ok());
    EXPECT_EQ(bytes[2], untouched);
  };
  expect_failed([](ByteWriter& out) { out.be16(1); });
  expect_failed([](ByteWriter& out) { out.be32(1); });
  expect_failed([](ByteWriter& out) { out.be64(1); });
  expect_failed([](ByteWriter& out) { out.le16(1); });
  expect_failed([](ByteWriter& out) { out.le32(1); });
  expect_failed([](ByteWriter& out) { out.le64(1); });
  expect_failed([](ByteWriter& out) { out.bytes(std::vector<std::byte>(2)); });
  expect_failed([](ByteWriter& out) { out.zeros(2); });
  expect_failed([](ByteWriter& out) { out.zeros_to_multiple(4); });
  expect_failed([](ByteWriter& out) { out.skip(~std::size_t{0}); });
}

TEST(ByteWriter, NothingFitsIntoNothing) {
  ByteWriter out{MutableBytes()};
  out.bytes({});
  out.zeros(0);
  EXPECT_TRUE(out.ok());
  out.u8(1);
  EXPECT_FALSE(out.ok());
}

}  // namespace
}  // namespace weft
