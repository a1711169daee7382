#include "wire/tcp.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace weft::wire {
namespace {

std::vector<std::byte> emitted(const TcpHeader& header) {
  std::vector<std::byte> out(header.size());
  header.emit(out);
  return out;
}

TcpHeader example() {
  TcpHeader header;
  header.source_port = 4711;
  header.destination_port = 80;
  header.sequence = 0xFFFFFFF0;
  header.acknowledgement = 0x01020304;
  header.flags = tcp_flag::psh | tcp_flag::ack;
  header.window = 1000;
  header.checksum = 0xBEEF;
  header.urgent = 5;
  return header;
}

TEST(Tcp, RoundTripsWithoutOptions) {
  const auto bytes = emitted(example());
  ASSERT_EQ(bytes.size(), 20u);
  EXPECT_EQ(bytes[12], std::byte{0x50});
  EXPECT_EQ(bytes[13], std::byte{0x18});
  EXPECT_EQ(*TcpHeader::parse(bytes), example());
}

TEST(Tcp, RoundTripsWithEveryKindOfOption) {
  auto header = example();
  header.mss_bytes = 1460;
  header.window_scale = 7;
  header.other_options_bytes = 12;
  const auto bytes = emitted(header);
  ASSERT_EQ(bytes.size(), 40u);
  EXPECT_EQ(*TcpHeader::parse(bytes), header);
  header.mss_bytes.reset();
  EXPECT_EQ(*TcpHeader::parse(emitted(header)), header);
}

// The options of a Linux SYN: MSS, SACK permitted, timestamps, window scale.
TEST(Tcp, FindsItsOptionsAmongOthers) {
  auto bytes = emitted(example());
  bytes[12] = std::byte{0xA0};
  for (const int byte : {2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 9}) {
    bytes.push_back(static_cast<std::byte>(byte));
  }
  const auto header = TcpHeader::parse(bytes);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->mss_bytes, 1460);
  EXPECT_EQ(header->window_scale, 9);
  EXPECT_EQ(header->size(), 40u);
}

TEST(Tcp, RefusesWhatCannotBe) {
  auto bytes = emitted(example());
  EXPECT_EQ(TcpHeader::parse(Bytes(bytes).first(19)).error(), WireError::truncated);
  bytes[12] = std::byte{0x40};
  EXPECT_EQ(TcpHeader::parse(bytes).error(), WireError::bad_length);
  bytes[12] = std::byte{0x60};
  EXPECT_EQ(TcpHeader::parse(bytes).error(), WireError::truncated);
  for (const auto& option : {std::array{2, 5, 0, 0}, std::array{2, 3, 0, 0}, std::array{9, 1, 0, 0},
                             std::array{3, 2, 0, 0}, std::array{1, 1, 1, 2}}) {
    bytes.resize(20);
    for (const int byte : option) bytes.push_back(static_cast<std::byte>(byte));
    EXPECT_EQ(TcpHeader::parse(bytes).error(), WireError::bad_length) << option[0];
  }
}

}  // namespace
}  // namespace weft::wire
