#include "weft/error.hpp"

#include <utility>

#include "verbs/failure.h"

namespace weft {

// The generic category: the numbers are values of errno, so they compare with std::errc.
Error::Error(int error_number, const std::string& what)
    : std::system_error(error_number, std::generic_category(), what) {}

Error::Error(int error_number, const std::string& what, ErrorDetail detail)
    : std::system_error(error_number, std::generic_category(), what),
      detail_(std::make_shared<const ErrorDetail>(std::move(detail))) {}

const ErrorDetail& Error::detail() const noexcept {
  static const ErrorDetail none;
  return detail_ ? *detail_ : none;
}

namespace verbs::detail {

void fail(int error, const std::string& what) {
  throw Error(error, what);
}

void fail(int error, const std::string& what, ErrorDetail detail) {
  throw Error(error, what, std::move(detail));
}

std::string without_cause(const Error& error) {
  std::string text = error.what();
  const std::string cause = ": " + error.code().message();
  if (text.ends_with(cause)) text.resize(text.size() - cause.size());
  return text;
}

}  // namespace verbs::detail
}  // namespace weft
