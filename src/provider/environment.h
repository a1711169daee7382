// The WEFT_ environment variables: one table to read them, for `weft help environment` and the
// docs.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft::device {
struct Settings;
}

namespace weft::provider {

struct Variable {
  std::string_view name;
  std::string_view standard;  // the default, in words
  std::string_view allowed;   // the valid values, as a phrase after "must be"
  std::string_view meaning;
  // Applies a value to `settings`. Returns false if it is not valid.
  bool (*read)(std::string_view value, device::Settings& settings);
  // What is wrong with a value that read() refuses, where `allowed` cannot explain it. May be null.
  std::string (*explain)(std::string_view value) = nullptr;
};

[[nodiscard]] std::span<const Variable> variables();

// Returns nothing if `value` is valid for the variable `name`, else one sentence with the variable,
// the value and the valid values.
[[nodiscard]] std::string check_variable(std::string_view name, std::string_view value);

// Applies the environment of this process to `settings`. An empty variable counts as not set.
// Returns the sentence for the first invalid value, or nothing.
[[nodiscard]] std::string read_environment(device::Settings& settings);

// WEFT_QUIET=1 suppresses the line at the start of a program, but no error message.
[[nodiscard]] bool environment_is_quiet();

}  // namespace weft::provider
