// RingCursor: where a sender puts its next bytes in a ring, and how much of the ring it uses.
//
// At first the sender uses only a part, from the beginning of the ring on, so that a stream that
// moves little touches little memory and stays in the processor's cache. A part that was too small
// is doubled at its end: instead of going on at the beginning, the sender goes on behind it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::stream::detail {

// The size of the next larger part.
[[nodiscard]] constexpr std::uint32_t doubled(std::uint32_t part_bytes, std::uint32_t ring_bytes) {
  return part_bytes > ring_bytes / 2 ? ring_bytes : 2 * part_bytes;
}

// Not thread-safe.
class RingCursor {
 public:
  // `part_bytes` is at least 1, and at most `ring_bytes`.
  RingCursor(std::uint32_t part_bytes, std::uint32_t ring_bytes)
      : part_bytes_(part_bytes), ring_bytes_(ring_bytes) {}

  [[nodiscard]] std::uint32_t part_bytes() const { return part_bytes_; }
  [[nodiscard]] std::uint32_t used_bytes() const { return used_bytes_; }
  [[nodiscard]] std::uint32_t free_bytes() const { return part_bytes_ - used_bytes_; }
  [[nodiscard]] bool has_room() const { return free_bytes() > 0 || can_grow(); }

  // How many of `wanted` bytes take() may take at once. Notes whether the part was too small.
  [[nodiscard]] std::uint32_t fitting(std::uint32_t wanted) {
    too_small_ = too_small_ || wanted > free_bytes();
    const std::uint32_t at = at_ == part_bytes_ ? 0 : at_;
    return std::min({wanted, free_bytes(), part_bytes_ - at});
  }
  // Takes at most fitting() bytes, and returns where they go.
  [[nodiscard]] std::uint32_t take(std::uint32_t bytes) {
    const std::uint32_t at = at_ == part_bytes_ ? 0 : at_;
    at_ = at + bytes;
    used_bytes_ += bytes;
    return at;
  }
  // The oldest bytes are free again.
  void give_back(std::uint32_t bytes) { used_bytes_ -= bytes; }

  [[nodiscard]] bool can_grow() const {
    return too_small_ && at_ == part_bytes_ && part_bytes_ < ring_bytes_;
  }
  // Only where can_grow().
  void grow() {
    part_bytes_ = doubled(part_bytes_, ring_bytes_);
    too_small_ = false;
  }

 private:
  std::uint32_t part_bytes_;  // the end of the part counts as its beginning only at the next take()
  std::uint32_t ring_bytes_;
  std::uint32_t at_ = 0;
  std::uint32_t used_bytes_ = 0;
  bool too_small_ = false;  // since the part has grown last
};

}  // namespace weft::stream::detail
