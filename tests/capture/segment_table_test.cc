#include "weft/capture/segment_table.hpp"

#include <gtest/gtest.h>

#include "support/random.h"
#include "weft/capture/reassembly.hpp"

namespace weft::capture {
namespace {

using test::pattern;

struct SegmentTableTest : testing::Test {
  Reassembly model;
  SegmentTable& table = model.memory_of(0, Side::a);
};

// More than a machine of 32 bits has addresses: a number that must not be cut to 0 there.
TEST(Reassembly, ALargeBudgetIsNeverCut) {
  Reassembly model(std::uint64_t{1} << 32);
  SegmentTable& table = model.memory_of(0, Side::a);
  Segment* segment = table.add({{.handle = 7, .length = 100, .offset = 0}}).segment;
  table.place(7, 0, pattern(100));
  EXPECT_EQ(segment->take(), Assembled(pattern(100)));
}

TEST_F(SegmentTableTest, AddsFindsUpdatesAndRemoves) {
  const auto first = table.add({{.handle = 7, .length = 100, .offset = 1000}});
  EXPECT_FALSE(first.known);
  const auto again = table.add({{.handle = 7, .length = 50, .offset = 1000}});
  EXPECT_TRUE(again.known);
  EXPECT_EQ(again.segment, first.segment);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(table.find(7)->length(), 50U);
  EXPECT_EQ(table.find(7, 1049), first.segment);
  EXPECT_EQ(table.find(7, 1050), nullptr);
  EXPECT_EQ(table.find(8), nullptr);
  EXPECT_TRUE(table.remove(first.segment));
  EXPECT_FALSE(table.remove(nullptr));
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.find(7), nullptr);
}

TEST_F(SegmentTableTest, KeepsSegmentsOfOneHandleApartByAddress) {
  table.add({{.handle = 7, .length = 100, .offset = 1000}});
  const auto other = table.add({{.handle = 7, .length = 100, .offset = 5000}});
  EXPECT_FALSE(other.replaced);
  EXPECT_EQ(table.size(), 2U);
  const auto bytes = pattern(100);
  EXPECT_EQ(table.place(7, 5000, bytes).segment, other.segment);
  EXPECT_TRUE(table.find(7, 5000)->complete());
  EXPECT_EQ(table.find(7, 1000)->reached(), 0U);
}

TEST_F(SegmentTableTest, ForgetsWhatWasThereWhenMemoryIsRegisteredAnew) {
  table.add({{.handle = 7, .length = 100, .offset = 1000}, SegmentUse::read, 4, 1});
  table.place(7, 1000, pattern(100));
  const auto anew =
      table.add({{.handle = 7, .length = 80, .offset = 1000}, SegmentUse::write, 0, 2});
  EXPECT_TRUE(anew.replaced);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(anew.segment->reached(), 0U);
  EXPECT_EQ(anew.segment->length(), 80U);
}

// A retransmitted call may give its memory a greater length, up to where other memory is.
TEST_F(SegmentTableTest, ForgetsWhatALongerSegmentOverlaps) {
  table.add({{.handle = 7, .length = 100, .offset = 1000}, SegmentUse::read, 4, 1});
  table.add({{.handle = 7, .length = 100, .offset = 1200}, SegmentUse::read, 4, 2});
  table.add({{.handle = 7, .length = 100, .offset = 5000}, SegmentUse::read, 4, 3});
  table.place(7, 1200, pattern(100));
  const auto longer =
      table.add({{.handle = 7, .length = 250, .offset = 1000}, SegmentUse::read, 4, 1});
  EXPECT_TRUE(longer.known);
  EXPECT_TRUE(longer.replaced);
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(longer.segment->length(), 250U);
  EXPECT_EQ(table.find(7, 1220), longer.segment);
  EXPECT_EQ(longer.segment->reached(), 0U);
  EXPECT_NE(table.find(7, 5000), longer.segment);
  const auto again =
      table.add({{.handle = 7, .length = 250, .offset = 1000}, SegmentUse::read, 4, 1});
  EXPECT_TRUE(again.known);
  EXPECT_FALSE(again.replaced);
}

TEST_F(SegmentTableTest, TakesBytesWithAndWithoutPadding) {
  for (std::uint32_t length = 1; length <= 9; ++length) {
    table.reset();
    const auto bytes = pattern(length);
    Segment* segment = table.add({{.handle = 7, .length = length, .offset = 0}}).segment;
    table.place(7, 0, bytes);
    EXPECT_EQ(segment->take(), Assembled(bytes));
    auto padded = bytes;
    padded.resize((length + 3) / 4 * 4);
    EXPECT_EQ(segment->take(Padding::with), Assembled(padded));
  }
}

TEST_F(SegmentTableTest, KeepsNothingBeyondASegment) {
  Segment* segment = table.add({{.handle = 7, .length = 10, .offset = 100}}).segment;
  const auto outcome = table.place(7, 105, pattern(20));
  EXPECT_EQ(outcome.verdict, SegmentTable::Verdict::placed);
  EXPECT_EQ(outcome.placed.bytes.added, 5U);
  EXPECT_EQ(outcome.placed.outside, 15U);
  EXPECT_EQ(segment->present(), 5U);
  EXPECT_EQ(table.place(7, 110, pattern(1)).verdict, SegmentTable::Verdict::no_segment);
  EXPECT_EQ(table.place(7, 99, pattern(1)).verdict, SegmentTable::Verdict::no_segment);
}

TEST_F(SegmentTableTest, SaysWhatTheCaptureCutOff) {
  Segment* segment = table.add({{.handle = 7, .length = 10, .offset = 100}}).segment;
  table.place(7, 100, pattern(4), 6);
  EXPECT_EQ(segment->take().flaws(), (std::vector<FlawedRange>{{4, 10, Flaw::cut}}));
}

TEST_F(SegmentTableTest, ProcessesTheListsOfACallAndItsReply) {
  ChunkLists call;
  call.writes = {{{1, 8, 100}, {2, 8, 200}}, {{3, 8, 300}}};
  call.reply = Chunk{{4, 16, 400}};
  table.process_call(call, 1);
  EXPECT_EQ(table.size(), 4U);
  const auto bytes = pattern(16);
  table.place(1, 100, Bytes(bytes).first(8));
  table.place(2, 200, Bytes(bytes).subspan(8, 3));
  table.place(4, 400, Bytes(bytes).first(5));

  ChunkLists reply;
  reply.writes = {{{1, 8, 100}, {2, 3, 200}}, {{3, 0, 300}}};
  reply.reply = Chunk{{4, 5, 400}};
  const ReplyChunks chunks = table.reply_chunks(reply, 1);
  ASSERT_EQ(chunks.writes.size(), 2U);
  EXPECT_EQ(chunks.writes[0], Assembled(Bytes(bytes).first(11)));
  EXPECT_EQ(chunks.writes[1].size(), 0U) << "an unused chunk";
  EXPECT_TRUE(chunks.writes[1].whole());
  EXPECT_EQ(*chunks.reply, Assembled(Bytes(bytes).first(5)));
  table.remove_call(1);
  EXPECT_EQ(table.size(), 0U);
}

TEST_F(SegmentTableTest, ReportsWhatAReplyClaimsButNobodyWrote) {
  ChunkLists call;
  call.writes = {{{1, 8, 100}}};
  table.process_call(call, 1);
  ChunkLists reply;
  reply.writes = {{{1, 8, 100}, {9, 4, 900}}};
  const ReplyChunks chunks = table.reply_chunks(reply, 1);
  EXPECT_EQ(chunks.writes[0].flaws(), (std::vector<FlawedRange>{{0, 12, Flaw::missing}}));
}

TEST_F(SegmentTableTest, PutsNoMessageTogetherThatIsTooLarge) {
  ChunkLists call;
  call.writes = {{{1, 0xFFFFFFFF, 0}}};
  table.process_call(call, 1);
  const ReplyChunks chunks = table.reply_chunks(call, 1);
  EXPECT_EQ(chunks.writes[0].size(), 0U);
  EXPECT_EQ(chunks.writes[0].flaws(), (std::vector<FlawedRange>{{0, 0xFFFFFFFF, Flaw::dropped}}));
}

TEST_F(SegmentTableTest, ReadChunksAreTheSegmentsOfOnePosition) {
  ChunkLists call;
  call.reads = {{20, {3, 4, 300}}, {4, {1, 4, 100}}, {4, {2, 3, 200}}};
  table.process_call(call, 1);
  const auto bytes = pattern(11);
  table.place(1, 100, Bytes(bytes).first(4));
  table.place(2, 200, Bytes(bytes).subspan(4, 3));
  table.place(3, 300, Bytes(bytes).subspan(7, 4));
  const auto chunks = table.read_chunks(call, 1);
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].position, 4U);
  EXPECT_EQ(chunks[0].bytes, Assembled(Bytes(bytes).first(7)));
  EXPECT_EQ(chunks[1].bytes, Assembled(Bytes(bytes).subspan(7)));
}

TEST(Reassembly, KeepsSidesAndConnectionsApart) {
  Reassembly model;
  const wire::RdmaSegment same{.handle = 7, .length = 4, .offset = 0};
  std::uint64_t seed = 1;
  for (const ConnectionId connection : {0U, 1U}) {
    for (const Side side : {Side::a, Side::b}) model.memory_of(connection, side).add({same});
  }
  EXPECT_EQ(model.size(), 4U);
  for (const ConnectionId connection : {0U, 1U}) {
    for (const Side side : {Side::a, Side::b}) {
      model.memory_of(connection, side).place(7, 0, pattern(4, seed++));
    }
  }
  seed = 1;
  for (const ConnectionId connection : {0U, 1U}) {
    for (const Side side : {Side::a, Side::b}) {
      EXPECT_EQ(model.memory_of(connection, side).find(7)->take(), Assembled(pattern(4, seed++)));
    }
  }
  model.reset(1);
  EXPECT_EQ(model.size(), 2U);
  model.reset();
  EXPECT_EQ(model.size(), 0U);
  EXPECT_EQ(model.budget().used_bytes(), 0U);
}

}  // namespace
}  // namespace weft::capture
