// The ring of posted requests: what it copies, and when it is full.
#include "iwarp/send_queue.h"

#include <gtest/gtest.h>

#include <array>

namespace weft::iwarp {
namespace {

constexpr QueueLimits limits{.send_requests = 2, .send_slices = 2, .inline_bytes = 8};

TEST(SendQueue, IsFullUntilARequestHasCompleted) {
  SendQueue queue(limits);
  EXPECT_TRUE(queue.idle());
  queue.push({.wr_id = 1}, 0);
  queue.push({.wr_id = 2}, 0);
  EXPECT_TRUE(queue.full());
  queue.advance();
  EXPECT_TRUE(queue.full());
  queue.pop();
  EXPECT_FALSE(queue.full());
  EXPECT_FALSE(queue.idle());
  queue.push({.wr_id = 3}, 0);
  EXPECT_EQ(queue.entry(queue.next()).request.wr_id, 2U);
  EXPECT_EQ(queue.entry(2).request.wr_id, 3U);
}

// The application may reuse its list of slices when post() returns.
TEST(SendQueue, CopiesTheSlices) {
  SendQueue queue(limits);
  for (std::uint32_t i = 0; i < 5; ++i) {
    std::array<LocalSlice, 2> slices{LocalSlice{.address = i, .length_bytes = 1, .lkey = 7},
                                     LocalSlice{.address = i, .length_bytes = 2, .lkey = 8}};
    queue.push({.wr_id = i, .slices = slices}, 3);
    slices = {};
    ASSERT_EQ(queue.slices(i).size(), 2U);
    EXPECT_EQ(queue.slices(i)[0].address, i);
    EXPECT_EQ(queue.slices(i)[1].lkey, 8U);
    EXPECT_EQ(queue.entry(i).length_bytes, 3U);
    queue.advance();
    queue.pop();
  }
}

TEST(SendQueue, CopiesInlineData) {
  SendQueue queue(limits);
  std::array<char, 8> data{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};
  const auto address = reinterpret_cast<std::uint64_t>(data.data());
  const std::array<LocalSlice, 2> slices{LocalSlice{.address = address + 4, .length_bytes = 4},
                                         LocalSlice{.address = address, .length_bytes = 2}};
  queue.push({.inline_data = true, .slices = slices}, 6);
  data = {};
  EXPECT_TRUE(queue.slices(0).empty());
  EXPECT_EQ(std::memcmp(queue.inline_data(0), "efghab", 6), 0);
}

// A reused place keeps nothing of the request before.
TEST(SendQueue, StartsEachEntryAnew) {
  SendQueue queue({.send_requests = 1});
  queue.push({.wr_id = 1, .fence = true}, 5);
  queue.entry(0).built = true;
  queue.entry(0).failure = Status::flushed;
  queue.advance();
  queue.pop();
  queue.push({.wr_id = 2}, 0);
  EXPECT_FALSE(queue.entry(1).built);
  EXPECT_FALSE(queue.entry(1).request.fence);
  EXPECT_EQ(queue.entry(1).failure, Status::success);
}

TEST(SendQueue, CountsThePlacesThatWaitForProofs) {
  SendQueue queue({.send_requests = 4});
  for (int i = 0; i < 3; ++i) queue.push({}, 0);
  queue.advance();
  EXPECT_FALSE(queue.half_full_of_built());
  queue.advance();
  EXPECT_TRUE(queue.half_full_of_built());
}

TEST(SendQueue, BuildsNothingMoreOnceStopped) {
  SendQueue queue(limits);
  queue.push({}, 0);
  EXPECT_FALSE(queue.all_built());
  queue.stop();
  EXPECT_TRUE(queue.all_built());
  EXPECT_FALSE(queue.idle());
}

}  // namespace
}  // namespace weft::iwarp
