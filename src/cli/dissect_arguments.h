// Checks the options of `weft dissect` and gives their texts a meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "capture/report/report.h"
#include "cli/dissect.h"

namespace weft::cli {

// A mistake on the command line: it is reported with the name of the command in front.
class WrongOption : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// All of them throw WrongOption.

// Returns nanoseconds; nothing if the text is empty. `option` is named in the error.
[[nodiscard]] std::optional<std::int64_t> parse_seconds(const char* option, std::string_view text);
[[nodiscard]] std::optional<capture::Severity> parse_severity(const std::string& text);
// Call it before a file is opened, so that a mistake is reported at once.
[[nodiscard]] capture::Selection selection_of(const DissectOptions& options);
// Refuses options that exclude each other or lack another one.
void check_combination(const DissectOptions& options);
// Adds the files that match a pattern and are not among the files yet. Their order follows from
// their times, and not from their names.
void add_matches(const std::string& pattern, std::vector<std::string>& files);

}  // namespace weft::cli
