// Names of rdma_set_option(3), level RDMA_OPTION_ID, that only layers of Weft use, on the embedded
// device.
#pragma once

namespace weft {

// How long rdma_connect(3) waits for the peer's program to accept or to reject: nanoseconds, as
// std::uint64_t. 0: as long as other ids wait.
inline constexpr int reply_timeout_option = 0x5745;
// How long an attempt is repeated that is refused, because nothing listens at the port:
// nanoseconds, as std::uint64_t. Otherwise it is as long as limits.h of the device says.
inline constexpr int refused_time_option = 0x5746;

}  // namespace weft
