// Records of snoop and ERF: damage, and what is taken for ERF.
#include "wire/record_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::wire {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// Of RFC 1761 §3: original length, included length, record length, drops, seconds, microseconds.
std::vector<std::byte> snoop_record(int included, int whole) {
  return bytes_of(
      {0, 0, 0, 90, 0, 0, 0, included, 0, 0, 0, whole, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7});
}

TEST(SnoopRecords, AreWhatTheRfcDescribes) {
  const auto record = FileRecord::parse_snoop(snoop_record(60, 84));
  ASSERT_TRUE(record);
  EXPECT_EQ(*record, (FileRecord{.time_ns = 2'000'007'000,
                                 .record_bytes = 84,
                                 .packet_at = 24,
                                 .captured_bytes = 60,
                                 .original_bytes = 90}));
}

TEST(SnoopRecords, LengthsThatContradictAreRefused) {
  EXPECT_EQ(FileRecord::parse_snoop(snoop_record(60, 83)).error(), WireError::bad_length);
  EXPECT_EQ(FileRecord::parse_snoop(snoop_record(0, 20)).error(), WireError::bad_length);
  auto cut = snoop_record(60, 84);
  cut.pop_back();
  EXPECT_EQ(FileRecord::parse_snoop(cut).error(), WireError::truncated);
}

TEST(SnoopRecords, OtherVersionsAreRefused) {
  auto header = bytes_of({'s', 'n', 'o', 'o', 'p', 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4});
  ASSERT_TRUE(SnoopHeader::parse(header));
  EXPECT_TRUE(SnoopHeader::parse(header)->is_ethernet());
  header[15] = std::byte{9};
  EXPECT_FALSE(SnoopHeader::parse(header)->is_ethernet());
  header[11] = std::byte{3};
  EXPECT_EQ(SnoopHeader::parse(header).error(), WireError::bad_version);
  header[0] = std::byte{'S'};
  EXPECT_EQ(SnoopHeader::parse(header).error(), WireError::bad_key);
}

// An Ethernet record of 64 bytes at `seconds` and a half.
std::vector<std::byte> erf_record(int seconds, int type = 2, int whole = 64) {
  auto record = bytes_of({0, 0, 0, 0x80, seconds, 0, 0, 0, type, 4, 0, whole, 0, 0, 0, 50});
  record.resize(64);
  return record;
}

std::vector<std::byte> joined(std::initializer_list<std::vector<std::byte>> parts) {
  std::vector<std::byte> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(ErfRecords, HaveTimesWithABinaryPoint) {
  const auto record = FileRecord::parse_erf(erf_record(3));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->time_ns, 3'500'000'000);
  EXPECT_EQ(record->record_bytes, 64U);
  EXPECT_EQ(record->captured_bytes, 64U);
  EXPECT_EQ(record->original_bytes, 68U);  // the header, its padding and 50 bytes
  EXPECT_EQ(FileRecord::parse_erf(erf_record(3, 2, 15)).error(), WireError::bad_length);
}

TEST(ErfRecords, AFileIsRecognisedByGoodRecords) {
  EXPECT_TRUE(begins_like_erf(joined({erf_record(3), erf_record(3), erf_record(4)})));
  // The last one may be cut.
  auto cut = joined({erf_record(3), erf_record(4)});
  cut.resize(100);
  EXPECT_TRUE(begins_like_erf(cut));
  cut.resize(70);
  EXPECT_TRUE(begins_like_erf(cut));
  cut.resize(63);
  EXPECT_FALSE(begins_like_erf(cut));
  EXPECT_FALSE(begins_like_erf({}));
}

TEST(ErfRecords, OtherFilesAreNot) {
  EXPECT_FALSE(begins_like_erf(joined({erf_record(4), erf_record(3)})));
  EXPECT_FALSE(begins_like_erf(joined({erf_record(3), erf_record(4, 99)})));
  EXPECT_FALSE(begins_like_erf(joined({erf_record(3), erf_record(4, 2, 15)})));
  EXPECT_FALSE(begins_like_erf(std::vector<std::byte>(1'000)));
  const std::string text(1'000, 'x');
  EXPECT_FALSE(begins_like_erf(std::as_bytes(std::span(text))));
}

}  // namespace
}  // namespace weft::wire
