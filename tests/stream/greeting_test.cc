// What both sides send first, and the table of mapped buffers.
#include "stream/greeting_wire.h"

#include <gtest/gtest.h>

#include <limits>

#include "stream/maps.h"
#include "stream/word_wire.h"
#include "support/random.h"

namespace weft::stream::detail {
namespace {

StreamGreeting request() {
  StreamGreeting greeting;
  greeting.receives = 384;
  greeting.ring_address = 0x1122'3344'5566'7788;
  greeting.ring_rkey = 0x99AA'BBCC;
  greeting.ring_bytes = 32'768;
  greeting.variants = variant_immediate | variant_write_and_send;
  greeting.rows = 7;
  greeting.part_log2 = 15;
  greeting.private_data = {std::byte{'h'}, std::byte{'i'}};
  return greeting;
}

// As docs/stream-protocol.md has it.
TEST(Greeting, HasTheBytesOfTheDocument) {
  const std::uint8_t expected[] = {'W',  'E',  'F',  'S',  1,    1,    1,    128,  0x11, 0x22,
                                   0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC,
                                   0,    0,    0x80, 0,    3,    7,    15,   2,    'h',  'i'};
  const auto bytes = request().to_bytes();
  ASSERT_EQ(bytes.size(), sizeof expected);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
  }
}

TEST(Greeting, AnnouncesSharedMemoryByABitOfTheVariants) {
  StreamGreeting greeting = request();
  greeting.shares_memory = true;
  const auto bytes = greeting.to_bytes();
  EXPECT_EQ(std::to_integer<int>(bytes[24]), 0x83);
  const auto parsed = StreamGreeting::parse(bytes);
  ASSERT_TRUE(std::holds_alternative<StreamGreeting>(parsed));
  EXPECT_EQ(std::get<StreamGreeting>(parsed), greeting);

  greeting.type = GreetingType::acceptance;
  greeting.variants = variant_immediate;
  EXPECT_TRUE(std::holds_alternative<StreamGreeting>(StreamGreeting::parse(greeting.to_bytes())));
}

TEST(Greeting, IsReadAsItWasWritten) {
  auto bytes = request().to_bytes();
  bytes.resize(bytes.size() + 20);  // padding of transports
  const auto parsed = StreamGreeting::parse(bytes);
  ASSERT_TRUE(std::holds_alternative<StreamGreeting>(parsed));
  EXPECT_EQ(std::get<StreamGreeting>(parsed).to_bytes(), request().to_bytes());
}

TEST(Greeting, NothingShorterIsOne) {
  const auto bytes = request().to_bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(std::holds_alternative<Reason>(StreamGreeting::parse(std::span(bytes).first(size))))
        << size;
  }
}

TEST(Greeting, ARegionBeyondTheEndOfMemoryIsRefused) {
  StreamGreeting greeting = request();
  greeting.ring_address = std::numeric_limits<std::uint64_t>::max() - 1000;
  EXPECT_TRUE(std::holds_alternative<Reason>(StreamGreeting::parse(greeting.to_bytes())));
}

TEST(Greeting, APartThatNoNumberNamesIsRefused) {
  StreamGreeting greeting = request();
  greeting.part_log2 = 31;
  EXPECT_TRUE(std::holds_alternative<StreamGreeting>(StreamGreeting::parse(greeting.to_bytes())));
  greeting.part_log2 = 32;
  EXPECT_TRUE(std::holds_alternative<Reason>(StreamGreeting::parse(greeting.to_bytes())));
}

TEST(Greeting, AnythingAtAllIsReadOrRefused) {
  for (const auto seed : test::seeds(20)) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    for (int i = 0; i < 2000; ++i) {
      auto bytes = request().to_bytes();
      bytes.resize(random.below(300));
      for (int change = 0; change < 4 && !bytes.empty(); ++change) {
        bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
      }
      const auto parsed = StreamGreeting::parse(bytes);
      if (const auto* greeting = std::get_if<StreamGreeting>(&parsed)) {
        EXPECT_LE(greeting->private_data.size() + StreamGreeting::fixed_bytes, bytes.size());
        if (greeting->type == GreetingType::refusal) continue;
        EXPECT_GE(greeting->ring_bytes, 1U);
        EXPECT_LE(greeting->ring_bytes, max_buffer_bytes);
        EXPECT_GE(greeting->receives, min_queue);
      }
    }
  }
}

// As docs/stream-protocol.md has it.
TEST(Maps, ARowHasTheBytesOfTheDocument) {
  const MapRow row{0x0102'0304'0506'0708,
                   {0x2122'2324'2526'2728, 0x1112'1314'1516'1718, 0x3132'3334}};
  const std::uint8_t expected[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x11, 0x12, 0x13,
                                   0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26,
                                   0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0,    0,    0,    0};
  const auto bytes = row.to_bytes();
  ASSERT_EQ(bytes.size(), sizeof expected);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
  }
  EXPECT_EQ(MapRow::from_bytes(bytes), row);
  EXPECT_EQ(Mapping::of(row).to_row(), row);
}

// As docs/stream-protocol.md has it.
TEST(Words, HaveTheBitsOfTheDocument) {
  EXPECT_EQ(encode(Kind::data, 0x0ABCDEF1), 0x0ABCDEF1U);
  EXPECT_EQ(encode(Kind::end, 0), 0x10000000U);
  EXPECT_EQ(encode(Kind::map, 5), 0x20000005U);
  const Update update{.bytes = 0x1FFFFF, .receives = 0x81, .acknowledged = 2};
  EXPECT_EQ(encode(update), 1U << 31 | 2U << 29 | 0x81U << 21 | 0x1FFFFFU);
  EXPECT_EQ(update_of(encode(update)), update);
  const auto bytes = word_to_bytes(0x01020304);
  EXPECT_EQ(bytes[0], std::byte{1});
  EXPECT_EQ(bytes[3], std::byte{4});
  EXPECT_EQ(word_from_bytes(bytes), 0x01020304U);
}

TEST(Maps, FindsWhatAnOffsetNames) {
  Maps maps;
  maps.resize(3);
  EXPECT_EQ(maps.free_row(), 0U);
  maps.set(0, {100, {0x1000, 50, 1}, nullptr});
  maps.set(1, {200, {0x9000, 10, 2}, nullptr});
  EXPECT_EQ(maps.free_row(), 2U);
  EXPECT_EQ(maps.next_offset(), 210U);
  EXPECT_EQ(maps.at(120, 30)->address(), 0x1014U);
  EXPECT_FALSE(maps.at(120, 31));
  EXPECT_FALSE(maps.at(99, 1));
  EXPECT_FALSE(maps.at(150, 1));
  EXPECT_EQ(maps.at(209, 1)->rkey(), 2U);
  EXPECT_FALSE(maps.at(209, std::numeric_limits<std::uint64_t>::max()));
  EXPECT_TRUE(maps.overlaps(149, 10));
  EXPECT_FALSE(maps.overlaps(150, 50));
  EXPECT_EQ(maps.find(0x9000, 10), 1U);
  EXPECT_FALSE(maps.find(0x9000, 11));
}

// A peer may write any bytes into its rows of our table.
TEST(Maps, ARowBeyondTheEndOfMemoryNamesNothingElse) {
  Maps maps;
  maps.resize(1);
  const auto most = std::numeric_limits<std::uint64_t>::max();
  maps.set(0, {most - 10, {most - 100, most, 1}, nullptr});
  EXPECT_FALSE(maps.at(0, 1));
  EXPECT_TRUE(maps.at(most - 5, 3));
}

}  // namespace
}  // namespace weft::stream::detail
