#include "check/options.h"

#include <charconv>
#include <cstdlib>

namespace weft::check {
namespace {

constexpr int max_status = 255;

std::string_view variable(const char* name) {
  const char* value = secure_getenv(name);
  return value ? value : "";
}

}  // namespace

bool read_mode(std::string_view value, Options& options) {
  options.on = value == "1" || value == "fatal";
  options.fatal = value == "fatal";
  return options.on || value == "0";
}

bool read_status(std::string_view value, Options& options) {
  int status = -1;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), status);
  const bool valid = failed == std::errc() && end == value.data() + value.size() && status >= 0 &&
                     status <= max_status;
  if (valid) options.exit_status = status;
  return valid;
}

Options read_options() {
  Options options = read_other_options();
  if (!read_mode(variable("WEFT_CHECK"), options)) return {};
  return options;
}

Options read_other_options() {
  Options options;
  (void)read_status(variable("WEFT_CHECK_STATUS"), options);
  options.report_path = variable("WEFT_CHECK_REPORT");
  options.suppressions_path = variable("WEFT_CHECK_SUPPRESSIONS");
  return options;
}

}  // namespace weft::check
