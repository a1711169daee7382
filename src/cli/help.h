// The text of `weft help environment`.
#pragma once

#include <string>

namespace weft::cli {

// All WEFT_ variables with their meaning, valid values and defaults.
[[nodiscard]] std::string environment_help();

}  // namespace weft::cli
