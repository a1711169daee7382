// What the binary form of an Endpoint (endpoint_wire.cc) and its text form (endpoint.cc) share.
#pragma once

#include <cstdint>

namespace weft::verbs {

// QPNs and PSNs have 24 bits; both forms have room for more.
inline constexpr std::uint32_t endpoint_number_limit = 1 << 24;

}  // namespace weft::verbs
