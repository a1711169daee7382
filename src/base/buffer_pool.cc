#include "base/buffer_pool.h"

#include <utility>

namespace weft {

// The first one that is kept: give() fills the first free place, so that the buffer that was used
// last is usually found first.
std::byte* BufferPool::take() {
  for (auto& place : kept_) {
    // A look before the exchange, which would take the cache line from other processors.
    if (!place.load(std::memory_order_relaxed)) continue;
    if (std::byte* found = place.exchange(nullptr, std::memory_order_acquire)) return found;
  }
  return new std::byte[bytes_];
}

void BufferPool::give(std::byte* buffer) noexcept {
  for (auto& place : kept_) {
    std::byte* none = place.load(std::memory_order_relaxed);
    if (none) continue;
    if (place.compare_exchange_strong(none, buffer, std::memory_order_release,
                                      std::memory_order_relaxed)) {
      return;
    }
  }
  delete[] buffer;
}

}  // namespace weft
