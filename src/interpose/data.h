// Receives and sends through a stream with the results of socket calls: -1 and errno.
#pragma once

#include <cxxabi.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <new>
#include <span>
#include <vector>

#include "interpose/program_signals.h"
#include "interpose/socket.h"
#include "weft/error.hpp"

namespace weft::interpose {

using Into = std::span<std::span<std::byte>>;
using From = std::span<std::span<const std::byte>>;

// Returned if nothing was done because a relay has started: call the kernel's function instead.
inline constexpr ssize_t call_kernel = -2;

// These two remove from the list of pieces what was transferred.
[[nodiscard]] ssize_t receive(Socket& socket, Into into, int flags);
[[nodiscard]] ssize_t send(Socket& socket, From from, int flags);
[[nodiscard]] ssize_t receive(Socket& socket, void* into, std::size_t bytes, int flags);
[[nodiscard]] ssize_t send(Socket& socket, const void* from, std::size_t bytes, int flags);
[[nodiscard]] ssize_t receive(Socket& socket, const iovec* pieces, std::size_t count, int flags);
[[nodiscard]] ssize_t send(Socket& socket, const iovec* pieces, std::size_t count, int flags);

inline int fail_with(int error) {
  errno = error;
  return -1;
}

// Runs the work of a call (InCall). Turns exceptions into -1 and errno: none may cross the C ABI.
// But a thread that is cancelled (pthread_cancel(3)) unwinds its stack by one of its own, which
// must.
template <typename Call>
auto guarded(const Call& call) -> decltype(call()) {
  const InCall work;
  try {
    return call();
  } catch (const Error& error) {
    errno = error.error_number() == ECANCELED ? ECONNRESET : error.error_number();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    errno = EIO;
  }
  return -1;
}

}  // namespace weft::interpose
