// Transfers by the kernel or by internal functions of the C library, which know only the program's
// descriptor.
#pragma once

namespace weft::interpose {

// Lets the kernel carry the bytes of `fd` from now on, by a relay. False with ENOTCONN for a socket
// that is not connected. No effect on files that are not sockets of this library.
[[nodiscard]] bool relay_for_kernel(int fd);

}  // namespace weft::interpose
