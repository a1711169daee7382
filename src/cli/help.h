// The texts of `weft help environment`, `weft help faults` and `weft help filters`.
#pragma once

#include <string>

namespace weft::cli {

// All WEFT_ variables with their meaning, valid values and defaults.
[[nodiscard]] std::string environment_help();
// The language of the rules of WEFT_FAULT, with all its words.
[[nodiscard]] std::string faults_help();
// The expressions of `weft dissect --filter`, with all their fields.
[[nodiscard]] std::string filters_help();

}  // namespace weft::cli
