// A smaller adapter: what a device shall show and grant less of than it has, so that programs meet
// the limits of other adapters. `weft help faults` describes the list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::faults {

enum class Capability : std::uint8_t {
  queue_pairs,
  work_requests,
  slices,
  inline_bytes,
  completion_queues,
  completions,
  regions,
  region_bytes,
  windows,
  domains,
  shared_receive_queues,
  shared_receives,
  address_handles,
  read_depth,
  atomics,
  immediates,
};
inline constexpr std::size_t capability_count =
    static_cast<std::size_t>(Capability::immediates) + 1;

struct CapabilityName {
  std::string_view name;  // as the field of ibv_device_attr(3) where there is one
  Capability capability;
  std::uint64_t least;
  std::uint64_t most;        // what the device has
  std::string_view meaning;  // a whole sentence, for the help
};
// In the order of Capability, which is that of the help.
[[nodiscard]] std::span<const CapabilityName> capability_names();

// All that a device has, or less.
class AdapterLimits {
 public:
  // Without restrictions.
  AdapterLimits();

  [[nodiscard]] std::uint64_t most(Capability capability) const {
    return most_[static_cast<std::size_t>(capability)];
  }
  [[nodiscard]] bool allows(Capability capability) const { return most(capability) != 0; }
  void restrict_to(Capability capability, std::uint64_t most) {
    most_[static_cast<std::size_t>(capability)] = most;
  }
  // Whether the user has restricted anything.
  [[nodiscard]] bool restricted() const;

 private:
  std::array<std::uint64_t, capability_count> most_{};
};

// Reads "max_qp=8,max_inline=0,atomics=0". The error is several lines: what is wrong, the list, and
// a caret below the place.
[[nodiscard]] Result<AdapterLimits, std::string> parse_adapter(std::string_view text);

}  // namespace weft::faults
