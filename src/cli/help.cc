#include "cli/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "provider/environment.h"

namespace weft::cli {

std::string environment_help() {
  constexpr std::size_t indent = 6;
  constexpr std::size_t columns = 80;
  std::string text = wrapped(
      "These variables change how the embedded device behaves. They are read when a program first "
      "uses the device.",
      0, columns);
  for (const provider::Variable& variable : provider::variables()) {
    text += fmt::format("\n  {}\n", bold(variable.name, STDOUT_FILENO));
    text += wrapped(variable.meaning, indent, columns);
    text += wrapped(fmt::format("Values: {}. Default: {}.", variable.allowed, variable.standard),
                    indent, columns);
  }
  return text;
}

}  // namespace weft::cli
