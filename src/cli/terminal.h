// Messages to the user: plain text, with colours only on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

// True if `descriptor` is a terminal and NO_COLOR is not set.
[[nodiscard]] bool is_coloured(int descriptor);

// The text in bold if is_coloured(descriptor), else unchanged.
[[nodiscard]] std::string bold(std::string_view text, int descriptor);

// Print one line on standard error, after the program's name.
void print_notice(std::string_view sentence);
void print_error(std::string_view sentence);

// Breaks the text into lines of at most `columns`, each indented.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns);

}  // namespace weft::cli
