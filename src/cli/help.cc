#include "cli/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "provider/environment.h"

namespace weft::cli {

std::string environment_help() {
  constexpr std::size_t indent = 6;
  constexpr std::size_t columns = 80;
  std::string text =
      "These variables change how the embedded device behaves. A program reads them when\n"
      "it first uses the device.\n";
  for (const provider::Variable& variable : provider::variables()) {
    text += fmt::format("\n  {}\n", bold(variable.name, STDOUT_FILENO));
    text += wrapped(variable.meaning, indent, columns);
    text += wrapped(fmt::format("Values: {}. Default: {}.", variable.allowed, variable.standard),
                    indent, columns);
  }
  return text;
}

}  // namespace weft::cli
