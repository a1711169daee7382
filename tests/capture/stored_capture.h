// A capture of tests/data/capture, read; and what the program printed that made those of all sizes.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "capture/traffic_log.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/packet_source.hpp"

namespace weft::capture::test {

struct ReadCapture {
  Analysis analysis;
  TrafficLog traffic;
  OperationLog operations;

  explicit ReadCapture(const std::string& name) {
    const auto source = open_capture(std::string(WEFT_TEST_DATA) + "/" + name + ".pcap.zst");
    analysis.add_sink(traffic);
    analysis.add_operations(operations);
    RawPacket packet;
    while (source->next(packet)) analysis.add(packet);
    analysis.finish();
    EXPECT_EQ(source->problem(), "");
    EXPECT_EQ(source->leftover(), "");
  }

  [[nodiscard]] const Connection& connection(ConnectionId id) const {
    return analysis.connections()[id];
  }
};

inline std::uint32_t adler(const std::vector<std::byte>& bytes) {
  return static_cast<std::uint32_t>(
      ::adler32(1, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

struct Expected {
  std::size_t bytes;
  std::uint32_t adler;
};

inline constexpr std::array<Expected, 20> sent{{
    {0, 0x00000001},    {1, 0x000f000f},    {2, 0x005d0040},    {3, 0x011b0094},
    {4, 0x027a010b},    {5, 0x04ab01a5},    {63, 0x5a1b201b},   {64, 0x723c1fe1},
    {65, 0x81c61fca},   {1023, 0x87fffda3}, {1024, 0xc61efe10}, {1025, 0x94cdfea0},
    {1435, 0xbb02c945}, {1436, 0x88abca41}, {2047, 0x734bfb80}, {2048, 0xdf4cfc2e},
    {2049, 0x6c1efcff}, {4096, 0xbbd7f86a}, {9999, 0xb5427114}, {65535, 0x53dc8683},
}};
inline constexpr std::array<Expected, 20> read_back{{
    {0, 0x00000001},    {1, 0x00050005},    {2, 0x001a0012},    {3, 0x004b0028},
    {4, 0x00a40047},    {5, 0x0131006f},    {63, 0x7e3d1b91},   {64, 0xb2fe1d21},
    {65, 0xea181eba},   {1023, 0x76f1fdf7}, {1024, 0x032efe10}, {1025, 0x837efe32},
    {1435, 0x1328cde3}, {1436, 0xe221cfad}, {2047, 0x025bfc06}, {2048, 0xa2b6fc2e},
    {2049, 0x2b51fc5f}, {4096, 0x244ff86a}, {9999, 0xae057212}, {65535, 0x76c8873b},
}};
inline constexpr std::array<Expected, 9> sent_inline{{{0, 0x00000001},
                                                      {4, 0x0072003b},
                                                      {8, 0x03740105},
                                                      {12, 0x0b86025f},
                                                      {16, 0x1b280449},
                                                      {20, 0x34da06c3},
                                                      {24, 0x5b1c09cd},
                                                      {28, 0x906e0d67},
                                                      {32, 0xd7501191}}};

// The messages of one connection's side a, in the order of their numbers.
template <typename Messages>
void expect_messages(const Messages& messages, ConnectionId connection,
                     std::span<const Expected> expected) {
  std::size_t i = 0;
  for (const auto& [key, message] : messages) {
    if (std::get<0>(key) != connection || std::get<1>(key) != Side::a) continue;
    ASSERT_LT(i, expected.size());
    EXPECT_TRUE(message.whole()) << i;
    EXPECT_EQ(message.bytes.size(), expected[i].bytes) << i;
    EXPECT_EQ(adler(message.bytes), expected[i].adler) << i;
    ++i;
  }
  EXPECT_EQ(i, expected.size());
}

}  // namespace weft::capture::test
