// The texts of `weft help environment` and `weft help faults`.
#pragma once

#include <string>

namespace weft::cli {

// All WEFT_ variables with their meaning, valid values and defaults.
[[nodiscard]] std::string environment_help();
// The language of the rules of WEFT_FAULT, with all its words.
[[nodiscard]] std::string faults_help();

}  // namespace weft::cli
