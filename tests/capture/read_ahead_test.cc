// A source that is read in a thread of its own gives what it gives otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "weft/capture/packet_source.hpp"

namespace weft::capture::test {
namespace {

// Packets of different sizes, then an error or an end.
class Made final : public PacketSource {
 public:
  Made(std::uint64_t packets, std::size_t most_bytes, bool throws = false)
      : packets_(packets), bytes_(most_bytes), throws_(throws) {}

  bool next(RawPacket& packet) override {
    if (made_ == packets_) {
      if (throws_) throw std::runtime_error("the disk is gone");
      return false;
    }
    // The bytes of a packet are valid until the next call only.
    std::fill(bytes_.begin(), bytes_.end(), static_cast<std::byte>(made_));
    packet = {.time_ns = static_cast<std::int64_t>(made_),
              .link_type = 1,
              .bytes = Bytes(bytes_).first(made_ * 7 % (bytes_.size() + 1)),
              .wire_bytes = bytes_.size()};
    ++made_;
    return true;
  }
  [[nodiscard]] std::string problem() const override { return made_ == packets_ ? "damaged" : ""; }
  [[nodiscard]] std::string leftover() const override { return made_ == packets_ ? "half" : ""; }
  [[nodiscard]] std::uint64_t bytes_read() const override { return made_; }
  [[nodiscard]] std::uint64_t bytes_in_all() const override { return packets_; }

 private:
  std::uint64_t packets_;
  std::vector<std::byte> bytes_;
  bool throws_;
  std::uint64_t made_ = 0;
};

void expect_same(PacketSource& one, PacketSource& other) {
  RawPacket packet;
  RawPacket expected;
  while (other.next(expected)) {
    ASSERT_TRUE(one.next(packet));
    ASSERT_EQ(packet.time_ns, expected.time_ns);
    ASSERT_EQ(packet.link_type, expected.link_type);
    ASSERT_EQ(packet.wire_bytes, expected.wire_bytes);
    ASSERT_TRUE(std::ranges::equal(packet.bytes, expected.bytes));
  }
  EXPECT_FALSE(one.next(packet));
  EXPECT_FALSE(one.next(packet));
  EXPECT_EQ(one.problem(), other.problem());
  EXPECT_EQ(one.leftover(), other.leftover());
  EXPECT_EQ(one.bytes_read(), other.bytes_read());
  EXPECT_EQ(one.bytes_in_all(), other.bytes_in_all());
}

// Many small packets, some large ones, a packet that is larger than a batch, and none at all.
TEST(ReadAhead, GivesTheSamePackets) {
  for (const auto& [packets, bytes] : std::vector<std::pair<std::uint64_t, std::size_t>>{
           {0, 10}, {1, 10}, {100'000, 60}, {10'000, 1'500}, {40, 2'000'000}}) {
    const auto source = read_ahead(std::make_unique<Made>(packets, bytes));
    Made other(packets, bytes);
    expect_same(*source, other);
  }
}

TEST(ReadAhead, GivesTheSamePacketsOfStoredCaptures) {
  for (const auto& file : std::filesystem::directory_iterator(WEFT_TEST_DATA)) {
    if (file.path().extension() != ".zst") continue;
    SCOPED_TRACE(file.path());
    const auto source = read_ahead(open_capture(file.path()));
    expect_same(*source, *open_capture(file.path()));
  }
}

TEST(ReadAhead, AnErrorComesBehindThePacketsBeforeIt) {
  const auto source = read_ahead(std::make_unique<Made>(20'000, 100, true));
  RawPacket packet;
  for (int one = 0; one < 20'000; ++one) ASSERT_TRUE(source->next(packet));
  EXPECT_THROW((void)source->next(packet), std::runtime_error);
  EXPECT_FALSE(source->next(packet));
}

TEST(ReadAhead, MayBeDestroyedBeforeTheEnd) {
  for (const int taken : {0, 1, 10'000}) {
    const auto source = read_ahead(std::make_unique<Made>(1'000'000, 100));
    RawPacket packet;
    for (int one = 0; one < taken; ++one) ASSERT_TRUE(source->next(packet));
  }
}

}  // namespace
}  // namespace weft::capture::test
