// The exception of all calls outside the data path. Its text names the object, what went wrong with
// it, and the next step.
#pragma once

#include <string>
#include <system_error>

#include "weft/export.hpp"

namespace weft {

// `code()` has the errno value of the call that failed, in std::generic_category(). `what()` is one
// sentence.
class WEFT_API Error : public std::system_error {
 public:
  Error(int error_number, const std::string& what);

  [[nodiscard]] int error_number() const noexcept { return code().value(); }
};

}  // namespace weft
