#include "weft/error.hpp"

#include "verbs/failure.h"

namespace weft {

// The generic category: the numbers are values of errno, so they compare with std::errc.
Error::Error(int error_number, const std::string& what)
    : std::system_error(error_number, std::generic_category(), what) {}

namespace verbs::detail {

void fail(int error, const std::string& what) {
  throw Error(error, what);
}

}  // namespace verbs::detail
}  // namespace weft
