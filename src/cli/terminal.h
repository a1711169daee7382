// How the program talks: plain text, with colours on a terminal only.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

// Whether `descriptor` is a terminal and NO_COLOR is not set.
[[nodiscard]] bool is_coloured(int descriptor);

// Bold where `descriptor` is a terminal and NO_COLOR is not set.
[[nodiscard]] std::string bold(std::string_view text, int descriptor);

// One line on standard error, with the program's name in front.
void say(std::string_view sentence);
void say_error(std::string_view sentence);

// The text in lines of at most `columns`, each indented.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns);

}  // namespace weft::cli
