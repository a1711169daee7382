// WarmBlocks: the blocks that received messages were handed over in last. Their memory is in the
// cache, so the next messages are placed there, and not in the receives of their connection: these
// are used one after the other, so each of them would have left the cache, or never have been
// touched.
#pragma once

#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include "message/pool.h"

namespace weft::message::detail {

// Not thread-safe: belongs to the loop's thread.
class WarmBlocks {
 public:
  // The block that was used last; null where there is no memory.
  [[nodiscard]] BlockPointer take(Pool& pool) noexcept {
    if (blocks_.empty()) return take_other(pool);
    BlockPointer block = std::move(blocks_.back());
    blocks_.pop_back();
    return block;
  }
  void give_back(BlockPointer block) {
    if (block && blocks_.size() < most) blocks_.push_back(std::move(block));
  }

 private:
  static constexpr std::size_t most = 16;

  [[nodiscard]] static BlockPointer take_other(Pool& pool) noexcept {
    try {
      return pool.take_block();
    } catch (const std::exception&) {
      return nullptr;  // then each message is placed in the memory of its receive
    }
  }

  std::vector<BlockPointer> blocks_;
};

}  // namespace weft::message::detail
