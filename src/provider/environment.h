// The WEFT_ variables: one table for reading them, for `weft help environment`, and for the docs.
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
  std::string_view standard;  // what holds where it is not set, in words
  std::string_view allowed;   // what it may be, as a phrase after "must be"
  std::string_view meaning;
  // Checks a value and sets what it stands for; false where it is none of `allowed`.
  bool (*read)(std::string_view value, device::Settings& settings);
};

[[nodiscard]] std::span<const Variable> variables();

// Empty if `value` may be given to `variable`, else one sentence with the variable, the value and
// what is allowed.
[[nodiscard]] std::string check_variable(std::string_view name, std::string_view value);

// Sets what the environment of this process says; an empty variable counts as not set. Returns the
// sentence for the first wrong value, or nothing.
[[nodiscard]] std::string read_environment(device::Settings& settings);

// WEFT_QUIET=1: the line at the start is not wanted. Errors are said all the same.
[[nodiscard]] bool environment_is_quiet();

}  // namespace weft::provider
