// What a program asks for in its hints, and what the provider has.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

namespace weft::fabric {

inline constexpr std::uint64_t capabilities =
    FI_MSG | FI_SEND | FI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM;
inline constexpr std::uint64_t message_order = FI_ORDER_SAS;

// What the provider is called; the name of the domain is that of the device.
[[nodiscard]] const char* domain_name();

// False where the hints ask for anything that is not there.
[[nodiscard]] bool can_serve(const fi_info& hints);

}  // namespace weft::fabric
