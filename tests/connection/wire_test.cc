// The bytes of the control region and of the greeting that has its place.
#include <gtest/gtest.h>

#include "connection/control_wire.h"
#include "connection/greeting_wire.h"
#include "support/hex.h"

namespace weft::connection::detail {
namespace {

using test::copy_of;
using namespace test::literals;

constexpr auto record_bytes =
    "00000041 0102030405060708 1112131415161718 21222324 31323334 d49a229f"_hex;
const ControlRecord record{0x41, {0x0102030405060708, 0x1112131415161718, 0x21222324}, 0x31323334};

TEST(ControlWire, ARecordHasTheBytesOfItsLayout) {
  EXPECT_EQ(copy_of(record.to_bytes()), copy_of(record_bytes));
  EXPECT_EQ(ControlRecord::parse(record_bytes, 0x41), record);
  EXPECT_EQ(ControlRecord::parse(record_bytes, 0x81), std::nullopt) << "the round before";
}

// Whichever byte is not there yet.
TEST(ControlWire, APartOfARecordIsNone) {
  for (std::size_t i = 0; i < record_bytes.size(); ++i) {
    auto partly = record_bytes;
    partly[i] ^= std::byte{0xFF};
    EXPECT_EQ(ControlRecord::parse(partly, 0x41), std::nullopt) << i;
  }
  const decltype(record.to_bytes()) zeros{};
  EXPECT_EQ(ControlRecord::parse(zeros, 1), std::nullopt);
}

TEST(ControlWire, RecordsGoRoundInTheRing) {
  EXPECT_EQ(ControlLayout::record_offset(1, 64), 64U);
  EXPECT_EQ(ControlLayout::record_offset(64, 64), 64U + 63 * 32);
  EXPECT_EQ(ControlLayout::record_offset(65, 64), 64U);
  EXPECT_EQ(ControlLayout::bytes(64), 64U + 64 * 32);
  EXPECT_EQ(copy_of(count_to_bytes(0x0102030405060708)), copy_of("0102030405060708"_hex));
  EXPECT_EQ(count_from_bytes("0102030405060708"_hex), 0x0102030405060708U);
}

TEST(ControlGreetingWire, HasTheBytesOfItsLayout) {
  const auto with_buffer =
      "57454643 01 01 0040 0102030405060708 11121314 02"
      "2122232425262728 0000000000000009 31323334 aabb"_hex;
  ControlGreeting greeting;
  greeting.slots = 64;
  greeting.control = {0x0102030405060708, ControlLayout::bytes(64), 0x11121314};
  greeting.buffer = verbs::RemoteSlice{0x2122232425262728, 9, 0x31323334};
  greeting.private_data = {std::byte{0xAA}, std::byte{0xBB}};
  EXPECT_EQ(greeting.to_bytes(), copy_of(with_buffer));
  EXPECT_EQ(ControlGreeting::parse(with_buffer), greeting);

  const auto without = "57454643 01 00 0040 0102030405060708 11121314 02 aabb"_hex;
  greeting.buffer.reset();
  EXPECT_EQ(greeting.to_bytes(), copy_of(without));
  EXPECT_EQ(ControlGreeting::parse(without), greeting);
  auto filled_up = copy_of(without);
  filled_up.resize(56);
  EXPECT_EQ(ControlGreeting::parse(filled_up), greeting);
}

TEST(ControlGreetingWire, AnythingElseIsNone) {
  const auto good = "57454643 01 00 0040 0102030405060708 11121314 02 aabb"_hex;
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ControlGreeting::parse(Bytes(good).first(size))) << size;
  }
  for (const std::size_t at : {0U, 4U, 7U}) {  // magic, version, no slots
    auto changed = good;
    changed[at] = std::byte{0};
    EXPECT_FALSE(ControlGreeting::parse(changed)) << at;
  }
}

}  // namespace
}  // namespace weft::connection::detail
