#include "weft/capture/chunk_lists.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace weft::capture {
namespace {

Assembled text(std::string_view characters) {
  return Assembled(std::as_bytes(std::span(characters)));
}

std::string text(const Assembled& assembled) {
  std::string characters;
  for (const std::byte byte : assembled.bytes()) characters += static_cast<char>(byte);
  return characters;
}

// RFC 8166 §3.4.5: positions count in the whole message.
TEST(Splice, PutsEachChunkAtItsPosition) {
  const auto spliced =
      splice(text("1111111122223333"), {{8, text("ABCDEFGH")}, {20, text("abcdefgh")}});
  EXPECT_EQ(spliced.fault, SpliceFault::none);
  EXPECT_EQ(text(spliced.message), "11111111ABCDEFGH2222abcdefgh3333");
}

TEST(Splice, PutsThreeChunks) {
  const auto spliced =
      splice(text("11112222"), {{4, text("AAAA")}, {8, text("BBBB")}, {16, text("CCCC")}});
  EXPECT_EQ(text(spliced.message), "1111AAAABBBB2222CCCC");
}

// RFC 8166 §3.4.5.2
TEST(Splice, RoundsChunksUp) {
  for (std::size_t length = 1; length <= 9; ++length) {
    const std::string chunk(length, 'x');
    const auto spliced = splice(text("1111TTTT"), {{4, text(chunk)}});
    const std::string pad((4 - length % 4) % 4, '\0');
    EXPECT_EQ(text(spliced.message), "1111" + chunk + pad + "TTTT");
  }
}

TEST(Splice, CarriesFlaws) {
  Assembled chunk = text("AA");
  chunk.append_flawed(2, Flaw::missing);
  const auto spliced = splice(text("11112222"), {{4, chunk}, {12, text("BBBB")}});
  EXPECT_EQ(spliced.message.flaws(), (std::vector<FlawedRange>{{6, 8, Flaw::missing}}));
  EXPECT_EQ(spliced.message.size(), 16U);
}

TEST(Splice, NamesPositionsThatCannotBe) {
  const auto beyond = splice(text("1111"), {{8, text("AAAA")}});
  EXPECT_EQ(beyond.fault, SpliceFault::position_beyond_end);
  EXPECT_EQ(beyond.position, 8U);
  EXPECT_EQ(text(beyond.message), "1111");
  const auto inside = splice(text("11112222"), {{4, text("AAAAAAAA")}, {8, text("BBBB")}});
  EXPECT_EQ(inside.fault, SpliceFault::position_inside_chunk);
  EXPECT_EQ(text(inside.message), "1111AAAAAAAA2222");
}

TEST(ChunkLists, KnowsThePositionZeroChunk) {
  ChunkLists lists;
  EXPECT_TRUE(lists.empty());
  lists.reads = {{4, {}}, {0, {}}};
  EXPECT_TRUE(lists.has_position_zero());
  lists.reads.pop_back();
  EXPECT_FALSE(lists.has_position_zero());
  EXPECT_EQ(length_of({{1, 10, 0}, {2, 20, 0}}), 30U);
}

}  // namespace
}  // namespace weft::capture
