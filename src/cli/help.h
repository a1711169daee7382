// `weft help TOPIC`.
#pragma once

#include <string>

namespace weft::cli {

// The table of all WEFT_ variables.
[[nodiscard]] std::string environment_help();

}  // namespace weft::cli
