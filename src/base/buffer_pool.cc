#include "base/buffer_pool.h"

#include <new>

namespace weft {
namespace {

constexpr std::align_val_t page{4096};

}  // namespace

// The first one that is kept: give() fills the first free place, so that the buffer that was used
// last is usually found first.
std::byte* BufferPool::take() {
  for (auto& place : kept_) {
    // A look before the exchange, which would take the cache line from other processors.
    if (!place.load(std::memory_order_relaxed)) continue;
    if (std::byte* found = place.exchange(nullptr, std::memory_order_acquire)) return found;
  }
  return static_cast<std::byte*>(::operator new(bytes_, page));
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
  ::operator delete(buffer, page);
}

}  // namespace weft
