// What both sides say first, and the table of mapped buffers.
#include "stream/greeting.h"

#include <gtest/gtest.h>

#include <limits>

#include "stream/maps.h"
#include "support/random.h"

namespace weft::stream::detail {
namespace {

Greeting request() {
  Greeting greeting;
  greeting.receives = 384;
  greeting.ring_address = 0x1122'3344'5566'7788;
  greeting.ring_rkey = 0x99AA'BBCC;
  greeting.ring_bytes = 32'768;
  greeting.variants = variant_immediate | variant_write_and_send;
  greeting.rows = 7;
  greeting.private_data = {std::byte{'h'}, std::byte{'i'}};
  return greeting;
}

// As docs/stream-protocol.md has it.
TEST(Greeting, HasTheBytesOfTheDocument) {
  const std::uint8_t expected[] = {'W',  'E',  'F',  'S',  1,    1,    1,    128,  0x11, 0x22,
                                   0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC,
                                   0,    0,    0x80, 0,    3,    7,    0,    2,    'h',  'i'};
  const auto bytes = request().to_bytes();
  ASSERT_EQ(bytes.size(), sizeof expected);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
  }
}

TEST(Greeting, IsReadAsItWasWritten) {
  auto bytes = request().to_bytes();
  bytes.resize(bytes.size() + 20);  // what transports fill up with
  const auto parsed = Greeting::parse(bytes);
  ASSERT_TRUE(std::holds_alternative<Greeting>(parsed));
  EXPECT_EQ(std::get<Greeting>(parsed).to_bytes(), request().to_bytes());
}

TEST(Greeting, NothingShorterIsOne) {
  const auto bytes = request().to_bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(std::holds_alternative<Reason>(Greeting::parse(std::span(bytes).first(size))))
        << size;
  }
}

TEST(Greeting, ARegionBeyondTheEndOfMemoryIsRefused) {
  Greeting greeting = request();
  greeting.ring_address = std::numeric_limits<std::uint64_t>::max() - 1000;
  EXPECT_TRUE(std::holds_alternative<Reason>(Greeting::parse(greeting.to_bytes())));
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
      const auto parsed = Greeting::parse(bytes);
      if (const auto* greeting = std::get_if<Greeting>(&parsed)) {
        EXPECT_LE(greeting->private_data.size() + Greeting::fixed_bytes, bytes.size());
        if (greeting->type == GreetingType::refusal) continue;
        EXPECT_GE(greeting->ring_bytes, 1U);
        EXPECT_LE(greeting->ring_bytes, max_buffer_bytes);
        EXPECT_GE(greeting->receives, min_queue);
      }
    }
  }
}

TEST(Maps, RowsSurviveTheWire) {
  const Mapping mapping{77, {0x1000, 500, 42}, nullptr};
  const auto back = Mapping::from_bytes(mapping.to_bytes());
  EXPECT_EQ(back.offset, 77U);
  EXPECT_EQ(back.memory, mapping.memory);
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

// A peer may write anything into its row of our table.
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
