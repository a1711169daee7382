// System calls of Weft itself, which the library below `weft run --sockets` must not take for calls
// of the program: it replaces syscall(2), because some programs close their descriptors by it. A
// close(2) of Weft's own would end what that library knows of an earlier file of the program with
// the same number. Weft may hold a lock then that is needed for that.
#pragma once

namespace weft {

namespace detail {
// The function of the C library. Where that is not found, the function that the program's calls
// reach.
using Syscall = long (*)(long number, ...) noexcept;
extern Syscall syscall_of_c_library;
}  // namespace detail

// As syscall(2): the result, or -1 with errno. Thread-safe, and safe in a signal handler.
template <typename... Arguments>
long system_call(long number, Arguments... arguments) {
  return detail::syscall_of_c_library(number, arguments...);
}

}  // namespace weft
