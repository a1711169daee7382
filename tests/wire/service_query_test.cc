#include "wire/service_query.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

std::vector<std::byte> bytes_of(const ServiceQuery& query) {
  std::vector<std::byte> bytes(query.size());
  query.emit(bytes);
  return bytes;
}

ServiceQuery reply(Bytes private_data) {
  return {.kind = ServiceQuery::Kind::reply,
          .status = ServiceQuery::Status::rejected,
          .identification = 0x01020304,
          .queue_pair = 0xABCDEF,
          .queue_key = 0x01234567,
          .private_data = private_data};
}

TEST(ServiceQuery, IsWhatItWasMadeOf) {
  std::array<std::byte, ServiceQuery::max_private_data_bytes> data;
  data.fill(std::byte{7});
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, data.size()}) {
    const auto written = bytes_of(reply(Bytes(data).first(bytes)));
    EXPECT_EQ(written.size(), ServiceQuery::header_bytes + bytes);
    const auto parsed = ServiceQuery::parse(written);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->kind, ServiceQuery::Kind::reply);
    EXPECT_EQ(parsed->status, ServiceQuery::Status::rejected);
    EXPECT_EQ(parsed->identification, 0x01020304U);
    EXPECT_EQ(parsed->queue_pair, 0xABCDEFU);
    EXPECT_EQ(parsed->queue_key, 0x01234567U);
    EXPECT_TRUE(std::equal(parsed->private_data.begin(), parsed->private_data.end(), data.begin(),
                           data.begin() + static_cast<std::ptrdiff_t>(bytes)));
  }
}

TEST(ServiceQuery, StandsOnTheWireInNetworkOrder) {
  EXPECT_EQ(bytes_of(reply("aabb"_hex)),
            copy_of("5765667455440001 02 02 02 00 01020304 00abcdef 01234567 aabb"_hex));
}

TEST(ServiceQuery, AShortOneIsNone) {
  const std::array<std::byte, 4> data{};
  const auto written = bytes_of(reply(data));
  for (std::size_t bytes = 0; bytes < written.size(); ++bytes) {
    const auto parsed = ServiceQuery::parse(Bytes(written).first(bytes));
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error(), WireError::truncated);
  }
}

TEST(ServiceQuery, SomethingElseIsNone) {
  auto written = bytes_of(reply({}));
  written[7] ^= std::byte{1};
  EXPECT_EQ(ServiceQuery::parse(written).error(), WireError::bad_key);
  written[7] ^= std::byte{1};
  written[10] = std::byte{255};
  written.resize(300);
  EXPECT_FALSE(ServiceQuery::parse(written)) << "more private data than there may be";
}

}  // namespace
}  // namespace weft::wire
