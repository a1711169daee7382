#include "message/pool.h"

#include <algorithm>
#include <bit>

namespace weft::message::detail {
namespace {

// Each slab has twice as many blocks as the one before, because each takes a descriptor, here and
// while a peer maps it.
constexpr std::size_t first_slab_blocks = 64;
constexpr std::size_t largest_slab_blocks = 16384;
// Large blocks up to this length have a power of two of bytes, and are kept for reuse: to register
// memory costs more than all the rest of a message.
constexpr std::size_t reused_bytes = std::size_t{16} << 20;
constexpr std::uint64_t max_free_large_bytes = std::uint64_t{64} << 20;

std::size_t capacity_for(std::size_t bytes) {
  constexpr std::size_t least = 4096;
  return bytes <= reused_bytes ? std::bit_ceil(std::max(bytes, least)) : bytes;
}

// The exponent of the largest power of two in it.
std::size_t class_of(std::size_t capacity) {
  return 63 - static_cast<std::size_t>(std::countl_zero(std::uint64_t{capacity} | 1));
}

}  // namespace

Pool::Pool(verbs::ProtectionDomain domain, std::size_t block_bytes, std::uint64_t limit_bytes,
           verbs::Access large_access, std::function<void()> on_release)
    : domain_(std::move(domain)),
      block_bytes_((block_bytes + 63) / 64 * 64),
      limit_bytes_(limit_bytes),
      large_access_(large_access),
      on_release_(std::move(on_release)) {}

Pool::~Pool() {
  for (auto& blocks : free_large_) {
    for (Block* block : blocks) delete block;
  }
}

// To be called with mutex_ held. The memory is not touched, so pages that are never used cost
// nothing.
void Pool::add_slab() {
  const std::size_t count =
      std::min(first_slab_blocks << std::min<std::size_t>(slabs_.size(), 16), largest_slab_blocks);
  auto slab =
      std::make_unique<Slab>(Slab{domain_.allocate_shared<std::byte>(count * block_bytes_), {}});
  slab->blocks.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    Block& block = slab->blocks[i];
    block.data = slab->memory.elements().data() + i * block_bytes_;
    block.bytes = block_bytes_;
    block.lkey = slab->memory.lkey();
    block.pool = this;
    free_blocks_.push_back(&block);
  }
  slabs_.push_back(std::move(slab));
}

// Registers without the lock, because that takes long.
Block* Pool::make_large(std::size_t capacity) {
  auto block = std::make_unique<Block>();
  block->own.reset(new std::byte[capacity]);
  block->data = block->own.get();
  block->bytes = capacity;
  block->region.emplace(domain_.register_memory(std::span(block->data, capacity), large_access_));
  block->lkey = block->region->lkey();
  block->pool = this;
  return block.release();
}

BlockPointer Pool::share(Block* block) {
  return {block, [pool = shared_from_this()](Block* given) { pool->give_back(given); }};
}

BlockPointer Pool::take_block() {
  Block* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (free_blocks_.empty()) add_slab();
    block = free_blocks_.back();
    free_blocks_.pop_back();
  }
  return share(block);
}

BlockPointer Pool::take_large(std::size_t capacity) {
  {
    const std::lock_guard lock(mutex_);
    auto& blocks = free_large_[class_of(capacity)];
    // Blocks of one class are equally large, so any of them fits.
    if (capacity <= reused_bytes && !blocks.empty()) {
      Block* block = blocks.back();
      blocks.pop_back();
      free_large_bytes_ -= block->bytes;
      return share(block);
    }
  }
  return share(make_large(capacity));
}

BlockPointer Pool::take(std::size_t bytes) {
  return bytes <= block_bytes_ ? take_block() : take_large(capacity_for(bytes));
}

// Counts before it allocates, so that two threads cannot exceed the limit together.
BlockPointer Pool::take_counted(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    // Kept messages may have taken the count beyond the limit, so the difference must not go below
    // zero.
    if (bytes > limit_bytes_ - std::min(counted_bytes_, limit_bytes_)) return nullptr;
    counted_bytes_ += bytes;
  }
  BlockPointer block;
  try {
    block = take(bytes);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    counted_bytes_ -= bytes;
    throw;
  }
  block->counted_bytes = bytes;
  return block;
}

// A single kept block may exceed the limit: the check is only that it is not exceeded already.
BlockPointer Pool::replace_block() {
  {
    const std::lock_guard lock(mutex_);
    if (counted_bytes_ > limit_bytes_) return nullptr;
  }
  return take_block();
}

void Pool::count(Block& block) {
  const std::lock_guard lock(mutex_);
  if (block.counted_bytes == 0) counted_bytes_ += block.counted_bytes = block.bytes;
}

std::uint64_t Pool::counted_bytes() const {
  const std::lock_guard lock(mutex_);
  return counted_bytes_;
}

// The deleter of a block's shared pointer.
void Pool::give_back(Block* block) {
  std::unique_ptr<Block> unwanted;
  bool counted = false;
  {
    const std::lock_guard lock(mutex_);
    counted = block->counted_bytes > 0;
    counted_bytes_ -= block->counted_bytes;
    block->counted_bytes = 0;
    if (!block->region) {
      free_blocks_.push_back(block);
    } else if (block->bytes <= reused_bytes &&
               free_large_bytes_ + block->bytes <= max_free_large_bytes) {
      free_large_bytes_ += block->bytes;
      free_large_[class_of(block->bytes)].push_back(block);
    } else {
      unwanted.reset(block);
    }
  }
  if (counted && on_release_) on_release_();
}

}  // namespace weft::message::detail
