#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace weft::cli {

bool is_coloured(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(descriptor) && !(no_color && *no_color);
}

std::string bold(std::string_view text, int descriptor) {
  return is_coloured(descriptor) ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

void print_notice(std::string_view sentence) {
  fmt::print(stderr, "weft: {}\n", sentence);
}

void print_error(std::string_view sentence) {
  const bool colour = is_coloured(STDERR_FILENO);
  fmt::print(stderr, "{}weft:{} {}\n", colour ? "\033[31m" : "", colour ? "\033[0m" : "", sentence);
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns) {
  std::string lines;
  std::string line(indent, ' ');
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (line.size() > indent && line.size() + 1 + word.size() > columns) {
      lines += line + "\n";
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line += word;
    text.remove_prefix(word.size());
    if (!text.empty()) text.remove_prefix(1);
  }
  return lines + line + "\n";
}

}  // namespace weft::cli
