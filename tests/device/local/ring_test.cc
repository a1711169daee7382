// Messages through the slots of an inbox, and a peer that writes anything it likes into them.
#include "device/local/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace weft::device {
namespace {

using inbox::Kind;
using inbox::MessageHeader;
using inbox::Slot;

constexpr std::size_t first = inbox::first_payload_bytes;

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(seed + i * 13 + i / 251);
  return made;
}

class Ring : public testing::Test {
 protected:
  void push(const std::vector<std::byte>& payload, Kind kind = Kind::send) {
    const iovec piece{const_cast<std::byte*>(payload.data()), payload.size()};
    (void)writer_.push({.kind = kind, .length_bytes = static_cast<std::uint32_t>(payload.size())},
                       {&piece, 1});
  }

  void expect(const std::vector<std::byte>& payload) {
    const auto header = reader_.next();
    ASSERT_TRUE(header);
    ASSERT_EQ(header->length_bytes, payload.size());
    std::vector<std::byte> got(payload.size());
    EXPECT_TRUE(reader_.copy(0, got));
    EXPECT_EQ(got, payload);
    reader_.done(*header);
  }

  // Makes the next message that the reader looks at.
  void forge(const MessageHeader& header) {
    Slot& slot = inbox_->ring[forged_ % inbox::slots];
    std::memcpy(slot.data.data(), &header, sizeof header);
    slot.stamp.store(forged_ + 1);
  }

  std::unique_ptr<inbox::Inbox> inbox_ = std::make_unique<inbox::Inbox>();
  RingWriter writer_{*inbox_};
  RingReader reader_{*inbox_};
  std::uint64_t forged_ = 0;
};

TEST_F(Ring, IsEmptyAtFirst) {
  EXPECT_FALSE(reader_.next());
  EXPECT_FALSE(reader_.broken());
}

TEST_F(Ring, SlotsAreCountedToTheByte) {
  EXPECT_EQ(RingWriter::slots_for(0), 1U);
  EXPECT_EQ(RingWriter::slots_for(first), 1U);
  EXPECT_EQ(RingWriter::slots_for(first + 1), 2U);
  EXPECT_EQ(RingWriter::slots_for(first + Slot::bytes), 2U);
  EXPECT_EQ(RingWriter::slots_for(first + Slot::bytes + 1), 3U);
}

// Sizes around every border, one after another, so that messages start in every slot as well.
TEST_F(Ring, CarriesEverySizeAroundTheBordersOfSlots) {
  for (std::size_t slot = 0; slot * Slot::bytes <= inbox::inline_bytes; ++slot) {
    for (const int off : {-2, -1, 0, 1, 2}) {
      const std::ptrdiff_t bytes = static_cast<std::ptrdiff_t>(first + slot * Slot::bytes) + off;
      const auto payload = pattern(static_cast<std::size_t>(bytes), static_cast<unsigned>(slot));
      ASSERT_TRUE(writer_.has_room(payload.size()));
      push(payload);
      expect(payload);
    }
  }
  EXPECT_FALSE(reader_.next());
}

TEST_F(Ring, GathersPiecesAtOddBorders) {
  const auto payload = pattern(1000, 3);
  std::vector<iovec> pieces;
  std::size_t offset = 0;
  for (const std::size_t part : {1, 0, 102, 1, 120, 119, 121, 0, 536}) {
    pieces.push_back({const_cast<std::byte*>(payload.data()) + offset, part});
    offset += part;
  }
  ASSERT_EQ(offset, payload.size());
  ASSERT_TRUE(writer_.push({.kind = Kind::send, .length_bytes = 1000}, pieces));
  expect(payload);
}

TEST_F(Ring, CopiesAnyPartOfAPayload) {
  const auto payload = pattern(700, 9);
  push(payload);
  ASSERT_TRUE(reader_.next());
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, first - 1, first, first + 1,
                                   first + Slot::bytes, std::size_t{699}, std::size_t{700}}) {
    std::vector<std::byte> part(std::min<std::size_t>(payload.size() - offset, 150));
    ASSERT_TRUE(reader_.copy(offset, part));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), payload.begin() + static_cast<long>(offset)))
        << offset;
  }
}

TEST_F(Ring, KeepsItsOrderOverManyRounds) {
  std::mt19937 random(1);
  std::vector<std::size_t> sizes;
  unsigned pushed = 0;
  unsigned taken = 0;
  while (taken < 20'000) {
    const std::size_t bytes = random() % (inbox::inline_bytes + 1);
    if (random() % 2 == 0 && writer_.has_room(bytes)) {
      push(pattern(bytes, pushed++));
      sizes.push_back(bytes);
    } else if (taken < pushed) {
      expect(pattern(sizes[taken], taken));
      ++taken;
    }
    ASSERT_FALSE(HasFatalFailure());
  }
}

// One message after the other: the ring begins again and again.
TEST_F(Ring, TouchesFewSlotsWhileItIsRead) {
  for (unsigned i = 0; i < 10'000; ++i) {
    push(pattern(i % 200, i));
    ASSERT_NO_FATAL_FAILURE(expect(pattern(i % 200, i))) << i;
  }
  constexpr std::size_t longest = 2;  // slots of a message here
  for (std::size_t i = RingWriter::few_slots + longest; i < inbox::slots; ++i) {
    EXPECT_EQ(inbox_->ring[i].stamp, 0) << i;
  }
}

// A message that is larger than what was used so far must not cover the slot that tells of it.
TEST_F(Ring, BeginsAgainWithMessagesOfAllSizes) {
  for (unsigned i = 0; i < 10'000; ++i) {
    const std::size_t bytes = i % 7 == 0 ? 10'000 + i % 40'000 : i % 300;
    ASSERT_TRUE(writer_.has_room(bytes));
    push(pattern(bytes, i));
    ASSERT_NO_FATAL_FAILURE(expect(pattern(bytes, i))) << i;
  }
}

// With a message behind it the ring is used as a whole.
TEST_F(Ring, UsesAllSlotsWhileTheReaderIsBehind) {
  push({});
  for (unsigned i = 0; i < 4 * inbox::slots; ++i) {
    push({});
    expect({});
  }
  EXPECT_NE(inbox_->ring[inbox::slots - 1].stamp, 0);
}

TEST_F(Ring, SkipsOnlyOnceBeforeAMessage) {
  for (forged_ = 0; forged_ < 5; ++forged_) forge({.kind = Kind::skip, .slots = 1});
  EXPECT_FALSE(reader_.next());
  EXPECT_FALSE(reader_.broken());
  EXPECT_EQ(inbox_->consumed, 1);
}

// look_at_send() finds what next() would find.
TEST_F(Ring, LooksAtSendsOfAllSizes) {
  for (unsigned i = 0; i < 10'000; ++i) {
    const auto payload = pattern(i % 1000, i);
    push(payload);
    MessageHeader header;
    ASSERT_TRUE(reader_.look_at_send(header)) << i;
    ASSERT_EQ(header.length_bytes, payload.size());
    std::vector<std::byte> got(payload.size());
    ASSERT_TRUE(reader_.copy(0, got));
    ASSERT_EQ(got, payload) << i;
    reader_.done(header);
    ASSERT_TRUE(reader_.is_empty());
  }
}

TEST_F(Ring, LeavesAllButSendsInTheRingToNext) {
  const std::uint16_t too_many = inbox::slots + 1;
  for (const MessageHeader& header :
       {MessageHeader{.kind = Kind::placed, .slots = 1, .length_bytes = 10},
        MessageHeader{.kind = Kind::written, .slots = 1},
        MessageHeader{.kind = Kind::request, .slots = 2},
        MessageHeader{.kind = Kind::send, .slots = 0},
        MessageHeader{.kind = Kind::send, .slots = too_many},
        MessageHeader{.kind = Kind::send, .slots = 1, .length_bytes = first + 1},
        MessageHeader{.kind = Kind::send, .slots = 4, .length_bytes = UINT32_MAX},
        MessageHeader{.kind = Kind::skip, .slots = 0},
        MessageHeader{.kind = Kind::skip, .slots = too_many}}) {
    forge(header);
    MessageHeader found;
    EXPECT_FALSE(reader_.look_at_send(found));
    EXPECT_EQ(inbox_->consumed, 0);
  }
  // A skip without a message behind it.
  forge({.kind = Kind::skip, .slots = 3});
  MessageHeader found;
  EXPECT_FALSE(reader_.look_at_send(found));
  EXPECT_EQ(inbox_->consumed, 3);
}

TEST_F(Ring, IsFullAtExactlyItsSlots) {
  std::uint32_t pushed = 0;
  while (writer_.has_room(0)) {
    push({});
    ++pushed;
  }
  EXPECT_EQ(pushed, inbox::slots);
  expect({});
  EXPECT_TRUE(writer_.has_room(first));
  EXPECT_FALSE(writer_.has_room(first + 1));
  expect({});
  EXPECT_TRUE(writer_.has_room(first + 1));
}

TEST_F(Ring, TakesOneMessageOfAllSlots) {
  const std::size_t most = first + (inbox::slots - 1) * Slot::bytes;
  push(pattern(8, 1));
  EXPECT_FALSE(writer_.has_room(most));
  expect(pattern(8, 1));
  ASSERT_TRUE(writer_.has_room(most));
  push(pattern(most, 2));
  EXPECT_FALSE(writer_.has_room(0));
  expect(pattern(most, 2));
  EXPECT_FALSE(writer_.has_room(most + 1));
}

// Slots in the middle of a message keep the stamps of earlier rounds, and their bytes are the
// peer's: neither must look like a message.
TEST_F(Ring, TakesNoPayloadForAMessage) {
  for (unsigned round = 0; round < 3 * inbox::slots; ++round) {
    std::vector<std::byte> payload(first + 2 * Slot::bytes, std::byte{1});
    push(payload);
    expect(payload);
    ASSERT_FALSE(reader_.next()) << round;
    ASSERT_FALSE(reader_.broken());
  }
}

TEST_F(Ring, IgnoresAStampOfAnotherRound) {
  inbox_->ring[0].stamp.store(inbox::slots + 1);
  EXPECT_FALSE(reader_.next());
  EXPECT_FALSE(reader_.broken());
}

TEST_F(Ring, FindsHeadersThatCannotBeAMessage) {
  const MessageHeader forgeries[] = {
      {.kind = Kind::send, .slots = 0},
      {.kind = Kind::send, .slots = inbox::slots + 1},
      {.kind = Kind::send, .slots = 0xFFFF},
      {.kind = static_cast<Kind>(static_cast<int>(Kind::skip) + 1)},
      {.kind = static_cast<Kind>(0xFF)},
      {.kind = Kind::send, .slots = 1, .length_bytes = first + 1},
      {.kind = Kind::send, .slots = inbox::slots, .length_bytes = 0xFFFFFFFF},
  };
  for (const auto& forgery : forgeries) {
    forge(forgery);
    RingReader reader(*inbox_);
    EXPECT_FALSE(reader.next()) << static_cast<int>(forgery.kind) << " " << forgery.slots;
    EXPECT_TRUE(reader.broken());
  }
}

// Whatever the header is: a reader that believes it stays within the ring.
TEST_F(Ring, ReadsNothingOutsideOfItself) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    forged_ = random() % (4 * inbox::slots);
    RingReader reader(*inbox_);
    for (std::uint64_t at = 0; at < forged_;) {  // moves the reader there
      const auto step =
          static_cast<std::uint16_t>(std::min<std::uint64_t>(forged_ - at, inbox::slots));
      reader.done({.slots = step});
      at += step;
    }
    MessageHeader header;
    const std::uint64_t bits[2] = {random(), random()};
    std::memcpy(&header, bits, sizeof header);
    if (i % 2 == 0) {
      header.kind = static_cast<Kind>(random() % 6);
      header.slots = static_cast<std::uint16_t>(1 + random() % inbox::slots);
      constexpr auto most = static_cast<std::uint32_t>(2 * inbox::slots * Slot::bytes);
      header.length_bytes %= most;
    }
    forge(header);
    const auto read = reader.next();
    if (header.kind == Kind::skip && !reader.broken()) continue;
    ASSERT_NE(read.has_value(), reader.broken());
    if (!read || read->kind != Kind::send || (read->flags & inbox::flag_too_long) != 0) continue;
    ASSERT_LE(RingWriter::slots_for(read->length_bytes), inbox::slots);
    std::vector<std::byte> payload(read->length_bytes);
    EXPECT_TRUE(reader.copy(0, payload));
    reader.done(*read);
  }
}

// The peer may move what only it writes to anywhere. The ring is full, so that each question looks.
TEST_F(Ring, SurvivesAPeerThatCountsWrongly) {
  std::uint32_t pushed = 0;
  for (; writer_.has_room(0) && pushed < 10'000; ++pushed) push({});
  EXPECT_EQ(pushed, inbox::slots) << "each message has one slot";
  for (const std::uint64_t wrong : {std::uint64_t{1'000'000}, UINT64_MAX, std::uint64_t{0}}) {
    inbox_->consumed.store(wrong);
    EXPECT_FALSE(writer_.has_room(0)) << wrong;
  }
  inbox_->consumed.store(1);
  EXPECT_TRUE(writer_.has_room(0));
}

}  // namespace
}  // namespace weft::device
