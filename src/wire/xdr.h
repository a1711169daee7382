// XDR, External Data Representation: RFC 4506. A reader and a writer on top of ByteReader and
// ByteWriter. Both stay in their span and remember the first error, so that a decoder checks once
// at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/byte_reader.h"
#include "base/byte_writer.h"
#include "base/bytes.h"
#include "wire/error.h"

namespace weft::wire {

inline constexpr std::size_t xdr_unit_bytes = 4;

// Zero to three bytes pad every item to a multiple of four (RFC 4506 §3).
[[nodiscard]] constexpr std::size_t xdr_pad_bytes(std::size_t size) {
  return (xdr_unit_bytes - size % xdr_unit_bytes) % xdr_unit_bytes;
}
[[nodiscard]] constexpr std::uint64_t xdr_padded(std::uint64_t size) {
  return size + (xdr_unit_bytes - size % xdr_unit_bytes) % xdr_unit_bytes;
}

// Borrows the bytes; the spans that it returns point into them. After an error every read returns
// zero or nothing and the position does not move.
class XdrReader {
 public:
  explicit XdrReader(Bytes bytes) : in_(bytes) {}

  [[nodiscard]] bool ok() const { return in_.ok(); }
  // The first error; meaningless if ok().
  [[nodiscard]] WireError error() const { return error_; }
  [[nodiscard]] std::size_t position() const { return in_.position(); }
  [[nodiscard]] std::size_t left() const { return in_.left(); }
  // The bytes that are not read yet; empty after an error.
  [[nodiscard]] Bytes rest() const { return in_.rest(); }

  std::uint32_t u32() { return in_.be32(); }
  std::uint64_t u64() { return in_.be64(); }
  // Fails with bad_value unless the value is 0 or 1 (RFC 4506 §4.4).
  bool boolean() {
    const std::uint32_t value = u32();
    if (value > 1) fail(WireError::bad_value);
    return value == 1;
  }
  // Fixed-length opaque data, with the padding that follows it (RFC 4506 §4.9).
  Bytes fixed(std::size_t size);
  // Variable-length opaque data (RFC 4506 §4.10); fails with bad_length above `max`.
  Bytes opaque(std::size_t max = ~std::uint32_t{0});
  std::string_view text(std::size_t max = ~std::uint32_t{0});
  // The count of an array whose items take `item_bytes` at least. Fails with truncated if the bytes
  // that are left cannot hold that many, so that the caller neither loops nor allocates for a
  // number that is not true; fails with bad_length above `max`.
  std::uint32_t count(std::size_t item_bytes, std::uint32_t max = ~std::uint32_t{0});

  // Keeps the first error.
  void fail(WireError error) {
    if (!in_.ok()) return;
    in_.fail();
    error_ = error;
  }

 private:
  ByteReader in_;
  WireError error_ = WireError::truncated;  // what a read beyond the end means
};

// Writes nothing that does not fit whole.
class XdrWriter {
 public:
  explicit XdrWriter(MutableBytes out) : out_(out) {}

  [[nodiscard]] bool ok() const { return out_.ok(); }
  [[nodiscard]] std::size_t position() const { return out_.position(); }

  void u32(std::uint32_t value) { out_.be32(value); }
  void u64(std::uint64_t value) { out_.be64(value); }
  void boolean(bool value) { u32(value ? 1 : 0); }
  void fixed(Bytes bytes);
  void opaque(Bytes bytes);

 private:
  // Whether `size` more bytes fit; makes the writer fail otherwise.
  bool fits(std::uint64_t size);

  ByteWriter out_;
};

}  // namespace weft::wire
