// The hold takes no more memory than its limit, whatever a peer sends: the number of bytes that it
// counts is what it allocates. A program of its own, since it replaces operator new.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "iwarp/hold.h"

namespace {

// Bytes that operator new has allocated and not freed, with what the allocator needs for each.
std::size_t allocated = 0;

std::size_t cost_of(void* memory) {
  return malloc_usable_size(memory) + sizeof(std::size_t);
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  allocated += cost_of(memory);
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory) allocated -= cost_of(memory);
  std::free(memory);
}

void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  ::operator delete(memory);
}

namespace weft::iwarp {
namespace {

constexpr std::size_t limit = 1024 * 1024;
// The first blocks and the tables that name them.
constexpr std::size_t slack = 64 * 1024;

// Sends messages until the hold is full, each in segments of at most `segment_bytes`.
std::size_t fill(Hold& hold, std::uint32_t message_bytes, std::uint32_t segment_bytes) {
  Segment segment;
  segment.opcode = wire::RdmapOpcode::send;
  segment.untagged_header = {.rdmap_control = wire::rdmap_control(segment.opcode)};
  for (std::size_t messages = 0;; ++messages) {
    if (!hold.begin(messages + 1, 0, segment)) return messages;
    for (std::uint32_t at = 0; at < message_bytes; at += segment_bytes) {
      segment.payload_bytes = std::min(segment_bytes, message_bytes - at);
      if (!hold.extend(segment)) return messages;
    }
  }
}

struct Shape {
  std::uint32_t message_bytes;
  std::uint32_t segment_bytes;
};

class HoldMemory : public testing::TestWithParam<Shape> {};

TEST_P(HoldMemory, IsWhatItCounts) {
  const auto& [message_bytes, segment_bytes] = GetParam();
  const std::size_t before = allocated;
  Hold hold(limit);
  const std::size_t messages = fill(hold, message_bytes, segment_bytes);
  EXPECT_EQ(messages, limit / (Hold::message_cost_bytes + message_bytes));
  EXPECT_LE(allocated - before, limit + slack) << messages << " messages";
  while (!hold.empty()) hold.pop();
  EXPECT_LE(allocated - before, slack) << "after all of them were removed";
}

INSTANTIATE_TEST_SUITE_P(Sizes, HoldMemory,
                         testing::Values(Shape{0, 1}, Shape{1, 1}, Shape{9, 9}, Shape{24, 5},
                                         Shape{100, 100}, Shape{5000, 1400}, Shape{400'000, 1400},
                                         Shape{700'000, 60'000}),
                         [](const auto& test) {
                           return std::to_string(test.param.message_bytes) + "In" +
                                  std::to_string(test.param.segment_bytes);
                         });

}  // namespace
}  // namespace weft::iwarp
