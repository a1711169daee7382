// A SegmentTable fed with InfiniBand packets by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "support/random.h"
#include "weft/capture/reassembly.hpp"

namespace weft::capture {
namespace {

using Place = IbFragment::Place;
using Verdict = SegmentTable::Verdict;
using test::pattern;

constexpr std::uint32_t psn_mask = 0xFFFFFF;
constexpr std::uint32_t handle = 0x1234;
constexpr std::uint64_t address = 0x7000'0000'0000;

struct Packet {
  IbFragment fragment;
  std::uint64_t begin = 0;  // of its bytes in the segment
};

// The packets of one Write or of the answer to one Read (with the request in front).
std::vector<Packet> packets(Bytes bytes, std::uint64_t begin, std::uint64_t end, std::uint32_t psn,
                            std::uint64_t mtu, bool read) {
  std::vector<Packet> made;
  const IbFragment::Reth reth{address + begin, handle, static_cast<std::uint32_t>(end - begin)};
  if (read) made.push_back({{psn, Place::only, true, reth, {}}, begin});
  for (std::uint64_t at = begin; at < end; at += mtu, psn = (psn + 1) & psn_mask) {
    const bool first = at == begin;
    const bool last = at + mtu >= end;
    const Place place =
        first ? (last ? Place::only : Place::first) : (last ? Place::last : Place::middle);
    const auto reth_here = first && !read ? std::optional(reth) : std::nullopt;
    made.push_back({{psn, place, read, reth_here, bytes.subspan(at, std::min(mtu, end - at))}, at});
  }
  return made;
}

// Fills one segment by sub-segments of at most `sub_bytes`.
std::vector<Packet> transfer(Bytes bytes, std::uint64_t sub_bytes, std::uint32_t psn,
                             std::uint64_t mtu, bool read) {
  std::vector<Packet> made;
  for (std::uint64_t at = 0; at < bytes.size(); at += sub_bytes) {
    const auto end = std::min<std::uint64_t>(at + sub_bytes, bytes.size());
    for (const Packet& packet : packets(bytes, at, end, psn, mtu, read)) made.push_back(packet);
    psn = (psn + static_cast<std::uint32_t>((end - at + mtu - 1) / mtu)) & psn_mask;
  }
  return made;
}

struct IbFeed : testing::TestWithParam<bool> {
  Assembled result(std::size_t size, const std::vector<Packet>& feed) {
    Reassembly model;
    SegmentTable& table = model.memory_of(0, Side::a);
    table.add({{.handle = handle, .length = static_cast<std::uint32_t>(size), .offset = address}});
    for (const Packet& packet : feed) table.add_ib_fragment(packet.fragment);
    return table.find(handle)->take();
  }
};

INSTANTIATE_TEST_SUITE_P(, IbFeed, testing::Bool(), [](const auto& test_case) {
  return std::string(test_case.param ? "Read" : "Write");
});

TEST_P(IbFeed, LengthsOfEveryRemainder) {
  for (const std::uint64_t base : {0U, 256U, 1024U, 4096U}) {
    for (std::uint64_t more = 1; more <= 9; ++more) {
      const auto bytes = pattern(base + more);
      EXPECT_EQ(result(bytes.size(), transfer(bytes, 3000, 5, 256, GetParam())), Assembled(bytes));
    }
  }
}

TEST_P(IbFeed, SequenceNumbersWrapAtEveryFragment) {
  const auto bytes = pattern(2500);
  const auto count = transfer(bytes, 1000, 0, 256, GetParam()).size();
  for (std::uint32_t back = 0; back <= count; ++back) {
    const std::uint32_t psn = (0U - back) & psn_mask;
    EXPECT_EQ(result(bytes.size(), transfer(bytes, 1000, psn, 256, GetParam())), Assembled(bytes))
        << "first PSN " << psn;
  }
}

TEST_P(IbFeed, RepeatsChangeNothing) {
  const auto bytes = pattern(2500);
  auto feed = transfer(bytes, 1000, 77, 256, GetParam());
  const auto once = feed;
  feed.insert(feed.end(), once.begin(), once.end());
  EXPECT_EQ(result(bytes.size(), feed), Assembled(bytes));
}

// Packets with an address come first, the others in any order.
TEST_P(IbFeed, FragmentsInAnyOrder) {
  const auto bytes = pattern(5000);
  for (const std::uint64_t seed : test::seeds(30)) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    auto feed = transfer(bytes, 2000, psn_mask - 4, 256, GetParam());
    const auto addressed = std::stable_partition(
        feed.begin(), feed.end(), [](const Packet& p) { return p.fragment.reth.has_value(); });
    for (auto at = addressed; at != feed.end(); ++at) {
      const auto left = static_cast<std::uint64_t>(feed.end() - at);
      std::swap(*at, *(at + static_cast<std::ptrdiff_t>(random.below(left))));
    }
    EXPECT_EQ(result(bytes.size(), feed), Assembled(bytes));
  }
}

// Without the packet that has the address nothing behind it has a place either.
TEST_P(IbFeed, EachPacketDroppedIsTheRangeThatIsMissing) {
  const auto bytes = pattern(2500);
  const auto whole = transfer(bytes, 1000, 9, 256, GetParam());
  for (std::size_t drop = 0; drop < whole.size(); ++drop) {
    auto feed = whole;
    feed.erase(feed.begin() + static_cast<std::ptrdiff_t>(drop));
    const auto& lost = whole[drop];
    const bool addressed = lost.fragment.reth.has_value();
    const std::uint64_t sub_end = std::min<std::uint64_t>(lost.begin / 1000 * 1000 + 1000, 2500);
    const std::uint64_t end = addressed ? sub_end : lost.begin + lost.fragment.bytes.size();
    const Assembled taken = result(bytes.size(), feed);
    ASSERT_EQ(taken.flaws(), (std::vector<FlawedRange>{{lost.begin, end, Flaw::missing}}))
        << "without packet " << drop;
    auto expected = bytes;
    std::fill(expected.begin() + static_cast<std::ptrdiff_t>(lost.begin),
              expected.begin() + static_cast<std::ptrdiff_t>(end), std::byte{0});
    EXPECT_TRUE(std::ranges::equal(taken.bytes(), expected)) << "without packet " << drop;
  }
}

TEST_P(IbFeed, SubSegmentsOutOfOrderGoWhereTheirAddressSays) {
  const auto bytes = pattern(2000);
  auto feed = packets(bytes, 1000, 2000, 50, 256, GetParam());
  for (const Packet& packet : packets(bytes, 0, 1000, 54, 256, GetParam())) feed.push_back(packet);
  EXPECT_EQ(result(bytes.size(), feed), Assembled(bytes));
}

// A requester that lost an answer asks for the rest under the PSN of what it lost.
TEST(IbFeedRead, TheRestIsReadAgain) {
  const auto bytes = pattern(1500);
  Reassembly model;
  SegmentTable& table = model.memory_of(0, Side::a);
  table.add({{.handle = handle, .length = 1500, .offset = address}});
  auto feed = packets(bytes, 0, 1500, 10, 256, true);
  feed.resize(3);  // request, first, one middle
  for (const Packet& packet : packets(bytes, 512, 1500, 12, 256, true)) feed.push_back(packet);
  for (const Packet& packet : feed) table.add_ib_fragment(packet.fragment);
  EXPECT_EQ(table.find(handle)->take(), Assembled(bytes));
}

TEST(IbFeedVerdict, TellsWhyAPacketHasNoPlace) {
  Reassembly model;
  SegmentTable& table = model.memory_of(0, Side::a);
  table.add({{.handle = handle, .length = 1000, .offset = address}});
  const auto bytes = pattern(1000);
  const auto feed = packets(bytes, 0, 1000, 10, 256, false);
  EXPECT_EQ(table.add_ib_fragment(feed[1].fragment).verdict, Verdict::no_sub_segment);
  auto foreign = feed[0].fragment;
  foreign.reth->key = 99;
  EXPECT_EQ(table.add_ib_fragment(foreign).verdict, Verdict::no_segment);
  EXPECT_EQ(table.add_ib_fragment(feed[0].fragment).verdict, Verdict::placed);
  auto odd = feed[1].fragment;
  odd.bytes = odd.bytes.first(100);
  EXPECT_EQ(table.add_ib_fragment(odd).verdict, Verdict::wrong_length);
  auto early_last = feed[3].fragment;
  early_last.psn = 11;
  EXPECT_EQ(table.add_ib_fragment(early_last).verdict, Verdict::wrong_length);
  auto behind = feed[1].fragment;
  behind.psn = 14;
  EXPECT_EQ(table.add_ib_fragment(behind).verdict, Verdict::no_sub_segment);
  EXPECT_EQ(table.find(handle)->present(), 256U);
}

}  // namespace
}  // namespace weft::capture
