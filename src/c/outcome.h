// Turns exceptions and results of the C++ layers into those of the C interface.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "weft/c/common.h"
#include "weft/deadline.hpp"
#include "weft/error.hpp"
#include "weft/verbs.hpp"

namespace weft::c {

// Keeps the sentence for weft_error_text(), cut to a fixed length. Returns -error_number.
int fail(int error_number, std::string_view text) noexcept;

// Returns what `work` returns, or fails with the exception that it throws. A std::logic_error is
// the use of an object in another thread than its own, or of one that has ended: EPERM.
template <typename Work>
auto guarded(Work&& work) noexcept -> decltype(work()) {
  try {
    return work();
  } catch (const Error& error) {
    return fail(error.error_number(), error.what());
  } catch (const std::out_of_range& error) {
    return fail(ERANGE, error.what());
  } catch (const std::logic_error& error) {
    return fail(EPERM, error.what());
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, "there is no memory left");
  } catch (const std::exception& error) {
    return fail(EIO, error.what());
  }
}

// The same for a function whose -EAGAIN means that the object is still connecting: an attempt that
// has failed for want of something temporary is over as well, and has EHOSTUNREACH.
template <typename Work>
int guarded_await(Work&& work) noexcept {
  return guarded([&] {
    try {
      return work();
    } catch (const Error& error) {
      if (error.error_number() == EAGAIN) return fail(EHOSTUNREACH, error.what());
      throw;
    }
  });
}

// As guarded(), for a function whose result cannot be an error number: returns `failure` then.
template <typename Work>
auto guarded_or(decltype(std::declval<Work>()()) failure, Work&& work) noexcept
    -> decltype(work()) {
  decltype(work()) result = failure;
  static_cast<void>(guarded([&] {
    result = work();
    return 0;
  }));
  return result;
}

inline Deadline deadline_of(int timeout_ms) {
  return timeout_ms < 0 ? Deadline::never() : Deadline(std::chrono::milliseconds(timeout_ms));
}

inline std::span<const std::byte> bytes_of(const void* bytes, std::size_t count) {
  return {static_cast<const std::byte*>(bytes), count};
}

// A null host is any address.
inline verbs::Address address_of(const char* host, std::uint16_t port) {
  return {host == nullptr ? "" : host, port};
}

// Writes a string as snprintf(3) does, and returns its length.
int copy_text(std::string_view text, char* into, std::size_t room) noexcept;

// Throws Error(EINVAL) for a structure whose size was not set: its members would be ignored, or
// memory behind it would be read.
void check_size(std::size_t size, const char* type, const char* how_to_set_it);
#define WEFT_C_CHECK(structure, type, initializer) \
  weft::c::check_size((structure)->size, #type, "its initializer, " #initializer)

// Fills a structure that begins with its size, which was checked. Members that this library does
// not have become 0.
template <typename Structure>
void copy_structure(const Structure& from, Structure* into) {
  const std::size_t size = into->size;
  std::memset(into, 0, size);
  std::memcpy(into, &from, std::min(size, sizeof from));
  into->size = size;
}

// Whether a structure of options, whose first member is its size, is from a release that has the
// member.
#define WEFT_C_HAS(options, member) \
  ((options)->size >=               \
   offsetof(std::remove_reference_t<decltype(*(options))>, member) + sizeof((options)->member))

// Sets `into` to a member of the options, unless that is 0 or the structure does not have it.
#define WEFT_C_TAKE(into, options, member)                                                 \
  do {                                                                                     \
    if (WEFT_C_HAS(options, member) && (options)->member != 0) (into) = (options)->member; \
  } while (false)

}  // namespace weft::c
