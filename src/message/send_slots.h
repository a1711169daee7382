// SendSlots: the frames of one connection that are posted and have not completed. Each has a slot,
// whose registered memory holds the header, and a short message, until the Send has completed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "message/device.h"
#include "message/record.h"
#include "message/session.h"
#include "weft/message/limits.hpp"

namespace weft::message::detail {

// Not thread-safe: belongs to the loop's thread.
class SendSlots {
 public:
  // Data frames are also limited by the peer's credits.
  static constexpr std::uint32_t count = 64;
  // The header, and behind it the pieces of a message.
  using Slices = std::array<verbs::LocalSlice, 1 + max_pieces>;

  // Allocates the memory, which is not touched before it is used: an idle connection does not pay
  // for it. `max_slices`: of one Send of the queue pair, at least 1. Throws Error.
  void open(std::shared_ptr<Device> device, std::size_t max_slices);
  // Frees the memory; no Send may be under way.
  void close();

  [[nodiscard]] bool available() const { return !free_.empty(); }
  [[nodiscard]] std::size_t under_way() const { return posted_.size() - free_.size(); }
  // The slot that prepare() will use; only where available().
  [[nodiscard]] std::uint32_t next() const { return free_.back(); }
  // Encodes the frame into that slot, grants the peer access to what it offers, and returns what is
  // to be sent, which lies in `slices`. Throws where memory runs out; then the slot stays free.
  [[nodiscard]] std::span<const verbs::LocalSlice> prepare(Emission& emission, Slices& slices);
  // The Send of this slot has completed. Returns how many messages it carried; offers do not count.
  [[nodiscard]] std::size_t complete(std::uint32_t slot);

  // The slot of the CLOSE frame, whose completion ends the connection.
  [[nodiscard]] bool is_closing(std::uint32_t slot) const { return closing_slot_ == slot; }
  [[nodiscard]] bool close_was_posted() const { return closing_slot_.has_value(); }

 private:
  // What a slot is in use for.
  struct Posted {
    std::size_t messages = 0;  // without offers
    BlockPointer copied;       // of joined messages, or of a message with too many pieces
  };
  [[nodiscard]] verbs::LocalSlice join(const Emission& emission, Posted& posted);
  [[nodiscard]] verbs::LocalSlice gather(const Emission& emission, Posted& posted);
  [[nodiscard]] verbs::LocalSlice copy(const Emission& emission, std::uint32_t slot);
  void grant(Record& record, Frame& frame);

  std::shared_ptr<Device> device_;
  std::size_t max_slices_ = 1;
  std::unique_ptr<std::byte[]> memory_;
  std::optional<verbs::TypedRegion<std::byte>> headers_;
  std::vector<std::uint32_t> free_;
  std::vector<Posted> posted_;  // by slot
  std::optional<std::uint32_t> closing_slot_;
};

}  // namespace weft::message::detail
