// How a function answers libfabric: a negative number is an error of rdma/fi_errno.h, and no
// exception leaves.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "weft/stream.hpp"

namespace weft::fabric {

template <auto function>
struct Answering;

template <typename R, typename... Arguments, R (*function)(Arguments...)>
struct Answering<function> {
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

// The function as a table of libfabric's may hold it.
template <auto function>
inline constexpr auto* guarded = &Answering<function>::call;

// What a member of such a table is where there is nothing behind it.
template <typename Function>
struct Lacking;

template <typename R, typename... Arguments>
struct Lacking<R (*)(Arguments...)> {
  static R call(Arguments... /*arguments*/) noexcept { return static_cast<R>(-FI_ENOSYS); }
};

template <typename Function>
inline constexpr auto* lacking = &Lacking<Function>::call;

// The object behind the structure that programs hold: the structure is its base, and begins with
// the fid.
template <typename Object>
Object& object_of(fid* handle) {
  return static_cast<Object&>(*reinterpret_cast<typename Object::Handle*>(handle));
}

inline ssize_t answer_of(const stream::Outcome& outcome) {
  switch (outcome.status) {
    case stream::Status::ok:
      return static_cast<ssize_t>(outcome.bytes);
    case stream::Status::would_block:
      return -FI_EAGAIN;
    case stream::Status::end:
      return 0;
    case stream::Status::failed:
      break;
  }
  // fi_errno.h has no EPIPE.
  return outcome.error_number == EPIPE ? -FI_ESHUTDOWN : -outcome.error_number;
}

}  // namespace weft::fabric
