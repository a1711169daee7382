// ByteReader reads integers and sub-spans from a span of bytes, one after the other, and checks
// each read against the end of the span.
//
// A parser reads all fields of a format without looking at errors, and calls ok() once at the end:
//
//   ByteReader in(bytes);
//   const auto type = in.u8();
//   const auto length = in.be16();
//   const Bytes payload = in.bytes(length);
//   if (!in.ok()) return std::nullopt;
//
// Nothing here allocates or throws.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weft {

// Borrows the bytes; the spans that it returns point into them. A read that does not fit takes
// nothing and clears ok(); from then on every read returns zero or an empty span, and the position
// does not move.
class ByteReader {
 public:
  constexpr explicit ByteReader(Bytes bytes) : bytes_(bytes) {}

  // Whether every read has fitted, and the user has not called fail().
  [[nodiscard]] constexpr bool ok() const { return ok_; }
  [[nodiscard]] constexpr std::size_t position() const { return position_; }
  [[nodiscard]] constexpr std::size_t left() const { return bytes_.size() - position_; }
  // The bytes that are not read yet; empty after an error.
  [[nodiscard]] constexpr Bytes rest() const { return ok_ ? bytes_.subspan(position_) : Bytes(); }

  // For a value that was read and is not allowed: the reader behaves as if it had run out of bytes.
  constexpr void fail() { ok_ = false; }

  constexpr std::uint8_t u8() { return be<std::uint8_t>(); }
  constexpr std::uint16_t be16() { return be<std::uint16_t>(); }
  constexpr std::uint32_t be32() { return be<std::uint32_t>(); }
  constexpr std::uint64_t be64() { return be<std::uint64_t>(); }
  constexpr std::uint16_t le16() { return le<std::uint16_t>(); }
  constexpr std::uint32_t le32() { return le<std::uint32_t>(); }
  constexpr std::uint64_t le64() { return le<std::uint64_t>(); }

  // The next `size` bytes, or an empty span where there are less.
  constexpr Bytes bytes(std::size_t size) {
    if (!fits(size)) return {};
    const Bytes taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }

  constexpr void skip(std::size_t size) {
    if (fits(size)) position_ += size;
  }

  // Skips padding: up to the next position that is a multiple of `alignment`, which is not zero.
  constexpr void skip_to_multiple(std::size_t alignment) {
    skip((alignment - position_ % alignment) % alignment);
  }

 private:
  constexpr bool fits(std::size_t size) {
    if (left() < size) ok_ = false;
    return ok_;
  }

  template <std::unsigned_integral T>
  constexpr T be() {
    if (!fits(sizeof(T))) return 0;
    const T value = load_be<T>(bytes_.data() + position_);
    position_ += sizeof(T);
    return value;
  }

  template <std::unsigned_integral T>
  constexpr T le() {
    if (!fits(sizeof(T))) return 0;
    const T value = load_le<T>(bytes_.data() + position_);
    position_ += sizeof(T);
    return value;
  }

  Bytes bytes_;
  std::size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace weft
