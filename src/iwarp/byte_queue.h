// Bytes that are added at the end and removed at the beginning, in blocks of fixed size: memory
// beyond the bytes themselves is two blocks at most, and bytes keep their addresses.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace weft::iwarp {

class ByteQueue {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }

  // Adds bytes of any value. Throws std::bad_alloc.
  void extend(std::size_t bytes);
  // Removes the oldest bytes, at most size().
  void drop(std::size_t bytes);
  // The byte at `at` (0: the oldest) and those behind it that lie side by side with it; `at` is
  // less than size(). Valid until the bytes are removed.
  [[nodiscard]] std::span<std::byte> run(std::size_t at) const;
  // Appends the memory of [at, at + length) to `out`.
  void map(std::size_t at, std::size_t length, std::vector<iovec>& out) const;

 private:
  static constexpr std::size_t block_bytes = 4096;
  using Block = std::array<std::byte, block_bytes>;

  std::deque<std::unique_ptr<Block>> blocks_;
  std::size_t begin_ = 0;  // in the first block
  std::size_t size_ = 0;
};

}  // namespace weft::iwarp
