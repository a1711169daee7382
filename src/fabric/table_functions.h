// Adapters for the function tables of libfabric. Errors are negative numbers of rdma/fi_errno.h,
// and no exception crosses the C ABI.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "weft/stream.hpp"

namespace weft::fabric {

template <auto function>
struct Guarded;

template <typename R, typename... Arguments, R (*function)(Arguments...)>
struct Guarded<function> {
  [[gnu::noinline]] static R call(Arguments... arguments) noexcept {
    try {
      return function(arguments...);
    } catch (const std::bad_alloc&) {
      return -FI_ENOMEM;
    } catch (const std::system_error& error) {
      return -error.code().value();
    } catch (...) {
      return -FI_EOTHER;
    }
  }
};

// The function in a form for such a table: exceptions become error numbers.
template <auto function>
inline constexpr auto* guarded = &Guarded<function>::call;

// The member of such a table for a call that is not implemented: returns -FI_ENOSYS.
template <typename Function>
struct Unsupported;

template <typename R, typename... Arguments>
struct Unsupported<R (*)(Arguments...)> {
  static R call(Arguments... /*arguments*/) noexcept { return static_cast<R>(-FI_ENOSYS); }
};

template <typename Function>
inline constexpr auto* unsupported = &Unsupported<Function>::call;

// The object that a program's handle belongs to: the handle is its base class and begins with a
// fid.
template <typename Object>
Object& object_of(fid* handle) {
  return static_cast<Object&>(*reinterpret_cast<typename Object::Handle*>(handle));
}

// The return value of fi_send(3) and fi_recv(3): a number of bytes, 0 at the end, or an error.
inline ssize_t result_of(const stream::Transfer& outcome) {
  switch (outcome.status) {
    case stream::TransferStatus::ok:
      return static_cast<ssize_t>(outcome.bytes);
    case stream::TransferStatus::would_block:
      return -FI_EAGAIN;
    case stream::TransferStatus::end:
      return 0;
    case stream::TransferStatus::failed:
      break;
  }
  // fi_errno.h has no EPIPE
  return outcome.error_number == EPIPE ? -FI_ESHUTDOWN : -outcome.error_number;
}

}  // namespace weft::fabric
