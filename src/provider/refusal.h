// Why a client was closed before it became a connection of the device.
#pragma once

#include <array>

namespace weft::provider {

// The names are those of the statistics: docs/security.md.
enum class Refusal {
  timed_out,           // its request was not whole in time
  malformed,           // it spoke something that is not served, or ended within its request
  closed,              // it ended before its first byte
  evicted,             // it was silent, and made room for another one
  out_of_descriptors,  // a descriptor or memory was missing
};
inline constexpr std::array all_refusals{Refusal::timed_out, Refusal::malformed, Refusal::closed,
                                         Refusal::evicted, Refusal::out_of_descriptors};

}  // namespace weft::provider
