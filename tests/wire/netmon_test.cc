// Files of Microsoft Network Monitor: the header, and records of each version.
#include "wire/netmon.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "wire/link.h"

namespace weft::wire {
namespace {

using Content = std::vector<std::byte>;

template <typename T>
void put(Content& out, T value) {
  out.resize(out.size() + sizeof value);
  store_le(out.data() + out.size() - sizeof value, value);
}

// 2026-11-24 09:08:07.006, a Tuesday.
Content header(std::string_view magic, std::uint8_t major, std::uint8_t minor) {
  Content out;
  for (const char one : magic) out.push_back(static_cast<std::byte>(one));
  put(out, minor);
  put(out, major);
  put(out, std::uint16_t{1});
  for (const int part : {2026, 11, 2, 24, 9, 8, 7, 6}) put(out, static_cast<std::uint16_t>(part));
  put(out, std::uint32_t{4711});
  out.resize(NetmonHeader::header_bytes);
  return out;
}

constexpr std::int64_t start_ns = 1'795'511'287'006'000'000;

TEST(Netmon, TheHeaderHasTheTimeAndThePlaceOfTheTable) {
  const auto read = NetmonHeader::parse(header("GMBU", 2, 0));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->start_ns, start_ns);
  EXPECT_EQ(read->table_at, 4711U);
  EXPECT_EQ(read->network, 1U);
}

TEST(Netmon, OtherFilesAreRefused) {
  EXPECT_EQ(NetmonHeader::parse(header("GMBX", 2, 0)).error(), WireError::bad_key);
  EXPECT_EQ(NetmonHeader::parse(header("GMBU", 1, 0)).error(), WireError::bad_version);
  EXPECT_EQ(NetmonHeader::parse(header("GMBU", 2, 4)).error(), WireError::bad_version);
  EXPECT_EQ(NetmonHeader::parse(header("RTSS", 2, 0)).error(), WireError::bad_version);
  Content cut = header("GMBU", 2, 0);
  cut.pop_back();
  EXPECT_EQ(NetmonHeader::parse(cut).error(), WireError::truncated);
}

TEST(Netmon, AnImpossibleDateIsTheBeginningOfTime) {
  Content bytes = header("GMBU", 2, 0);
  bytes[10] = std::byte{13};  // the month
  EXPECT_EQ(NetmonHeader::parse(bytes)->start_ns, 0);
}

TEST(Netmon, RecordsOfVersionOneHaveMilliseconds) {
  const auto read = NetmonHeader::parse(header("RTSS", 1, 1));
  ASSERT_TRUE(read);
  Content bytes;
  put(bytes, std::uint32_t{250});
  put(bytes, std::uint16_t{90});
  put(bytes, std::uint16_t{3});
  EXPECT_EQ(read->record_bytes(bytes).value(), 11U);
  bytes.resize(11);
  EXPECT_EQ(read->record(bytes), (NetmonRecord{.time_ns = start_ns + 250'000'000,
                                               .network = 1,
                                               .record_bytes = 11,
                                               .packet_at = 8,
                                               .captured_bytes = 3,
                                               .original_bytes = 90}));
  bytes.resize(7);
  EXPECT_EQ(read->record_bytes(bytes).error(), WireError::truncated);
}

Content record(std::uint64_t since_us, std::uint32_t captured) {
  Content bytes;
  put(bytes, since_us);
  put(bytes, std::uint32_t{90});
  put(bytes, captured);
  bytes.resize(bytes.size() + captured);
  return bytes;
}

TEST(Netmon, RecordsOfVersionTwoHaveATrailerByTheirMinorVersion) {
  // Network, process and time of day: 1 ms and 300 ns after 1970.
  constexpr std::uint64_t file_time = 116'444'736'000'000'000 + 10'003;
  for (std::uint8_t minor = 0; minor <= 3; ++minor) {
    const auto read = NetmonHeader::parse(header("GMBU", 2, minor));
    ASSERT_TRUE(read);
    Content bytes = record(1500, 5);
    const Content head(bytes.begin(), bytes.begin() + 16);
    if (minor >= 1) put(bytes, std::uint16_t{0xE000 | 247});
    if (minor >= 2) put(bytes, std::uint32_t{77});
    if (minor >= 3) {
      put(bytes, file_time);
      put(bytes, std::uint8_t{0});
    }
    EXPECT_EQ(read->record_bytes(head).value(), bytes.size());
    const NetmonRecord seen = read->record(bytes);
    EXPECT_EQ(seen.captured_bytes, 5U);
    EXPECT_EQ(seen.packet_at, 16U);
    EXPECT_EQ(seen.original_bytes, 90U);
    EXPECT_EQ(seen.network, minor == 0 ? 1 : 0xE000 | 247);
    EXPECT_EQ(seen.time_ns, minor < 3 ? start_ns + 1'500'000 : 1'000'300);
  }
}

TEST(Netmon, TimesThatDoNotFitDoNotOverflow) {
  const auto read = NetmonHeader::parse(header("GMBU", 2, 0));
  ASSERT_TRUE(read);
  EXPECT_GT(read->record(record(~std::uint64_t{0}, 0)).time_ns, start_ns);
}

TEST(Netmon, NetworksAreLinkTypes) {
  EXPECT_EQ(NetmonHeader::link_type_of(1), link_type::ethernet);
  EXPECT_EQ(NetmonHeader::link_type_of(0xE000 | 247), link_type::infiniband);
  EXPECT_EQ(NetmonHeader::link_type_of(6), NetmonHeader::unknown_link);
  EXPECT_EQ(NetmonHeader::link_type_of(0xFFFD), NetmonHeader::unknown_link);
}

}  // namespace
}  // namespace weft::wire
