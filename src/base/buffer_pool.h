// Large buffers that a connection needs only while bytes are under way. What one connection gives
// back, the next one takes: thousands of idle connections hold no buffer, and the memory that is
// used again is still in the cache.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

namespace weft {

// Buffers of one size. Thread-safe, without locks, so that the child of a fork() may use it. Meant
// for objects with static storage: what is kept is never freed.
class BufferPool {
 public:
  explicit constexpr BufferPool(std::size_t bytes) : bytes_(bytes) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Begins with a page. The bytes are indeterminate. Throws std::bad_alloc.
  [[nodiscard]] std::byte* take();
  // `buffer` comes from take() of the same pool.
  void give(std::byte* buffer) noexcept;

 private:
  // As many as threads may work on connections at the same time; more are freed.
  static constexpr std::size_t most_kept = 8;

  const std::size_t bytes_;
  std::array<std::atomic<std::byte*>, most_kept> kept_{};
};

// Returns a buffer to its pool.
struct BufferReturn {
  BufferPool* pool = nullptr;
  void operator()(std::byte* buffer) const noexcept { pool->give(buffer); }
};
using PooledBuffer = std::unique_ptr<std::byte[], BufferReturn>;

[[nodiscard]] inline PooledBuffer buffer_of(BufferPool& pool) {
  return PooledBuffer(pool.take(), BufferReturn{&pool});
}

}  // namespace weft
