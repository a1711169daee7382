#include "wire/xdr.h"

namespace weft::wire {

Bytes XdrReader::fixed(std::size_t size) {
  // The data must not be taken without its padding. Compared in two steps: the sum of a length near
  // the end of the address space and its padding wraps around.
  if (left() < size || left() - size < xdr_pad_bytes(size)) {
    fail(WireError::truncated);
    return {};
  }
  const Bytes taken = in_.bytes(size);
  in_.skip(xdr_pad_bytes(size));
  return taken;
}

// RFC 4506 §4.10: a length, then the data, then zeros up to a multiple of four bytes.
Bytes XdrReader::opaque(std::size_t max) {
  const std::uint32_t size = u32();
  if (size > max) fail(WireError::bad_length);
  return fixed(size);
}

std::string_view XdrReader::text(std::size_t max) {
  const Bytes bytes = opaque(max);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The count is compared with what is left of the message, so that a caller that reserves memory for
// this number of items never reserves more than the message can fill.
std::uint32_t XdrReader::count(std::size_t item_bytes, std::uint32_t max) {
  const std::uint32_t items = u32();
  if (items > max) fail(WireError::bad_length);
  if (item_bytes != 0 && items > left() / item_bytes) fail(WireError::truncated);
  return ok() ? items : 0;
}

// The writers below ask for an item with its length and its padding at once, so that an item is
// written as a whole or not at all.
bool XdrWriter::fits(std::uint64_t size) {
  if (out_.left() < size) out_.fail();
  return out_.ok();
}

void XdrWriter::fixed(Bytes bytes) {
  if (!fits(xdr_padded(bytes.size()))) return;
  out_.bytes(bytes);
  out_.zeros(xdr_pad_bytes(bytes.size()));
}

void XdrWriter::opaque(Bytes bytes) {
  if (!fits(xdr_unit_bytes + xdr_padded(bytes.size()))) return;
  u32(static_cast<std::uint32_t>(bytes.size()));
  fixed(bytes);
}

}  // namespace weft::wire
