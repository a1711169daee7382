// Registered memory of one device and one loop: receives, buffers to send, and long messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "weft/verbs.hpp"

namespace weft::message::detail {

class Pool;

// A piece of it. Belongs to a shared pointer whose end gives it back; that keeps the pool.
struct Block {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t lkey = 0;
  Pool* pool = nullptr;
  std::uint64_t counted_bytes = 0;  // against the limit

  // Of one that is no part of a slab. The memory must outlive its registration.
  std::unique_ptr<std::byte[]> own;
  std::optional<verbs::MemoryRegion> region;
};
using BlockPointer = std::shared_ptr<Block>;

// Thread-safe: blocks come back from any thread.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // `block_bytes` of each receive; at most `limit_bytes` for what peers make us keep.
  // `on_release` is called, in any thread, after memory that counts has come back.
  Pool(verbs::ProtectionDomain domain, std::size_t block_bytes, std::uint64_t limit_bytes,
       verbs::Access large_access, std::function<void()> on_release);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] std::size_t block_bytes() const { return block_bytes_; }
  // For a receive, or a short message to send. Throws Error.
  [[nodiscard]] BlockPointer take_block();
  // At least so many bytes. Throws Error.
  [[nodiscard]] BlockPointer take(std::size_t bytes);
  // For a message that a peer offers: null where the limit forbids it now. Throws Error.
  [[nodiscard]] BlockPointer take_counted(std::size_t bytes);
  // In the place of a receive that somebody keeps: null where the limit forbids it now.
  [[nodiscard]] BlockPointer replace_block();
  // The block is kept by the user: it counts from now on.
  void count(Block& block);
  [[nodiscard]] std::uint64_t counted_bytes() const;

 private:
  struct Slab {
    std::unique_ptr<std::byte[]> memory;
    verbs::MemoryRegion region;
    std::vector<Block> blocks;
  };

  [[nodiscard]] BlockPointer share(Block* block);
  [[nodiscard]] Block* make_large(std::size_t capacity);
  [[nodiscard]] BlockPointer take_large(std::size_t capacity);
  void add_slab();
  void give_back(Block* block);

  verbs::ProtectionDomain domain_;
  std::size_t block_bytes_;
  std::uint64_t limit_bytes_;
  verbs::Access large_access_;
  std::function<void()> on_release_;

  mutable std::mutex mutex_;  // all below
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<Block*> free_blocks_;
  std::array<std::vector<Block*>, 64> free_large_;  // by the power of two that they have
  std::uint64_t free_large_bytes_ = 0;
  std::uint64_t counted_bytes_ = 0;
};

}  // namespace weft::message::detail
