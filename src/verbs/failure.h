// Turns C results (errno, null, -1) into weft::Error.
#pragma once

#include <cerrno>
#include <string>

#include "weft/error.hpp"

namespace weft::verbs::detail {

// Throws Error. `what` names the operation that failed, as in "cannot create a queue pair".
[[noreturn]] void fail(int error, const std::string& what);
[[noreturn]] void fail(int error, const std::string& what, ErrorDetail detail);

// The sentence of an error, without the text of its error number, to be thrown or kept with that
// number.
[[nodiscard]] std::string without_cause(const Error& error);

// For calls that return 0 or an errno.
inline void check(int error, const char* what) {
  if (error) fail(error, what);
}

// For calls that return -1 or null and set errno.
inline void check_minus_one(int result, const char* what) {
  if (result < 0) fail(errno, what);
}
template <typename T>
T* check_pointer(T* result, const char* what) {
  if (!result) fail(errno, what);
  return result;
}

}  // namespace weft::verbs::detail
