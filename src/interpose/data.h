// What goes through a stream, as the calls of sockets say it: -1 and errno.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <new>
#include <span>
#include <vector>

#include "interpose/socket.h"
#include "weft/error.hpp"

namespace weft::interpose {

using Into = std::span<std::span<std::byte>>;
using From = std::span<std::span<const std::byte>>;

// Nothing was done, and from now on the kernel does it.
inline constexpr ssize_t piped = -2;

// These change the list of pieces.
[[nodiscard]] ssize_t receive(Socket& socket, Into into, int flags);
[[nodiscard]] ssize_t send(Socket& socket, From from, int flags);
[[nodiscard]] ssize_t receive(Socket& socket, void* into, std::size_t bytes, int flags);
[[nodiscard]] ssize_t send(Socket& socket, const void* from, std::size_t bytes, int flags);
[[nodiscard]] ssize_t receive(Socket& socket, const iovec* pieces, std::size_t count, int flags);
[[nodiscard]] ssize_t send(Socket& socket, const iovec* pieces, std::size_t count, int flags);

// Descriptors that go to another process: from now on the kernel carries their bytes. False with
// errno where that cannot be.
[[nodiscard]] bool pipe_passed_descriptors(const msghdr& message);

inline int fail_with(int error) {
  errno = error;
  return -1;
}

// No exception crosses the C ABI.
template <typename Call>
auto guarded(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const Error& error) {
    errno = error.error_number() == ECANCELED ? ECONNRESET : error.error_number();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (...) {
    errno = EIO;
  }
  return -1;
}

}  // namespace weft::interpose
