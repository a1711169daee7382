#include "wire/hello.h"

#include <gtest/gtest.h>

#include <array>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

constexpr Hello example{.answer = HelloAnswer::crossed,
                        .source_qpn = 0x123456,
                        .destination_qpn = 0xABCDEF,
                        .send_psn = 0x010203,
                        .receive_psn = 0x0A0B0C,
                        .generation = 0xFFFFFFFF,
                        .capabilities = Hello::can_send_immediate,
                        .control_stag = 0xDEADBEEF,
                        .hold_capacity_bytes = 1 << 20};

TEST(Hello, IsReadAsItWasWritten) {
  std::array<std::byte, Hello::bytes> bytes{};
  example.emit(bytes);
  const auto parsed = Hello::parse(bytes);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, example);
}

TEST(Hello, StandsOnTheWireInNetworkOrder) {
  EXPECT_EQ(emitted(example, Hello::bytes),
            copy_of("57656674 0001 0002 00123456 00abcdef 00010203 000a0b0c ffffffff 00000001"
                    "deadbeef 00100000 0000000000000000"_hex));
}

TEST(Hello, OfALaterVersionMayBeLonger) {
  std::array<std::byte, Hello::bytes + 20> bytes{};
  Hello later = example;
  later.version = 9;
  later.emit(bytes);
  const auto parsed = Hello::parse(bytes);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->version, 9);
}

TEST(Hello, IsNeverReadBeyondItsEnd) {
  std::array<std::byte, Hello::bytes> bytes{};
  example.emit(bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto parsed = Hello::parse(Bytes(bytes).first(size));
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error(), WireError::truncated);
  }
  bytes[0] = std::byte{'w'};
  EXPECT_EQ(Hello::parse(bytes).error(), WireError::bad_key);
}

}  // namespace
}  // namespace weft::wire
