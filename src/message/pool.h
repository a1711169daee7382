// Pool: registered memory of one device and one loop, for receives, buffers to send, and long
// messages.
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

// A piece of a pool's memory. Its shared pointer returns it to the pool when it is destroyed, and
// keeps the pool until then.
struct Block {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t lkey = 0;
  Pool* pool = nullptr;
  std::uint64_t counted_bytes = 0;  // against the limit

  // For a block that is no part of a slab. The memory must outlive its registration.
  std::unique_ptr<std::byte[]> own;
  std::optional<verbs::MemoryRegion> region;
};
using BlockPointer = std::shared_ptr<Block>;

// Thread-safe, because blocks are returned by any thread.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // `block_bytes` is the length of a receive. At most `limit_bytes` are used for what peers send
  // (counted blocks). `large_access` is for blocks that long messages are read into. `on_release`
  // is called, by any thread and without a lock, after a counted block was returned.
  Pool(verbs::ProtectionDomain domain, std::size_t block_bytes, std::uint64_t limit_bytes,
       verbs::Access large_access, std::function<void()> on_release);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] std::size_t block_bytes() const { return block_bytes_; }
  // A block for a receive, or for a short message to send. Throws Error.
  [[nodiscard]] BlockPointer take_block();
  // A block of at least this length. Throws Error.
  [[nodiscard]] BlockPointer take(std::size_t bytes);
  // A counted block for a message that the peer offers; null while the limit is reached. Throws
  // Error.
  [[nodiscard]] BlockPointer take_counted(std::size_t bytes);
  // A block in the place of a receive that the application keeps; null while the limit is exceeded.
  [[nodiscard]] BlockPointer replace_block();
  // The application keeps the block: it counts from now on.
  void count(Block& block);
  [[nodiscard]] std::uint64_t counted_bytes() const;

 private:
  // In memory of a file, where the kernel has such files: a peer process on this host then stores
  // what it sends without a system call.
  struct Slab {
    verbs::TypedRegion<std::byte> memory;
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

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<Block*> free_blocks_;
  std::array<std::vector<Block*>, 64> free_large_;  // by the logarithm of their length
  std::uint64_t free_large_bytes_ = 0;
  std::uint64_t counted_bytes_ = 0;
};

}  // namespace weft::message::detail
