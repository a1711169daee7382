#include "weft/capture/segment.hpp"

#include <algorithm>

#include "base/size.h"

namespace weft::capture {
namespace {

constexpr std::uint32_t psn_mask = 0xFFFFFF;
// InfiniBand has path MTUs of 256 to 4096 bytes.
constexpr std::uint64_t smallest_mtu_bytes = 256;

}  // namespace

// A length within the smallest MTU is one packet with every MTU.
std::uint64_t SubSegment::packets() const {
  if (length_ <= smallest_mtu_bytes) return 1;
  return mtu_bytes_ == 0 ? 0 : (length_ + mtu_bytes_ - 1) / mtu_bytes_;
}

// PSNs have 24 bits and wrap around, so the difference does as well.
std::uint32_t SubSegment::distance(std::uint32_t psn) const {
  return (psn - first_psn_) & psn_mask;
}

// Stores the part that lies in the segment. Bytes outside of it are counted, but not stored.
Segment::Placed Segment::place(std::uint64_t address, Bytes bytes, std::uint64_t missing) {
  Placed placed;
  const std::uint64_t total = bytes.size() + missing;
  const std::uint64_t offset = address - this->address();
  // An address below the segment has wrapped around to a large offset.
  if (offset >= length()) {
    placed.outside = total;
    return placed;
  }
  const std::uint64_t room = length() - offset;
  placed.outside = total > room ? total - room : 0;
  const std::size_t fits = to_size(std::min<std::uint64_t>(bytes.size(), room));
  placed.bytes = bytes_.place(offset, bytes.first(fits));
  bytes_.place_cut(offset + fits, std::min(missing, room - fits));
  return placed;
}

bool Segment::holds(std::uint64_t address, std::uint64_t size) const {
  const std::uint64_t offset = address - this->address();
  return bytes_.present(offset + size) - bytes_.present(offset) == size;
}

Assembled Segment::take(std::uint64_t length, Padding padding) const {
  Assembled taken = bytes_.take(0, std::min<std::uint64_t>(length, this->length()));
  if (padding == Padding::with) taken.pad();
  return taken;
}

}  // namespace weft::capture
