// Compares the hints of a program with what the provider offers.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

namespace weft::fabric {

inline constexpr std::uint64_t capabilities =
    FI_MSG | FI_SEND | FI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM;
inline constexpr std::uint64_t message_order = FI_ORDER_SAS;

// The name of the device: "weft0", or "system" for the machine's own RDMA devices.
[[nodiscard]] const char* domain_name();

// False if the hints ask for anything that the provider does not have.
[[nodiscard]] bool can_serve(const fi_info& hints);

}  // namespace weft::fabric
