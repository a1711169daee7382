// The choices of `weft run --check`, which the WEFT_CHECK variables hold.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::check {

struct Options {
  bool on = false;
  bool fatal = false;              // the first report ends the program
  std::optional<int> exit_status;  // of a program with reports; nothing: its own
  std::string report_path;         // JSON; empty: none
  std::string suppressions_path;   // empty: none
};

// The exit status after a report with WEFT_CHECK=fatal, unless the user names another one.
inline constexpr int fatal_status = 66;

// False if the value is not one of 0, 1 and fatal; a number from 0 to 255.
[[nodiscard]] bool read_mode(std::string_view value, Options& options);
[[nodiscard]] bool read_status(std::string_view value, Options& options);

// From the environment. A value that is not valid counts as not set: `weft run` and the device
// report it.
[[nodiscard]] Options read_options();
// Without WEFT_CHECK itself, for programs that choose the mode in code.
[[nodiscard]] Options read_other_options();

}  // namespace weft::check
