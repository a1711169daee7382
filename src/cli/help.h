// The texts of `weft help` on other topics than commands.
#pragma once

#include <string>

namespace weft::cli {

// All WEFT_ variables with their meaning, valid values and defaults.
[[nodiscard]] std::string environment_help();
// The language of the rules of WEFT_FAULT, with all its words.
[[nodiscard]] std::string faults_help();
// The expressions of `weft dissect --filter`, with all their fields.
[[nodiscard]] std::string filters_help();
// `weft help check`: what `weft run --check` finds.
[[nodiscard]] std::string check_help();
[[nodiscard]] std::string trace_help();
// The columns of `weft top`.
[[nodiscard]] std::string top_help();

}  // namespace weft::cli
