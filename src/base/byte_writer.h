// ByteWriter writes integers and runs of bytes into a span, one after the other, and checks each
// write against the end of the span. It is the counterpart of ByteReader.
//
// Nothing here allocates or throws: the caller provides the memory, and calls ok() once at the end
// unless it has computed the size before.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weft {

// Borrows the memory. A write that does not fit whole writes nothing and clears ok(); from then on
// every write does nothing, and the position does not move.
class ByteWriter {
 public:
  constexpr explicit ByteWriter(MutableBytes out) : out_(out) {}

  // Whether every write has fitted, and the user has not called fail().
  [[nodiscard]] constexpr bool ok() const { return ok_; }
  // The number of bytes written and skipped so far.
  [[nodiscard]] constexpr std::size_t position() const { return position_; }
  [[nodiscard]] constexpr std::size_t left() const { return out_.size() - position_; }

  // Makes the writer behave as if it had run out of room.
  constexpr void fail() { ok_ = false; }

  constexpr void u8(std::uint8_t value) { be(value); }
  constexpr void be16(std::uint16_t value) { be(value); }
  constexpr void be32(std::uint32_t value) { be(value); }
  constexpr void be64(std::uint64_t value) { be(value); }
  constexpr void le16(std::uint16_t value) { le(value); }
  constexpr void le32(std::uint32_t value) { le(value); }
  constexpr void le64(std::uint64_t value) { le(value); }

  constexpr void bytes(Bytes bytes) {
    if (!fits(bytes.size())) return;
    std::copy(bytes.begin(), bytes.end(), next());
    position_ += bytes.size();
  }

  constexpr void zeros(std::size_t size) {
    if (!fits(size)) return;
    std::fill_n(next(), size, std::byte{0});
    position_ += size;
  }

  // Writes zeros up to the next position that is a multiple of `alignment`, which is not zero.
  constexpr void zeros_to_multiple(std::size_t alignment) {
    zeros((alignment - position_ % alignment) % alignment);
  }

  // Leaves `size` bytes as they are, for a payload that the caller copies there.
  constexpr void skip(std::size_t size) {
    if (fits(size)) position_ += size;
  }

 private:
  [[nodiscard]] constexpr MutableBytes::iterator next() const {
    return out_.begin() + static_cast<std::ptrdiff_t>(position_);
  }

  constexpr bool fits(std::size_t size) {
    if (left() < size) ok_ = false;
    return ok_;
  }

  template <std::unsigned_integral T>
  constexpr void be(T value) {
    if (!fits(sizeof(T))) return;
    store_be(out_.data() + position_, value);
    position_ += sizeof(T);
  }

  template <std::unsigned_integral T>
  constexpr void le(T value) {
    if (!fits(sizeof(T))) return;
    store_le(out_.data() + position_, value);
    position_ += sizeof(T);
  }

  MutableBytes out_;
  std::size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace weft
