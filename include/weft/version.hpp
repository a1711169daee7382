// The version of Weft.
#pragma once

#include <string_view>

#include "weft/export.hpp"

namespace weft {

// The version of the library that is loaded, for example "1.2.3".
[[nodiscard]] WEFT_API std::string_view version();

}  // namespace weft
