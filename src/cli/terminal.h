// Messages to the user: plain text, with colours only on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

// True if `descriptor` is a terminal and NO_COLOR is not set.
[[nodiscard]] bool is_coloured(int descriptor);

// The text in bold if is_coloured(descriptor), else unchanged.
[[nodiscard]] std::string bold(std::string_view text, int descriptor);

// Opens /dev/null for each of the descriptors 0 to 2 that is closed, so that no file that this
// program opens gets such a number and then the text for the terminal. execve(2) closes them again.
void occupy_standard_descriptors();

// Writes all of the text, also where signals interrupt that. Returns 0 or the errno value.
[[nodiscard]] int write_whole(int descriptor, std::string_view text);

// Writes to standard error and ignores errors: a daemon or cron may have closed it, and a command
// must do its work all the same.
void write_error(std::string_view text);
// Print one line on standard error, after the program's name; they ignore errors as well.
void print_notice(std::string_view sentence);
void print_error(std::string_view sentence);

// Flushes standard output. Returns `status`, or prints an error and returns 1 if some of the output
// was lost, for example on a full disk.
[[nodiscard]] int finish_output(int status);

// The name of a program, or another short text that a process has chosen: with a question mark for
// each byte that is no printable ASCII, so that it does not control a terminal.
[[nodiscard]] std::string plain_name(std::string text);

// Breaks the text into lines of at most `columns`, each indented.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns);

}  // namespace weft::cli
