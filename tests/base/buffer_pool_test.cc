#include "base/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace weft {
namespace {

constinit BufferPool pool(10'000);

TEST(BufferPool, GivesTheBufferThatCameBackLast) {
  std::byte* first = buffer_of(pool).release();
  pool.give(first);
  EXPECT_EQ(buffer_of(pool).get(), first);
}

// The kernel's copies into and out of a buffer depend on it: see docs/performance.md.
TEST(BufferPool, BuffersBeginWithAPage) {
  std::vector<PooledBuffer> taken;
  for (int i = 0; i < 20; ++i) {  // more than are kept
    taken.push_back(buffer_of(pool));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(taken.back().get()) % 4096, 0U);
    taken.back()[pool.bytes() - 1] = std::byte{1};
  }
}

}  // namespace
}  // namespace weft
