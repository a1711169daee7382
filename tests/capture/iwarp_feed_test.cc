// A SegmentTable fed with iWARP's tagged segments by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"
#include "weft/capture/reassembly.hpp"

namespace weft::capture {
namespace {

using Verdict = SegmentTable::Verdict;
using test::pattern;

constexpr std::uint32_t source = 0x50;
constexpr std::uint32_t sink = 0x60;
constexpr std::uint64_t source_offset = 0xA000'0000;
constexpr std::uint64_t sink_offset = 0x100;

struct IwarpFeed : testing::Test {
  Reassembly model;
  SegmentTable& table = model.memory_of(0, Side::a);

  static wire::ReadRequest request(std::uint64_t begin, std::uint32_t size,
                                   std::uint64_t at = sink_offset) {
    return {.sink_stag = sink,
            .sink_offset = at,
            .size_bytes = size,
            .source_stag = source,
            .source_offset = source_offset + begin};
  }
  void add(std::uint32_t length) {
    table.add({{.handle = source, .length = length, .offset = source_offset}});
  }
  // The answer to a request at `at` of the sink, in pieces.
  static std::vector<IwarpFragment> answer(Bytes bytes, std::uint64_t at = sink_offset,
                                           std::uint64_t piece = 100) {
    std::vector<IwarpFragment> made;
    for (std::uint64_t begin = 0; begin < bytes.size(); begin += piece) {
      const auto size = std::min<std::uint64_t>(piece, bytes.size() - begin);
      made.push_back(
          {sink, at + begin, true, begin + size == bytes.size(), bytes.subspan(begin, size)});
    }
    return made;
  }
};

TEST(ReadMapping, TranslatesWhatTheSinkHas) {
  const ReadMapping mapping({.sink_stag = 1,
                             .sink_offset = 100,
                             .size_bytes = 10,
                             .source_stag = 2,
                             .source_offset = 5000});
  EXPECT_FALSE(mapping.contains(99));
  EXPECT_TRUE(mapping.contains(100));
  EXPECT_TRUE(mapping.contains(109));
  EXPECT_FALSE(mapping.contains(110));
  EXPECT_EQ(mapping.source_of(103), 5003U);
}

TEST_F(IwarpFeed, WritesGoToTheirOffset) {
  const auto bytes = pattern(250);
  add(250);
  EXPECT_EQ(
      table
          .add_iwarp_fragment({source, source_offset + 100, false, true, Bytes(bytes).subspan(100)})
          .verdict,
      Verdict::placed);
  table.add_iwarp_fragment({source, source_offset, false, false, Bytes(bytes).first(100)});
  EXPECT_EQ(table.find(source)->take(), Assembled(bytes));
}

TEST_F(IwarpFeed, AnswersGoFromSinkToSource) {
  for (std::uint32_t length = 1; length <= 9; ++length) {
    table.reset();
    const auto bytes = pattern(length);
    add(length);
    EXPECT_TRUE(table.add_iwarp_request(request(0, length)));
    EXPECT_EQ(table.source_of(sink, sink_offset), source_offset);
    EXPECT_EQ(table.source_of(sink, sink_offset + length), std::nullopt);
    for (const auto& fragment : answer(bytes, sink_offset, 2)) table.add_iwarp_fragment(fragment);
    EXPECT_EQ(table.find(source)->take(), Assembled(bytes));
  }
}

TEST_F(IwarpFeed, SeveralRequestsFillOneSegment) {
  const auto bytes = pattern(600);
  add(600);
  table.add_iwarp_request(request(0, 300));
  table.add_iwarp_request(request(300, 300, sink_offset + 5000));
  for (const auto& fragment : answer(Bytes(bytes).subspan(300), sink_offset + 5000)) {
    table.add_iwarp_fragment(fragment);
  }
  for (const auto& fragment : answer(Bytes(bytes).first(300))) table.add_iwarp_fragment(fragment);
  EXPECT_EQ(table.find(source)->take(), Assembled(bytes));
}

TEST_F(IwarpFeed, ASinkIsUsedAgain) {
  const auto bytes = pattern(600);
  add(600);
  table.add_iwarp_request(request(0, 300));
  table.add_iwarp_request(request(300, 300));
  for (const auto& fragment : answer(Bytes(bytes).first(300))) table.add_iwarp_fragment(fragment);
  for (const auto& fragment : answer(Bytes(bytes).subspan(300))) table.add_iwarp_fragment(fragment);
  EXPECT_EQ(table.find(source)->take(), Assembled(bytes));
}

// Two requests with one sink, and each fragment of their answers missing once: whatever is there is
// in its place.
TEST_F(IwarpFeed, ASinkIsUsedAgainAndSomethingIsMissing) {
  const auto bytes = pattern(600);
  auto whole = answer(Bytes(bytes).first(300));
  for (const auto& fragment : answer(Bytes(bytes).subspan(300))) whole.push_back(fragment);
  for (std::size_t drop = 0; drop < whole.size(); ++drop) {
    table.reset();
    add(600);
    table.add_iwarp_request(request(0, 300));
    table.add_iwarp_request(request(300, 300));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (i != drop) table.add_iwarp_fragment(whole[i]);
    }
    const Assembled taken = table.find(source)->take();
    EXPECT_EQ(taken.flaws(),
              (std::vector<FlawedRange>{{drop * 100, drop * 100 + 100, Flaw::missing}}));
    auto expected = bytes;
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(drop * 100), 100, std::byte{0});
    EXPECT_TRUE(std::ranges::equal(taken.bytes(), expected)) << "without fragment " << drop;
  }
}

TEST_F(IwarpFeed, FragmentsInAnyOrderAndTwice) {
  const auto bytes = pattern(900);
  for (const std::uint64_t seed : test::seeds(20)) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    table.reset();
    add(900);
    table.add_iwarp_request(request(0, 900));
    auto feed = answer(bytes);
    const auto once = feed;
    feed.insert(feed.end(), once.begin(), once.end());
    for (std::size_t i = feed.size(); i > 1; --i) std::swap(feed[i - 1], feed[random.below(i)]);
    for (const auto& fragment : feed) table.add_iwarp_fragment(fragment);
    EXPECT_EQ(table.find(source)->take(), Assembled(bytes));
  }
}

TEST_F(IwarpFeed, TellsWhyAFragmentHasNoPlace) {
  add(100);
  EXPECT_FALSE(table.add_iwarp_request({.sink_stag = sink,
                                        .sink_offset = 0,
                                        .size_bytes = 10,
                                        .source_stag = 99,
                                        .source_offset = 0}));
  EXPECT_EQ(table.add_iwarp_fragment({sink, sink_offset, true, true, {}}).verdict,
            Verdict::no_request);
  EXPECT_EQ(table.add_iwarp_fragment({99, 0, false, true, {}}).verdict, Verdict::no_segment);
}

TEST_F(IwarpFeed, RemovingASegmentLeavesOtherRequestsOfItsSink) {
  add(100);
  Segment* other = table.add({{.handle = 0x70, .length = 100, .offset = 0}}).segment;
  table.add_iwarp_request(request(0, 100));
  table.add_iwarp_request({.sink_stag = sink,
                           .sink_offset = 9000,
                           .size_bytes = 100,
                           .source_stag = 0x70,
                           .source_offset = 0});
  table.remove(other);
  EXPECT_EQ(table.source_of(sink, sink_offset), source_offset);
  EXPECT_EQ(table.source_of(sink, 9000), std::nullopt);
}

}  // namespace
}  // namespace weft::capture
