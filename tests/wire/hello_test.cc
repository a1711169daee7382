#include "wire/hello.h"

#include <gtest/gtest.h>

#include <array>

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
  std::array<std::byte, Hello::bytes> bytes{};
  example.emit(bytes);
  constexpr std::array<unsigned char, 16> head{'W', 'e',  'f',  't',  0, 1,    0,    2,
                                               0,   0x12, 0x34, 0x56, 0, 0xAB, 0xCD, 0xEF};
  for (std::size_t i = 0; i < head.size(); ++i) EXPECT_EQ(bytes[i], std::byte{head[i]}) << i;
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
