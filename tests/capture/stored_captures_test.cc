// Captures of Linux's software iWARP (siw) between two machines, against what the programs that
// made them printed: sizes, checksums, strings, completions.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "capture/stored_capture.h"

namespace weft::capture::test {
namespace {

TEST(StoredCaptures, SendsOfAllSizesHaveTheirChecksums) {
  const ReadCapture read("siw_sizes");
  ASSERT_EQ(read.analysis.connections().size(), 7U);
  expect_messages(read.traffic.sends, 0, sent);
  expect_messages(read.traffic.sends, 3, std::span(sent).first(18));
  expect_messages(read.traffic.sends, 4, sent_inline);
  for (const auto& [key, message] : read.traffic.sends) {
    const bool solicited = std::get<0>(key) == 3;
    if (std::get<0>(key) <= 4) {
      EXPECT_EQ(message.kind, solicited ? SendKind::solicited : SendKind::plain);
    }
  }
  EXPECT_TRUE(read.traffic.violations.empty());
  EXPECT_EQ(read.traffic.lost_bytes, 0U);
}

TEST(StoredCaptures, WritesOfAllSizesHaveTheirChecksums) {
  const ReadCapture read("siw_sizes");
  expect_messages(read.traffic.writes, 1, sent);
  for (const auto& [key, message] : read.traffic.writes) {
    // Each a byte further than the one before.
    EXPECT_EQ(message.key, 0x37fbb300U);
    EXPECT_EQ(message.address, 0x55d1fd519000U + std::get<2>(key) - 1);
  }
}

TEST(StoredCaptures, ReadsOfAllSizesHaveTheirChecksumsAndTheirSource) {
  const ReadCapture read("siw_sizes");
  expect_messages(read.traffic.reads, 2, read_back);
  EXPECT_EQ(read.traffic.unknown_answers, 0U);
  for (const auto& [key, message] : read.traffic.reads) {
    EXPECT_EQ(message.key, 0xec047a00U);
    EXPECT_EQ(message.address, 0x55d1fd52b000U + std::get<2>(key) - 1);
  }
}

TEST(StoredCaptures, SendWithInvalidateNamesTheKey) {
  const ReadCapture read("siw_sizes");
  expect_messages(read.traffic.sends, 5, std::array<Expected, 1>{{{100, 0x6078346b}}});
  const auto& message = read.traffic.sends.at({5, Side::a, 1});
  EXPECT_EQ(message.kind, SendKind::invalidate);
  EXPECT_NE(message.invalidated_key, 0U);
}

// rping: the server reads the client's string and writes it back.
class Rping : public testing::TestWithParam<const char*> {};

TEST_P(Rping, StringsAreReadAndWrittenBack) {
  const ReadCapture read(GetParam());
  ASSERT_EQ(read.analysis.connections().size(), 1U);
  EXPECT_EQ(read.connection(0).end, Connection::End::closed);
  EXPECT_EQ(read.connection(0).beginning, Connection::Beginning::handshake);
  EXPECT_EQ(read.connection(0).crc, std::string(GetParam()) == "siw_crc_rping");
  ASSERT_EQ(read.traffic.reads.size(), 5U);
  ASSERT_EQ(read.traffic.writes.size(), 5U);
  EXPECT_EQ(read.operations.count(Operation::Kind::send), 20U);
  for (std::uint64_t i = 0; i < 5; ++i) {
    std::string expected = "rdma-ping-" + std::to_string(i) + ": ";
    for (std::size_t at = 0; expected.size() < 63; ++at) {
      // The alphabet of rping starts one character further with each ping.
      expected += static_cast<char>('A' + (i + at) % ('z' - 'A' + 1));
    }
    for (const auto* messages : {&read.traffic.reads, &read.traffic.writes}) {
      const auto& message = messages->at({0, Side::b, i + 1});
      EXPECT_TRUE(message.whole());
      std::string text(reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size());
      EXPECT_EQ(text.substr(0, text.find('\0')), expected);
    }
  }
  EXPECT_TRUE(read.traffic.violations.empty());
}

INSTANTIATE_TEST_SUITE_P(All, Rping,
                         testing::Values("siw_rping", "siw_crc_rping", "siw_rping_ipv6"));

struct PerfCase {
  ConnectionId connection;
  std::size_t count;
  std::size_t bytes;
};

void expect_bulk(const ReadCapture& read, Operation::Kind kind) {
  for (const PerfCase& perf : {PerfCase{1, 20, 64}, PerfCase{3, 20, 4096}, PerfCase{5, 8, 65536},
                               PerfCase{7, 5, 262144}}) {
    std::size_t count = 0;
    for (const Operation& operation : read.operations.operations) {
      if (operation.connection != perf.connection || operation.kind != kind) continue;
      EXPECT_EQ(operation.outcome, Operation::Outcome::complete);
      EXPECT_EQ(operation.bytes, perf.bytes);
      EXPECT_GE(operation.latency_ns(), 0);
      ++count;
    }
    EXPECT_EQ(count, perf.count) << perf.bytes;
  }
  EXPECT_EQ(read.analysis.connections().size(), 8U);
  EXPECT_EQ(read.traffic.lost_bytes, 0U);
  EXPECT_TRUE(read.traffic.violations.empty());
}

TEST(StoredCaptures, PerftestWritesAreCounted) {
  expect_bulk(ReadCapture("siw_perf_write"), Operation::Kind::write);
}

TEST(StoredCaptures, PerftestReadsAreCounted) {
  expect_bulk(ReadCapture("siw_perf_read"), Operation::Kind::read);
}

TEST(StoredCaptures, TerminatesSayWhatWasRefused) {
  const ReadCapture read("siw_errors");
  ASSERT_EQ(read.analysis.connections().size(), 9U);
  struct Code {
    std::uint8_t layer, type, code;
  };
  // Wrong rkey by write and read, out of bounds by write and read, no right to write; a Send that
  // is too long and one that finds no receive look the same.
  constexpr std::array<Code, 7> expected{
      {{1, 1, 0}, {0, 1, 0}, {1, 1, 1}, {0, 1, 1}, {1, 1, 0}, {1, 2, 2}, {1, 2, 2}}};
  ASSERT_EQ(read.traffic.refusals.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(read.traffic.refusals[i].layer, expected[i].layer) << i;
    EXPECT_EQ(read.traffic.refusals[i].type, expected[i].type) << i;
    EXPECT_EQ(read.traffic.refusals[i].code, expected[i].code) << i;
  }
}

TEST(StoredCaptures, RefusedOperationsAreMarked) {
  const ReadCapture read("siw_errors");
  std::size_t refused = 0;
  for (const Operation& operation : read.operations.operations) {
    if (operation.outcome == Operation::Outcome::refused) ++refused;
  }
  EXPECT_EQ(refused, 5U) << "two reads and three writes; sends are not named by a Terminate";
}

}  // namespace
}  // namespace weft::capture::test
