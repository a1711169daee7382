// Turns exceptions into the error results of C functions, as their man pages define them.
#pragma once

#include <cerrno>
#include <new>
#include <system_error>
#include <type_traits>

namespace weft::provider {

// How a function reports failure if it returns a number. One that returns a pointer returns null.
enum class Failure {
  errno_value,  // most of verbs: returns it, and sets errno as well
  minus_one,    // rdma_cm, and functions that wait for events: returns -1 and sets errno
};

template <Failure how, typename R>
R fail(int error) {
  errno = error;
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else if constexpr (!std::is_void_v<R>) {
    return static_cast<R>(how == Failure::minus_one ? -1 : error);
  }
}

// Returns null and sets errno.
inline std::nullptr_t fail_null(int error) {
  errno = error;
  return nullptr;
}

template <Failure how, auto function>
struct Guarded;

template <Failure how, typename R, typename... Arguments, R (*function)(Arguments...)>
struct Guarded<how, function> {
  [[gnu::noinline]] static R call(Arguments... arguments) noexcept {
    try {
      return function(arguments...);
    } catch (const std::bad_alloc&) {
      return fail<how, R>(ENOMEM);
    } catch (const std::system_error& error) {
      return fail<how, R>(error.code().value());
    } catch (...) {
      return fail<how, R>(EIO);
    }
  }
};

// The function in a form for a Table: exceptions become error results.
template <auto function>
inline constexpr auto* verbs_call = &Guarded<Failure::errno_value, function>::call;
template <auto function>
inline constexpr auto* cm_call = &Guarded<Failure::minus_one, function>::call;

}  // namespace weft::provider
