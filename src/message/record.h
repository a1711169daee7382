// Record: a message that the application sends, with what keeps its memory valid.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "message/pool.h"
#include "message/session.h"

namespace weft::message::detail {

class Link;

struct Record : OutMessage {
  std::weak_ptr<Link> link;
  const Link* owner = nullptr;  // the address of `link`, to be compared only
  struct Piece {
    std::byte* at;
    std::uint64_t bytes;
    std::uint32_t lkey;
  };
  std::vector<Piece> pieces;
  // A copy of a short message, which is copied once more into its frame: a block of the pool would
  // cost more than that.
  static constexpr std::size_t short_bytes = 128;
  std::array<std::byte, short_bytes> copy;
  std::vector<std::byte> early;  // a copy from the time before there was a pool to copy into
  BlockPointer block;            // owns the pieces; null if they are memory of the application
  // Registrations that let the peer read the pieces, while the message is offered.
  std::vector<verbs::MemoryRegion> granted;

  // Whether the message is in `copy`, which is not registered.
  [[nodiscard]] bool is_short_copy() const {
    return pieces.size() == 1 && pieces.front().at == copy.data();
  }

  // Makes it a new message.
  void reset() {
    OutMessage::reset();
    pieces.clear();
    early.clear();
    block.reset();
    granted.clear();
  }
};

}  // namespace weft::message::detail
