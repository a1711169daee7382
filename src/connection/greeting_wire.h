// The private data of two sides that agree to advertise buffers to each other. It has the place of
// the control region (connection/control_wire.h), and the user's private data behind it.
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
  verbs::RemoteSlice control;  // not sent is its length, which follows from `slots`
  std::optional<verbs::RemoteSlice> buffer;
  std::vector<std::byte> private_data;  // 255 bytes at most

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  // Returns nothing for bytes that are not such a greeting: all of them are the user's private data
  // then. Ignores bytes beyond the private data: transports may append zeros.
  [[nodiscard]] static std::optional<ControlGreeting> parse(std::span<const std::byte> bytes);
  friend bool operator==(const ControlGreeting&, const ControlGreeting&) = default;
};

}  // namespace weft::connection::detail
