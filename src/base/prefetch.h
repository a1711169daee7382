// Asks the processor for memory ahead of its use. A thread that serves thousands of objects in turn
// finds nearly nothing of the next one in the cache, and would wait for each of its lines in turn.
#pragma once

#include <atomic>
#include <cstddef>

namespace weft {

// A hint: any address is allowed, and nothing is read.
inline void prefetch(const void* at, std::size_t bytes) {
  constexpr std::size_t line = 64;
  const auto* const first = static_cast<const std::byte*>(at);
  for (std::size_t offset = 0; offset < bytes; offset += line) __builtin_prefetch(first + offset);
}

// Where an object's memory is, for threads that do not hold the lock of what owns it. An address
// that is no longer true costs time only.
class MemoryToPrefetch {
 public:
  void set(const void* at, std::size_t bytes) {
    bytes_.store(bytes, std::memory_order_relaxed);
    at_.store(at, std::memory_order_relaxed);
  }
  void prefetch() const {
    weft::prefetch(at_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed));
  }

 private:
  std::atomic<const void*> at_{nullptr};
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace weft
