#include "capture/infiniband/ib_path.h"

#include <algorithm>
#include <bit>

namespace weft::capture {
namespace {

// The path MTUs that exist (§9.7.5.1.1 and §11.2.1) are these and the powers of two between them.
constexpr std::uint64_t smallest_mtu_bytes = 256;
constexpr std::uint64_t largest_mtu_bytes = 4096;

// An empty message is one packet too.
std::uint64_t packets_with(std::uint64_t mtu_bytes, std::uint64_t bytes) {
  return std::max<std::uint64_t>((bytes + mtu_bytes - 1) / mtu_bytes, 1);
}

}  // namespace

void IbPath::set(std::uint32_t mtu_bytes) {
  least_bytes_ = mtu_bytes != 0 ? mtu_bytes : smallest_mtu_bytes;
  most_bytes_ = mtu_bytes != 0 ? mtu_bytes : largest_mtu_bytes;
}

void IbPath::learn(std::uint64_t payload_bytes, bool full) {
  if (full) {
    if (may_be(payload_bytes)) least_bytes_ = most_bytes_ = payload_bytes;
  } else if (payload_bytes <= most_bytes_) {
    least_bytes_ = std::max(least_bytes_, std::bit_ceil(payload_bytes));
  }
}

bool IbPath::may_be(std::uint64_t mtu_bytes) const {
  return std::has_single_bit(mtu_bytes) && mtu_bytes >= least_bytes_ && mtu_bytes <= most_bytes_;
}

std::uint64_t IbPath::full_bytes(std::uint64_t found) const {
  return std::bit_ceil(std::clamp(found, least_bytes_, most_bytes_));
}

std::optional<std::uint64_t> IbPath::packets_of(std::uint64_t bytes) const {
  const std::uint64_t packets = packets_with(least_bytes_, bytes);
  if (packets != packets_with(most_bytes_, bytes)) return {};
  return packets;
}

// Returns the number if it is the same with every MTU that keeps the response within the distance,
// or with the largest MTU if none does: then the next request repeats the end of the Read.
std::optional<std::uint64_t> IbPath::packets_within(std::uint64_t bytes,
                                                    std::uint64_t distance) const {
  if (may_be(guessed_bytes_) && packets_with(guessed_bytes_, bytes) == distance) return distance;
  const std::uint64_t fewest = packets_with(most_bytes_, bytes);
  for (std::uint64_t mtu = least_bytes_; mtu < most_bytes_; mtu *= 2) {
    const std::uint64_t packets = packets_with(mtu, bytes);
    if (packets <= distance && packets != fewest) return {};
  }
  return fewest;
}

std::uint64_t IbPath::guess_packets(std::uint64_t bytes, std::uint64_t distance) {
  for (std::uint64_t mtu = least_bytes_; mtu <= most_bytes_; mtu *= 2) {
    if (packets_with(mtu, bytes) != distance) continue;
    guessed_bytes_ = mtu;
    return distance;
  }
  return packets_with(most_bytes_, bytes);
}

}  // namespace weft::capture
