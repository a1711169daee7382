// The heap alone, without the functions of the C library that it replaces in programs.
#include "interpose/shared_heap/shared_heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace weft::interpose {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t mib = std::size_t{1} << 20;

class Heap : public testing::Test {
 protected:
  void SetUp() override {
    const char* const reason = heap_->start({.limit_bytes = 4 * mib});
    if (reason) GTEST_SKIP() << reason;
  }

  unsigned char* take(std::size_t bytes, bool zeroed = false) {
    return static_cast<unsigned char*>(heap_->allocate(bytes, page, zeroed));
  }
  // Runs `child` in a child of fork(2) and returns whether it returned true.
  template <typename Child>
  bool in_child(Child child) {
    heap_->before_fork();
    const pid_t made = fork();
    if (made == 0) {
      heap_->after_fork_in_child();
      _exit(child() ? 0 : 1);
    }
    heap_->after_fork_in_parent();
    int status = 0;
    return waitpid(made, &status, 0) == made && status == 0;
  }
  static bool holds(const unsigned char* at, std::size_t bytes, int value) {
    return std::all_of(at, at + bytes, [&](unsigned char byte) { return byte == value; });
  }
  // Pages of the file that have memory.
  [[nodiscard]] std::size_t resident(const unsigned char* at, std::size_t bytes) const {
    std::vector<unsigned char> pages(bytes / page);
    EXPECT_EQ(mincore(const_cast<unsigned char*>(at), bytes, pages.data()), 0);
    return static_cast<std::size_t>(
        std::count_if(pages.begin(), pages.end(), [](unsigned char each) { return each & 1; }));
  }

  // Its addresses stay reserved, as in programs.
  std::unique_ptr<SharedHeap> heap_ = std::make_unique<SharedHeap>();
};

TEST_F(Heap, WhatDoesNotFitIsLeftToOthers) {
  EXPECT_EQ(take(4 * mib + 1), nullptr);
  EXPECT_EQ(take(0), nullptr);
  EXPECT_EQ(heap_->allocate(page, 16), nullptr);
  EXPECT_EQ(heap_->allocate(page, 4 * mib), nullptr);
  EXPECT_NE(take(4 * mib), nullptr);
  EXPECT_EQ(take(1), nullptr);
}

TEST_F(Heap, LargeBlocksGiveTheirMemoryBackAtOnce) {
  unsigned char* const block = take(mib);
  std::memset(block, 1, mib);
  EXPECT_EQ(resident(block, mib), mib / page);
  heap_->free(block);
  EXPECT_EQ(resident(block, mib), 0);
  EXPECT_TRUE(holds(block, mib, 0));
}

TEST_F(Heap, SmallBlocksGiveTheirMemoryBackInTheEnd) {
  std::vector<unsigned char*> blocks;
  for (int i = 0; i < 500; ++i) {
    blocks.push_back(take(page));
    std::memset(blocks.back(), 1, page);
  }
  for (unsigned char* block : blocks) heap_->free(block);
  EXPECT_LE(resident(blocks.front(), 500 * page), mib / page);
}

TEST_F(Heap, ZeroedBlocksContainZeros) {
  unsigned char* const block = take(page);
  std::memset(block, 1, page);
  heap_->free(block);
  EXPECT_EQ(take(page, true), block);
  EXPECT_TRUE(holds(block, page, 0));
}

TEST_F(Heap, AHeldBlockIsNotGivenToAnother) {
  unsigned char* const block = take(3 * page);
  SharedHeapPart part;
  ASSERT_TRUE(heap_->hold(block + 10, 2 * page, part));
  EXPECT_EQ(part.offset_bytes % page, 10);
  ASSERT_TRUE(heap_->hold(block, 1, part));
  heap_->free(block);
  EXPECT_FALSE(heap_->hold(block, 1, part)) << "it is freed";
  EXPECT_EQ(take(4 * mib - 3 * page + 1), nullptr);
  heap_->release(block + 10, 2 * page);
  EXPECT_EQ(heap_->used_pages(), 3);
  heap_->release(block, 1);
  EXPECT_EQ(heap_->used_pages(), 0);
}

TEST_F(Heap, OnlyAllocatedMemoryIsHeld) {
  unsigned char* const block = take(2 * page);
  unsigned char* const next = take(page);
  SharedHeapPart part;
  EXPECT_TRUE(heap_->hold(block, 3 * page, part)) << "two blocks";
  EXPECT_FALSE(heap_->hold(block, 3 * page + 1, part));
  EXPECT_FALSE(heap_->hold(block, 0, part));
  EXPECT_FALSE(heap_->hold(&part, sizeof part, part));
  heap_->free(next);
  EXPECT_EQ(heap_->used_pages(), 3);
  heap_->release(block, 3 * page);
  EXPECT_EQ(heap_->used_pages(), 2);
}

TEST_F(Heap, ThePartIsThatOfTheFile) {
  unsigned char* const block = take(2 * page);
  block[page + 5] = 77;
  SharedHeapPart part;
  ASSERT_TRUE(heap_->hold(block + page, page, part));
  unsigned char byte = 0;
  ASSERT_EQ(pread(part.descriptor, &byte, 1, static_cast<off_t>(part.offset_bytes) + 5), 1);
  EXPECT_EQ(byte, 77);
  struct stat status {};
  ASSERT_EQ(fstat(part.descriptor, &status), 0);
  EXPECT_EQ(status.st_ino, part.inode);
  EXPECT_NE(ftruncate(part.descriptor, 0), 0) << "peers would end by SIGBUS";
}

TEST_F(Heap, AHeldBlockKeepsItsLength) {
  unsigned char* const block = take(4 * page);
  SharedHeapPart part;
  ASSERT_TRUE(heap_->hold(block + 3 * page, page, part));
  EXPECT_TRUE(heap_->resize(block, page));
  EXPECT_EQ(heap_->usable(block), 4 * page);
  heap_->release(block + 3 * page, page);
  EXPECT_TRUE(heap_->resize(block, page));
  EXPECT_EQ(heap_->usable(block), page);
}

TEST_F(Heap, AChildHasACopy) {
  unsigned char* const block = take(mib);
  std::memset(block, 1, mib);
  EXPECT_TRUE(in_child([&] {
    const bool same = holds(block, mib, 1);
    std::memset(block, 2, mib);
    unsigned char* const more = take(2 * mib);
    std::memset(more, 3, 2 * mib);
    SharedHeapPart part;
    return same && heap_->hold(block, mib, part) && holds(more, 2 * mib, 3);
  }));
  EXPECT_TRUE(holds(block, mib, 1));
  EXPECT_TRUE(holds(take(2 * mib), 2 * mib, 0));
}

TEST_F(Heap, AChildWithoutBlocksBeginsAnew) {
  unsigned char* const block = take(page);
  block[0] = 1;
  heap_->free(block);
  EXPECT_TRUE(in_child([&] {
    unsigned char* const other = take(page);
    std::memset(other, 2, page);
    return other != nullptr;
  }));
  EXPECT_EQ(take(page), block);
  EXPECT_EQ(block[0], 1);
}

// Without descriptors the copy is in ordinary memory, which no peer can map.
TEST_F(Heap, AChildHasACopyWithoutDescriptors) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer starts a thread in the child, which ends by SIGSEGV here";
#endif
  unsigned char* const block = take(mib);
  std::memset(block, 1, mib);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool right = in_child([&] {
    const bool same = holds(block, mib, 1);
    std::memset(block, 2, mib);
    SharedHeapPart part;
    const bool held = heap_->hold(block, mib, part);
    heap_->free(block);
    return same && !held;
  });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(right);
  EXPECT_TRUE(holds(block, mib, 1));
}

TEST_F(Heap, PrivatePagesStayUntilTheirBlockIsFreed) {
  unsigned char* const block = take(4 * page);
  std::memset(block, 1, 4 * page);
  heap_->make_private(block + page, page);
  SharedHeapPart part;
  EXPECT_FALSE(heap_->hold(block, 4 * page, part));
  EXPECT_TRUE(heap_->hold(block, page, part));
  heap_->release(block, page);
  EXPECT_TRUE(holds(block, 4 * page, 1));
  EXPECT_TRUE(in_child([&] {
    const bool same = holds(block, 4 * page, 1);
    std::memset(block, 2, 4 * page);
    return same;
  }));
  EXPECT_TRUE(holds(block, 4 * page, 1));
  heap_->free(block);
  EXPECT_EQ(take(4 * page), block);
  EXPECT_TRUE(heap_->hold(block, 4 * page, part));
}

TEST_F(Heap, AChildKeepsProtections) {
  unsigned char* const block = take(3 * page);
  ASSERT_EQ(mprotect(block + page, page, PROT_READ), 0);
  heap_->note_protection(block + page, page, PROT_READ);
  EXPECT_TRUE(in_child([&] {
    block[0] = 1;
    // The kernel reports a fault in place of the signal.
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1) return false;
    return read(ends[0], block + page, 1) == -1 && errno == EFAULT;
  }));
  heap_->free(block);
  EXPECT_EQ(take(3 * page), block);
  block[page] = 1;
}

TEST_F(Heap, DiscardedPagesContainZeros) {
  unsigned char* const block = take(3 * page);
  std::memset(block, 1, 3 * page);
  heap_->make_private(block, page);
  EXPECT_EQ(heap_->discard(block + page, page), 0);
  EXPECT_TRUE(holds(block + page, page, 0) && holds(block + 2 * page, page, 1));
  std::memset(block, 1, 3 * page);
  EXPECT_EQ(heap_->discard(block, 2 * page), 0);
  EXPECT_TRUE(holds(block, 2 * page, 0)) << "a private page and one of the file";
  EXPECT_TRUE(holds(block + 2 * page, page, 1));
}

TEST_F(Heap, NothingIsServedWithTooLowALimitOnFiles) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = mib;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const auto other = std::make_unique<SharedHeap>();
  EXPECT_NE(other->start({.limit_bytes = 4 * mib}), nullptr);
  EXPECT_EQ(other->allocate(page, page), nullptr);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

// The child of a death test begins anew, because a heap is not inherited without its handlers.
class HeapDeathTest : public Heap {
 protected:
  HeapDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(HeapDeathTest, FreeingTwiceEndsTheProgram) {
  unsigned char* const block = take(page);
  heap_->free(block);
  EXPECT_DEATH(heap_->free(block), "weft: free: not a block of the heap, or freed before");
  EXPECT_DEATH(heap_->free(block + 1), "not a block");
}

}  // namespace
}  // namespace weft::interpose
