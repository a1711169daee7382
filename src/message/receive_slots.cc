#include "message/receive_slots.h"

#include <utility>

namespace weft::message::detail {

void ReceiveSlots::open(Pool& pool, std::uint32_t count) {
  block_bytes_ = pool.block_bytes();
  kept_.resize(count);
  blocks_.reserve(count);
  for (std::uint32_t slot = 0; slot < count; ++slot) blocks_.push_back(pool.take_block());
}

verbs::LocalSlice ReceiveSlots::slice(std::uint32_t slot) const {
  const Block& block = *blocks_[slot];
  return {reinterpret_cast<std::uint64_t>(block.data), static_cast<std::uint32_t>(block_bytes_),
          block.lkey};
}

BlockPointer ReceiveSlots::restore(std::uint32_t slot) {
  for (Displaced& one : displaced_) {
    if (one.slot != slot) continue;
    BlockPointer used = std::exchange(blocks_[slot], std::move(one.block));
    one = std::move(displaced_.back());
    displaced_.pop_back();
    return used;
  }
  return nullptr;
}

BlockPointer ReceiveSlots::take(const InMessage& message) {
  BlockPointer& block = blocks_[message.slot];
  return message.last ? std::move(block) : block;
}

// A block that any of its messages was kept of belongs to the application: it must not be posted
// again, even if the last message was not kept.
ReceiveSlots::State ReceiveSlots::release(const InMessage& message, BlockPointer rest) {
  if (!rest) kept_[message.slot] = true;
  if (!message.last) return State::in_use;
  if (kept_[message.slot]) {
    kept_[message.slot] = false;
    missing_.push_back(message.slot);
    return State::missing;
  }
  blocks_[message.slot] = std::move(rest);
  return State::ready;
}

std::uint32_t ReceiveSlots::fill(BlockPointer block) {
  const std::uint32_t slot = missing_.back();
  missing_.pop_back();
  blocks_[slot] = std::move(block);
  return slot;
}

}  // namespace weft::message::detail
