// Which Weft this is.
#pragma once

#include <string_view>

#include "weft/export.hpp"

namespace weft {

// Of the library that is loaded: "1.2.3".
[[nodiscard]] WEFT_API std::string_view version();

}  // namespace weft
