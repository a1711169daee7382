// What two sides that want to advertise buffers to each other put around the user's private data.
//
//   0  4  "WEFC"
//   4  1  version, 1
//   5  1  flags: bit 0, a buffer is advertised
//   6  2  slots of the ring
//   8  8  address of the control region
//  16  4  its rkey
//  20  1  n, bytes of the user's private data
//  21 20  the advertised buffer: address, length, rkey; only with bit 0
//   +  n  the user's private data
//
// All in network order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/connection/options.hpp"

namespace weft::connection::detail {

struct ControlGreeting {
  static constexpr std::size_t fixed_bytes = 21;

  std::uint16_t slots = 0;
  verbs::RemoteSlice control;  // its length follows from `slots`
  std::optional<verbs::RemoteSlice> buffer;
  std::vector<std::byte> private_data;

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  // Nothing where the bytes are no such greeting; bytes behind it are ignored.
  [[nodiscard]] static std::optional<ControlGreeting> parse(std::span<const std::byte> bytes);
};

}  // namespace weft::connection::detail
