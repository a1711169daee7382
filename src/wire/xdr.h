// XDR, External Data Representation: RFC 4506. A cursor that reads and one that writes; both stay
// in their span and remember the first thing that went wrong, so that a decoder checks once at the
// end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "wire/error.h"

namespace weft::wire {

inline constexpr std::size_t xdr_unit_bytes = 4;

// Zero to three bytes bring every item to a multiple of four (RFC 4506 §3).
[[nodiscard]] constexpr std::size_t xdr_pad_bytes(std::size_t size) {
  return (xdr_unit_bytes - size % xdr_unit_bytes) % xdr_unit_bytes;
}
[[nodiscard]] constexpr std::uint64_t xdr_padded(std::uint64_t size) {
  return size + (xdr_unit_bytes - size % xdr_unit_bytes) % xdr_unit_bytes;
}

// Borrows the bytes; what it returns points into them. After an error every read returns zero or
// nothing and the position stays where it was.
class XdrReader {
 public:
  explicit XdrReader(Bytes bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ok() const { return !failed_; }
  // Only where !ok().
  [[nodiscard]] WireError error() const { return error_; }
  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] std::size_t left() const { return bytes_.size() - position_; }
  [[nodiscard]] Bytes rest() const { return bytes_.subspan(position_); }

  std::uint32_t u32() {
    const Bytes taken = take(4);
    return taken.empty() ? 0 : load_be<std::uint32_t>(taken.data());
  }
  std::uint64_t u64() {
    const Bytes taken = take(8);
    return taken.empty() ? 0 : load_be<std::uint64_t>(taken.data());
  }
  // bad_value unless 0 or 1 (RFC 4506 §4.4).
  bool boolean() {
    const std::uint32_t value = u32();
    if (value > 1) fail(WireError::bad_value);
    return value == 1;
  }
  // Fixed-length opaque data, with the padding that follows it (RFC 4506 §4.9).
  Bytes fixed(std::size_t size);
  // Variable-length opaque data (RFC 4506 §4.10); bad_length above `max`.
  Bytes opaque(std::size_t max = ~std::uint32_t{0});
  std::string_view text(std::size_t max = ~std::uint32_t{0});
  // The count of an array whose items take `item_bytes` at least: truncated where so many cannot
  // follow, so that nobody loops or allocates for a number that only the sender believes in.
  std::uint32_t count(std::size_t item_bytes, std::uint32_t max = ~std::uint32_t{0});

  // Keeps the first error.
  void fail(WireError error) {
    if (failed_) return;
    failed_ = true;
    error_ = error;
  }

 private:
  Bytes take(std::size_t size) {
    if (failed_ || left() < size) {
      fail(WireError::truncated);
      return {};
    }
    const Bytes taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }

  Bytes bytes_;
  std::size_t position_ = 0;
  bool failed_ = false;
  WireError error_ = WireError::truncated;
};

// Writes nothing that does not fit whole.
class XdrWriter {
 public:
  explicit XdrWriter(MutableBytes out) : out_(out) {}

  [[nodiscard]] bool ok() const { return !failed_; }
  [[nodiscard]] std::size_t position() const { return position_; }

  void u32(std::uint32_t value) {
    const MutableBytes at = take(4);
    if (!at.empty()) store_be(at.data(), value);
  }
  void u64(std::uint64_t value) {
    const MutableBytes at = take(8);
    if (!at.empty()) store_be(at.data(), value);
  }
  void boolean(bool value) { u32(value ? 1 : 0); }
  void fixed(Bytes bytes);
  void opaque(Bytes bytes);

 private:
  MutableBytes take(std::size_t size) {
    if (failed_ || out_.size() - position_ < size) {
      failed_ = true;
      return {};
    }
    const MutableBytes at = out_.subspan(position_, size);
    position_ += size;
    return at;
  }

  MutableBytes out_;
  std::size_t position_ = 0;
  bool failed_ = false;
};

}  // namespace weft::wire
