// What --extract makes of messages.
#include "capture/rpc/message_extraction.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "support/random.h"

namespace weft::capture::test {
namespace {

using weft::test::pattern;
using Buffer = std::vector<std::byte>;

struct MessageExtractionTest : testing::Test {
  MessageExtractionTest() {
    std::string path = testing::TempDir() + "weft-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error(path);
    out = path;
    directory.emplace(out);
    extraction.emplace(*directory, MessageExtraction::Wanted{[](ConnectionId) { return true; },
                                                             [this](const Operation& message) {
                                                               return !key || message.key == *key;
                                                             }});
  }
  ~MessageExtractionTest() override { std::filesystem::remove_all(out); }

  [[nodiscard]] nlohmann::json finish() {
    extraction->finish();
    directory->finish();
    nlohmann::json index;
    std::ifstream(out / "index.json") >> index;
    return index;
  }
  [[nodiscard]] Buffer content(const nlohmann::json& entry) const {
    std::ifstream in(out / entry["path"].get<std::string>(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const Bytes bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  void write(std::uint64_t message, std::uint32_t written, Bytes bytes) {
    extraction->on_write({.stamp = {.frame = message}}, {.message = message,
                                                         .key = written,
                                                         .address = 0x1000,
                                                         .bytes = bytes,
                                                         .first = true,
                                                         .last = true});
  }

  std::filesystem::path out;
  std::optional<std::uint32_t> key;
  std::optional<ExtractionDirectory> directory;
  std::optional<MessageExtraction> extraction;
};

TEST_F(MessageExtractionTest, ImmediateDataOfIwarpIsAMessageOfItsOwn) {
  const Buffer written = pattern(100);
  const Buffer data{std::byte{0x12}, std::byte{0x34}, std::byte{0x56}, std::byte{0x78},
                    std::byte{0},    std::byte{0},    std::byte{0},    std::byte{9}};
  write(1, 7, written);
  extraction->on_immediate({.stamp = {.frame = 2}}, {.message = 1, .bytes = data});
  const nlohmann::json index = finish();
  ASSERT_EQ(index.size(), 2U);
  EXPECT_EQ(index[0]["type"], "write");
  EXPECT_EQ(content(index[0]), written);
  EXPECT_FALSE(index[0].contains("immediate"));
  EXPECT_EQ(index[1]["type"], "immediate");
  EXPECT_EQ(index[1]["path"], "messages/1/00000002-a-immediate");
  EXPECT_EQ(index[1]["immediate"], 0x12345678);
  EXPECT_EQ(index[1]["first_frame"], 2);
  EXPECT_EQ(index[1]["complete"], true);
  EXPECT_EQ(content(index[1]), data);
}

TEST_F(MessageExtractionTest, ImmediatesOfInfinibandBelongToTheirMessage) {
  const Buffer sent = pattern(50, 2);
  extraction->on_send(
      {},
      {.message = 5, .bytes = sent, .last = true, .has_immediate = true, .immediate = 0xAABBCCDD});
  extraction->on_write({}, {.message = 6,
                            .key = 7,
                            .bytes = {},
                            .first = true,
                            .last = true,
                            .has_immediate = true,
                            .immediate = 1});
  const nlohmann::json index = finish();
  ASSERT_EQ(index.size(), 2U);
  EXPECT_EQ(index[0]["immediate"], 0xAABBCCDD);
  EXPECT_EQ(content(index[0]), sent);
  EXPECT_EQ(index[1]["immediate"], 1);
  EXPECT_EQ(index[1]["bytes"], 0);
}

TEST_F(MessageExtractionTest, LeavesOutWhatIsNotSelected) {
  key = 8;
  write(1, 7, pattern(10));
  write(2, 8, pattern(20));
  write(3, 7, pattern(30));
  const nlohmann::json index = finish();
  ASSERT_EQ(index.size(), 1U);
  EXPECT_EQ(index[0]["message"], 2);
}

TEST_F(MessageExtractionTest, WhatIsOpenOfAClosedConnectionIsWrittenAtOnce) {
  const Buffer part = pattern(10);
  extraction->on_send({.connection = 3, .stamp = {}}, {.message = 1, .bytes = part});
  extraction->on_send({.connection = 4, .stamp = {}}, {.message = 1, .bytes = part});
  extraction->on_close(3);
  EXPECT_TRUE(std::filesystem::exists(out / "messages/4/00000001-a-send.incomplete"));
  EXPECT_FALSE(std::filesystem::exists(out / "messages/5"));
  EXPECT_EQ(finish().size(), 2U);
}

// It is written in pieces, as it may become large.
// If too many Reads are open, the one that was requested first ends.
TEST_F(MessageExtractionTest, TheOldestEndsIfTooManyAreOpen) {
  constexpr std::uint64_t limit = 65'536;
  const auto request = [&](std::uint64_t number, std::uint64_t frame) {
    extraction->on_read_request({.stamp = {.frame = frame}}, {.request = number, .length = 0});
  };
  key = 0;
  request(limit + 5, 1);  // the first one, and the last one in the order of numbers
  for (std::uint64_t i = 1; i < limit; ++i) request(i, i + 1);
  request(limit, limit + 1);
  directory->finish();
  nlohmann::json index;
  std::ifstream(out / "index.json") >> index;
  ASSERT_EQ(index.size(), 1U);
  EXPECT_EQ(index[0]["message"], limit + 5);
}

TEST_F(MessageExtractionTest, TheIndexIsWholeHoweverLong) {
  constexpr std::uint64_t count = 2'000;
  for (std::uint64_t i = 1; i <= count; ++i) write(i, 7, {});
  EXPECT_TRUE(std::filesystem::exists(out / "index.json")) << "a part of it";
  const nlohmann::json index = finish();
  ASSERT_EQ(index.size(), count);
  EXPECT_EQ(index[count - 1]["message"], count);
}

}  // namespace
}  // namespace weft::capture::test
