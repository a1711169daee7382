#include "weft/error.hpp"

#include "verbs/failure.h"

namespace weft {

Error::Error(int error_number, const std::string& what)
    : std::system_error(error_number, std::generic_category(), what) {}

namespace verbs::detail {

void fail(int error, const std::string& what) {
  throw Error(error, what);
}

}  // namespace verbs::detail
}  // namespace weft
