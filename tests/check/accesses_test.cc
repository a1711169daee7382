#include "check/accesses.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

namespace weft::check {
namespace {

struct Queues {
  std::array<ibv_qp, 3> queue_pairs{};

  [[nodiscard]] Access access(std::size_t queue_pair, ibv_wr_opcode opcode,
                              MemoryRange remote) const {
    return {
        .queue_pair = &queue_pairs.at(queue_pair), .opcode = opcode, .rkey = 7, .remote = remote};
  }
};

TEST(Accesses, OnlyOneOfTwoQueuePairsIsUnordered) {
  const Queues queues;
  Accesses accesses;
  const auto number = accesses.add(queues.access(0, IBV_WR_RDMA_WRITE, {100, 10}));
  EXPECT_FALSE(accesses.find_unordered(queues.access(0, IBV_WR_RDMA_READ, {100, 10})));
  EXPECT_TRUE(accesses.find_unordered(queues.access(1, IBV_WR_RDMA_READ, {109, 1})));
  EXPECT_FALSE(accesses.find_unordered(queues.access(1, IBV_WR_RDMA_READ, {110, 1})));
  accesses.remove(number);
  EXPECT_FALSE(accesses.find_unordered(queues.access(1, IBV_WR_RDMA_READ, {109, 1})));
}

TEST(Accesses, PeersAndKeysAreApart) {
  const Queues queues;
  Accesses accesses;
  (void)accesses.add(queues.access(0, IBV_WR_RDMA_WRITE, {100, 10}));
  Access other = queues.access(1, IBV_WR_RDMA_WRITE, {100, 10});
  other.rkey = 8;
  EXPECT_FALSE(accesses.find_unordered(other));
  other.rkey = 7;
  other.peer.gid[15] = 1;
  EXPECT_FALSE(accesses.find_unordered(other));
  other.peer = {.lid = 5};
  EXPECT_FALSE(accesses.find_unordered(other));
}

TEST(Accesses, ReadsAndAtomicsAreFineAmongThemselves) {
  const Queues queues;
  for (const auto& [one, other, ordered] :
       {std::tuple(IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, true),
        std::tuple(IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, true),
        std::tuple(IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_RDMA_READ, false),
        std::tuple(IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE, false)}) {
    Accesses accesses;
    (void)accesses.add(queues.access(0, one, {8, 8}));
    EXPECT_NE(accesses.find_unordered(queues.access(1, other, {8, 8})).has_value(), ordered);
  }
}

TEST(Accesses, FencesCoverWhatIsInFrontOnTheirQueuePair) {
  const Queues queues;
  Accesses accesses;
  Access read = queues.access(0, IBV_WR_RDMA_READ, {8, 8});
  read.fills = {{1000, 8}, {2000, 8}};
  const auto first = accesses.add(read);
  EXPECT_TRUE(accesses.find_filling({{2004, 1}}));
  EXPECT_FALSE(accesses.find_filling({{1008, 8}}));
  EXPECT_FALSE(accesses.find_filling({{2004, 1}}, &queues.queue_pairs[0], first));
  EXPECT_TRUE(accesses.find_filling({{2004, 1}}, &queues.queue_pairs[1], first));
  const auto second = accesses.add(read);
  EXPECT_TRUE(accesses.find_filling({{2004, 1}}, &queues.queue_pairs[0], first));
  accesses.remove(second);
  accesses.note_placed(first);
  EXPECT_TRUE(accesses.find_filling({{1000, 1}}));
  accesses.remove(first);
  EXPECT_FALSE(accesses.find_filling({{1000, 1}}));
}

// What is placed needs no order any more; thousands of requests come and go.
TEST(Accesses, NothingIsLeftBehind) {
  const Queues queues;
  std::mt19937 random(1);
  Accesses accesses;
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < 20000; ++i) {
    Access access = queues.access(random() % 3, IBV_WR_RDMA_WRITE, {random() % 100000, 64});
    access.rkey = static_cast<std::uint32_t>(random() % 5);
    (void)accesses.find_unordered(access);
    numbers.push_back(accesses.add(access));
    if (random() % 2 == 0) accesses.note_placed(numbers[random() % numbers.size()]);
    if (random() % 2 == 0) accesses.remove(numbers[random() % numbers.size()]);
  }
  for (const std::uint64_t number : numbers) accesses.remove(number);
  for (std::uint32_t key = 0; key < 5; ++key) {
    Access all = queues.access(0, IBV_WR_RDMA_WRITE, {0, 200000});
    all.rkey = key;
    EXPECT_FALSE(accesses.find_unordered(all));
  }
}

TEST(Accesses, NothingToNoteHasNoNumber) {
  const Queues queues;
  Accesses accesses;
  EXPECT_EQ(accesses.add(queues.access(0, IBV_WR_SEND, {})), 0U);
  accesses.remove(0);
}

}  // namespace
}  // namespace weft::check
