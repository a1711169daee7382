// ReceiveSlots: the memory that the receives of one connection are posted with. A slot is a
// receive; its block goes to the application with the message, and comes back or is replaced by a
// new one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "message/inbox.h"
#include "message/pool.h"
#include "weft/verbs.hpp"

namespace weft::message::detail {

// Not thread-safe: belongs to the loop's thread.
class ReceiveSlots {
 public:
  // Takes a block for each slot. Throws Error.
  void open(Pool& pool, std::uint32_t count);
  // Frees the blocks; nothing may be posted any more.
  void close() {
    blocks_.clear();
    displaced_.clear();
  }

  // What to post for a slot that has its block.
  [[nodiscard]] verbs::LocalSlice slice(std::uint32_t slot) const;
  // The first bytes of what was received.
  [[nodiscard]] Bytes bytes(std::uint32_t slot, std::size_t size) const {
    return {blocks_[slot]->data, size};
  }
  // What was received lies in this block, and not in the one that was posted.
  void replace(std::uint32_t slot, BlockPointer block) {
    displaced_.push_back({slot, std::exchange(blocks_[slot], std::move(block))});
  }
  // Before the slot is posted again: undoes replace(), and returns its block; null where there was
  // none.
  [[nodiscard]] BlockPointer restore(std::uint32_t slot);
  // The block of a message that came in a receive. Messages that came in the same receive share it;
  // the last one takes it out of the slot.
  [[nodiscard]] BlockPointer take(const InMessage& message);

  enum class State {
    in_use,   // other messages of the same receive are still to be handed over
    ready,    // the slot has its block again, and can be posted
    missing,  // the application has kept the block: the slot needs another one
  };
  // The message was handed over; `rest` is its block, or null if the application has kept it.
  [[nodiscard]] State release(const InMessage& message, BlockPointer rest);

  [[nodiscard]] bool has_missing() const { return !missing_.empty(); }
  // Gives the block to a slot without one, and returns the slot.
  [[nodiscard]] std::uint32_t fill(BlockPointer block);

 private:
  std::size_t block_bytes_ = 0;
  std::vector<BlockPointer> blocks_;    // by slot; null: with the application, or missing
  std::vector<bool> kept_;              // by slot: an earlier message of the receive was kept
  std::vector<std::uint32_t> missing_;  // slots that need a block
  struct Displaced {
    std::uint32_t slot;
    BlockPointer block;
  };
  std::vector<Displaced> displaced_;  // nearly always one or none
};

}  // namespace weft::message::detail
