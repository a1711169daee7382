#include "wire/xdr.h"

#include <algorithm>

#include "base/size.h"

namespace weft::wire {

Bytes XdrReader::fixed(std::size_t size) {
  // In two steps: the sum of a length near the end of the address space and its pad wraps.
  if (failed_ || left() < size || left() - size < xdr_pad_bytes(size)) {
    fail(WireError::truncated);
    return {};
  }
  const Bytes taken = bytes_.subspan(position_, size);
  position_ += size + xdr_pad_bytes(size);
  return taken;
}

Bytes XdrReader::opaque(std::size_t max) {
  const std::uint32_t size = u32();
  if (size > max) fail(WireError::bad_length);
  return fixed(size);
}

std::string_view XdrReader::text(std::size_t max) {
  const Bytes bytes = opaque(max);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint32_t XdrReader::count(std::size_t item_bytes, std::uint32_t max) {
  const std::uint32_t items = u32();
  if (items > max) fail(WireError::bad_length);
  if (item_bytes != 0 && items > left() / item_bytes) fail(WireError::truncated);
  return failed_ ? 0 : items;
}

void XdrWriter::fixed(Bytes bytes) {
  const MutableBytes at = take(to_size(xdr_padded(bytes.size())));
  if (at.size() < bytes.size()) return;
  std::ranges::copy(bytes, at.begin());
  std::ranges::fill(at.subspan(bytes.size()), std::byte{0});
}

void XdrWriter::opaque(Bytes bytes) {
  if (out_.size() - position_ < 4 + xdr_padded(bytes.size())) {
    failed_ = true;
    return;
  }
  u32(static_cast<std::uint32_t>(bytes.size()));
  fixed(bytes);
}

}  // namespace weft::wire
