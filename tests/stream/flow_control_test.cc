// Rings and credits: they neither overflow nor underflow, and there is neither deadlock nor endless
// traffic.
#include "stream/flow_control.h"

#include <gtest/gtest.h>

#include "stream/flow_pair.h"

namespace weft::stream::detail {
namespace {

constexpr std::uint32_t largest_ring = 4 * 1024 * 1024;

std::uint64_t enough_for(std::uint32_t ring) {
  return ring < 100 ? 400 : ring < 10'000 ? 10 * std::uint64_t{ring} : 3 * std::uint64_t{ring};
}

TEST(Word, DecodesWhatWasEncoded) {
  EXPECT_EQ(encode(Kind::data, 1), 1U);
  EXPECT_EQ(encode(Kind::end, 0), 0x1000'0000U);
  EXPECT_EQ(encode(Update{.bytes = 1, .receives = 1, .acknowledged = 1}), 0xA020'0001U);
  for (const Update& update : {Update{}, Update{max_returned_bytes, 0, 2},
                               Update{0, max_returned_receives, 0}, Update{1, 2, 1}}) {
    const auto word = encode(update);
    EXPECT_TRUE(is_update(word));
    EXPECT_EQ(update_of(word), update);
  }
  EXPECT_FALSE(is_update(encode(Kind::map, max_word_value)));
  EXPECT_EQ(kind_of(encode(Kind::map, max_word_value)), Kind::map);
  EXPECT_EQ(value_of(encode(Kind::map, max_word_value)), max_word_value);
}

// Every combination of sizes up to 5, which has all corner cases together.
TEST(FlowControl, SmallestSizesDeliverEverythingInAnyOrderOfEvents) {
  for (std::uint32_t ring = 1; ring <= 5; ++ring) {
    for (std::uint32_t own = 1; own <= 5; own += 2) {
      for (std::uint32_t receives = 1; receives <= 5; ++receives) {
        for (std::uint32_t sends = 1; sends <= 3; ++sends) {
          for (const auto seed : test::seeds(6)) {
            SCOPED_TRACE(test::seed_trace(seed));
            FlowPair pair({own, ring, sends, receives}, 60, seed % 2 ? 60 : 0, seed);
            pair.run(seed % 3 == 0);
            ASSERT_TRUE(pair.complete())
                << "rings " << own << "/" << ring << ", receives " << receives;
          }
        }
      }
    }
  }
}

TEST(FlowControl, EverySizeOfRingDeliversEverything) {
  for (const std::uint32_t ring : {1U, 2U, 3U, 7U, 64U, 4095U, 32'768U, 65'537U, largest_ring}) {
    for (const std::uint32_t own : {1U, 1000U, 32'768U}) {
      if (own == 1 && ring > 4095) continue;  // millions of messages without a new case
      for (const auto seed : test::seeds(2)) {
        SCOPED_TRACE(test::seed_trace(seed));
        FlowPair pair({own, ring, 384, 384}, enough_for(ring), enough_for(own), seed);
        pair.run(seed % 2);
        ASSERT_TRUE(pair.complete()) << "rings " << own << "/" << ring;
      }
    }
  }
}

TEST(FlowControl, EveryNumberOfReceivesDeliversEverything) {
  for (const std::uint32_t receives : {2U, 3U, 4U, 255U, 256U, 511U, 512U, 16'000U, 65'535U}) {
    for (const auto seed : test::seeds(3)) {
      SCOPED_TRACE(test::seed_trace(seed));
      FlowPair pair({700, 1000, 2 + static_cast<std::uint32_t>(seed) * 100, receives}, 200'000,
                    seed == 1 ? 0 : 100'000, seed);
      pair.run();
      ASSERT_TRUE(pair.complete()) << "receives " << receives;
    }
  }
}

// Rings that start with a part of any size grow to their full size, in any order of events.
TEST(FlowControl, RingsThatGrowDeliverEverythingInAnyOrderOfEvents) {
  for (std::uint32_t ring = 2; ring <= 9; ++ring) {
    for (std::uint32_t part = 1; part < ring; ++part) {
      for (std::uint32_t receives = 1; receives <= 5; receives += 2) {
        for (const auto seed : test::seeds(6)) {
          SCOPED_TRACE(test::seed_trace(seed));
          FlowPair pair({1 + part % 4, ring, 3, receives, part}, 90, seed % 2 ? 90 : 0, seed);
          pair.run(seed % 3 == 0);
          ASSERT_TRUE(pair.complete())
              << "ring " << ring << " from " << part << ", receives " << receives;
        }
      }
    }
  }
}

TEST(FlowControl, ARingGrowsToItsFullSizeWhileItsReaderPauses) {
  FlowControl flow({.send_ring_bytes = 100'000'000,
                    .sends = 1000,
                    .peer_ring_bytes = 1'048'576,
                    .peer_receives = 1000,
                    .receive_ring_bytes = 1,
                    .receives = 2,
                    .peer_part_bytes = 32'768});
  std::uint32_t sent = 0;
  int growths = 0;
  while (flow.can_send() || flow.can_grow()) {
    growths += flow.take_growth().has_value();
    const Piece piece = flow.take(10'000);
    EXPECT_EQ(piece.to, sent);
    sent += piece.bytes;
  }
  EXPECT_EQ(sent, 1'048'576U);
  EXPECT_EQ(growths, 5);
}

// Messages that always find room: the part that is used stays as small as it was.
TEST(FlowControl, ARingDoesNotGrowWhereThePartSuffices) {
  FlowControl flow({.send_ring_bytes = 64,
                    .sends = 4,
                    .peer_ring_bytes = 64,
                    .peer_receives = 8,
                    .receive_ring_bytes = 64,
                    .receives = 8,
                    .peer_part_bytes = 8});
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(flow.take(4).bytes, 4U);
    EXPECT_FALSE(flow.can_grow());
    flow.sent(4);
    ASSERT_TRUE(flow.received(encode(Update{.bytes = 4, .receives = 1, .acknowledged = 0})));
    while (flow.next_control()) flow.control_sent();
  }
}

TEST(FlowControl, GrowthContinuesBehindThePart) {
  const FlowSizes sizes{.send_ring_bytes = 64,
                        .sends = 8,
                        .peer_ring_bytes = 20,
                        .peer_receives = 8,
                        .receive_ring_bytes = 20,
                        .receives = 8,
                        .peer_part_bytes = 8,
                        .receive_part_bytes = 8};
  FlowControl from(sizes);
  FlowControl to(sizes);
  ASSERT_EQ(from.take(10).bytes, 8U);
  EXPECT_FALSE(from.can_send());
  ASSERT_TRUE(to.received(encode(Kind::data, 8), 8));
  to.read(3);
  EXPECT_EQ(from.take_growth(), encode(Kind::grow, 16));
  EXPECT_EQ(from.take_growth(), std::nullopt);
  ASSERT_TRUE(to.received(encode(Kind::grow, 16), 0));
  const Piece second = from.take(8);
  EXPECT_EQ(second.to, 8U);
  EXPECT_EQ(second.bytes, 8U);
  ASSERT_TRUE(to.received(encode(Kind::data, 8), 8));
  EXPECT_EQ(to.unread().bytes, 13U);  // the old part and the new one in one piece
  EXPECT_EQ(from.take_growth(), std::nullopt) << "nothing was refused since the last growth";
  EXPECT_EQ(from.take(1).bytes, 0U);
  EXPECT_EQ(from.take_growth(), encode(Kind::grow, 20));
  ASSERT_TRUE(to.received(encode(Kind::grow, 20), 0));
  EXPECT_FALSE(to.received(encode(Kind::grow, 21), 0)) << "more than the ring has";
}

// The price of flow control: at least one update for each ring, at most two, and two for each set
// of receives.
TEST(FlowControl, UpdatesAreFew) {
  for (const std::uint32_t ring : {64U, 32'768U, 1'000'000U}) {
    const std::uint64_t bytes = 20 * std::uint64_t{ring};
    FlowPair pair({ring, ring, 384, 384}, bytes, 0, 7);
    pair.run();
    ASSERT_TRUE(pair.complete());
    const auto& reader = pair.counts(1);
    EXPECT_GE(reader.updates, bytes / ring - 1);
    EXPECT_LE(reader.updates, bytes / (ring / 2) + pair.counts(0).data / (384 / 2));
    EXPECT_LE(pair.counts(0).acknowledgements, reader.updates / update_window);
  }
}

FlowControl small_flow() {
  return FlowControl({.send_ring_bytes = 10,
                      .sends = 4,
                      .peer_ring_bytes = 8,
                      .peer_receives = 4,
                      .receive_ring_bytes = 8,
                      .receives = 4});
}

TEST(FlowControl, APieceEndsAtTheEndOfEitherRing) {
  FlowControl flow = small_flow();
  EXPECT_EQ(flow.take(6).bytes, 6U);
  flow.sent(6);
  ASSERT_TRUE(flow.received(encode(Update{.bytes = 6})));
  const Piece second = flow.take(8);
  EXPECT_EQ(second.from, 6U);
  EXPECT_EQ(second.to, 6U);
  EXPECT_EQ(second.bytes, 2U);  // up to the end of the peer's ring
  const Piece third = flow.take(8);
  EXPECT_EQ(third.from, 8U);
  EXPECT_EQ(third.to, 0U);
  EXPECT_EQ(third.bytes, 2U);  // up to the end of our ring
}

TEST(FlowControl, NothingIsSentWithoutRoomReceiveOrPlace) {
  FlowControl full = small_flow();
  EXPECT_EQ(full.take(100).bytes, 8U);
  EXPECT_FALSE(full.can_send());
  EXPECT_EQ(full.take(1).bytes, 0U);

  FlowControl many = small_flow();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(many.take(1).bytes, 1U);
  EXPECT_EQ(many.take(1).bytes, 0U);
  many.sent(1);  // our queue has room again, but the peer has no receive
  EXPECT_EQ(many.take(1).bytes, 0U);
  ASSERT_TRUE(many.received(encode(Update{.receives = 1})));
  EXPECT_EQ(many.take(1).bytes, 1U);
}

TEST(FlowControl, NothingFollowsTheEnd) {
  FlowControl flow = small_flow();
  flow.finish();
  EXPECT_EQ(flow.take(1).bytes, 0U);
  EXPECT_FALSE(flow.take_message());
  EXPECT_EQ(flow.next_control(), encode(Kind::end, 0));
  EXPECT_EQ(flow.next_control(), std::nullopt);
  EXPECT_FALSE(flow.all_sent());
  flow.control_sent();
  EXPECT_TRUE(flow.all_sent());
}

TEST(FlowControl, APeerThatBreaksTheRulesIsFound) {
  const auto refused = [](std::uint32_t word, std::optional<std::uint32_t> bytes = {}) {
    FlowControl flow = small_flow();
    return !flow.received(word, bytes);
  };
  EXPECT_TRUE(refused(encode(Kind::data, 0)));
  EXPECT_TRUE(refused(encode(Kind::data, 9)));     // more than the ring has
  EXPECT_TRUE(refused(encode(Kind::data, 3), 4));  // the write has another length
  EXPECT_TRUE(refused(encode(Kind::end, 1)));
  EXPECT_TRUE(refused(encode(static_cast<Kind>(6), 0)));
  EXPECT_TRUE(refused(encode(Kind::place, 1)));
  EXPECT_TRUE(refused(encode(Kind::place, 0), 1));  // with bytes
  EXPECT_TRUE(refused(encode(Kind::wake, 2)));
  EXPECT_TRUE(refused(encode(Kind::grow, 9)));              // more than the ring has
  EXPECT_TRUE(refused(encode(Kind::grow, 8)));              // not more than is used
  EXPECT_TRUE(refused(encode(Kind::grow, 16), 1));          // with bytes
  EXPECT_TRUE(refused(encode(Update{.bytes = 1})));         // never sent
  EXPECT_TRUE(refused(encode(Update{.receives = 1})));      // never used
  EXPECT_TRUE(refused(encode(Update{.acknowledged = 1})));  // never updated
  EXPECT_TRUE(refused(encode(Update{})));

  FlowControl ended = small_flow();
  ASSERT_TRUE(ended.received(encode(Kind::end, 0)));
  EXPECT_FALSE(ended.received(encode(Kind::data, 1)));
  EXPECT_FALSE(ended.received(encode(Kind::end, 0)));

  FlowControl filled = small_flow();
  ASSERT_TRUE(filled.received(encode(Kind::data, 6)));
  EXPECT_FALSE(filled.received(encode(Kind::data, 3)));  // over the end of the ring
  ASSERT_TRUE(filled.received(encode(Kind::data, 2)));
  EXPECT_FALSE(filled.received(encode(Kind::data, 1)));
  filled.read(3);  // not returned by an update yet, so not free for the peer
  EXPECT_FALSE(filled.received(encode(Kind::data, 1)));
}

// A message of data needs one of the receives that were announced, also if the ring has room: those
// for updates and for the end belong to these.
TEST(FlowControl, AMessageForWhichNoReceiveIsLeftIsFound) {
  FlowControl flow = small_flow();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(flow.received(encode(Kind::data, 1)));
  EXPECT_FALSE(flow.received(encode(Kind::data, 1)));
  EXPECT_FALSE(flow.received(encode(Kind::map, 0)));
  EXPECT_TRUE(flow.received(encode(Kind::end, 0))) << "this has a receive of its own";

  FlowControl returned = small_flow();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(returned.received(encode(Kind::map, 0)));
  EXPECT_FALSE(returned.received(encode(Kind::map, 0)));
  ASSERT_TRUE(returned.next_control().has_value());  // returns all four
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(returned.received(encode(Kind::map, 0)));
  EXPECT_FALSE(returned.received(encode(Kind::map, 0)));
}

// A call that takes none of the bytes that it waits for gets all of the ring.
TEST(FlowControl, WhatWasReadIsReturnedEarlyWhereTheRoomIsWanted) {
  FlowControl flow = small_flow();
  ASSERT_TRUE(flow.received(encode(Kind::data, 3)));
  flow.read(2);
  flow.want(6);  // these fit beside what was read
  EXPECT_FALSE(flow.next_control());
  flow.want(7);
  EXPECT_EQ(flow.next_control(), encode(Update{.bytes = 2, .receives = 1}));
  EXPECT_FALSE(flow.next_control());
  EXPECT_FALSE(flow.is_full());
  ASSERT_TRUE(flow.received(encode(Kind::data, 5)));
  ASSERT_TRUE(flow.received(encode(Kind::data, 2)));
  EXPECT_TRUE(flow.is_full());
}

TEST(FlowControl, APeerThatOverrunsTheUpdateWindowIsFound) {
  FlowControl flow = small_flow();
  ASSERT_EQ(flow.take(5).bytes, 5U);
  ASSERT_TRUE(flow.received(encode(Update{.bytes = 1})));
  ASSERT_TRUE(flow.received(encode(Update{.bytes = 1})));
  EXPECT_FALSE(flow.received(encode(Update{.bytes = 1})));
  EXPECT_EQ(flow.next_control(), encode(Update{.acknowledged = 2}));
  EXPECT_TRUE(flow.received(encode(Update{.bytes = 1})));
}

}  // namespace
}  // namespace weft::stream::detail
