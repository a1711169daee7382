// What the control path throws: the object, what went wrong with it, and the next step.
#pragma once

#include <string>
#include <system_error>

#include "weft/export.hpp"

namespace weft {

// `code()` is the errno of the call below, in std::generic_category(); `what()` is a sentence.
class WEFT_API Error : public std::system_error {
 public:
  Error(int error_number, const std::string& what);

  [[nodiscard]] int error_number() const noexcept { return code().value(); }
};

}  // namespace weft
