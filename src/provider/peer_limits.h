// What strangers and peers can make the device hold, and for how long, as the user sets it:
// WEFT_LIMITS, and the members of DeviceOptions of the same names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/limits.h"
#include "device/settings.h"

namespace weft::provider {

// The values that are accepted, both ends included.
namespace peer_limits {
inline constexpr std::uint64_t least_places = device::limits::least_half_open;
inline constexpr std::uint64_t most_places = 65536;
inline constexpr std::uint64_t least_ms = 1;
inline constexpr std::uint64_t most_ms = 3'600'000;
inline constexpr std::uint64_t most_held_bytes = std::uint64_t{1} << 30;
}  // namespace peer_limits

// Reads "half_open=64,first_byte=1s,hold_bytes=64KiB". Returns an empty string, or several lines:
// what is wrong, the list, and a caret below the place. `settings` is then partly changed.
[[nodiscard]] std::string read_peer_limits(std::string_view text, device::Settings& settings);

}  // namespace weft::provider
