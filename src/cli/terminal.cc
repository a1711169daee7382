#include "cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/utf8.h"

namespace weft::cli {
namespace {

// A reader that closes its end of a pipe early, such as head(1), has all that it wants.
bool reader_has_closed() {
  // POLLERR at the writing end of a pipe means that the reading end is closed (poll(2)).
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// A sentence may name a file, and any byte but a slash may be in the name: none of them may control
// the terminal.
std::string without_controls(std::string_view sentence) {
  std::string out;
  while (!sentence.empty()) {
    const auto code = static_cast<unsigned char>(sentence.front());
    const std::size_t size = utf8_bytes(sentence);
    // Terminals that do not use UTF-8 obey the bytes from 0x80 to 0x9F.
    const bool controls = (code < ' ' && code != '\n') || code == 0x7F || size == 0 ||
                          begins_with_c1_control(sentence);
    out += controls ? fmt::format("\\x{:02x}", code) : std::string(sentence.substr(0, size));
    sentence.remove_prefix(controls ? 1 : size);
  }
  return out;
}

}  // namespace

// An empty NO_COLOR has no effect, as its convention has it (no-color.org).
bool is_coloured(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(descriptor) && !(no_color && *no_color);
}

std::string bold(std::string_view text, int descriptor) {
  return is_coloured(descriptor) ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is taken, which is `fd` itself.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) return;
  }
}

int write_whole(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

void write_error(std::string_view text) {
  // By write(2) and not by stdio: nothing may stay in a buffer when the process is replaced.
  (void)write_whole(STDERR_FILENO, text);
}

void print_notice(std::string_view sentence) {
  write_error(fmt::format("weft: {}\n", without_controls(sentence)));
}

void print_error(std::string_view sentence) {
  // The line is one write, so that those of several processes do not mix.
  const bool colour = is_coloured(STDERR_FILENO);
  write_error(fmt::format("{}weft:{} {}\n", colour ? "\033[31m" : "", colour ? "\033[0m" : "",
                          without_controls(sentence)));
}

int finish_output(int status) {
  // An earlier write may have failed, which a later fflush() does not report again.
  const bool lost = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !lost) return status;
  if (reader_has_closed()) return status;
  print_error(fmt::format("standard output cannot be written: {}",
                          lost ? "some of it is lost" : std::generic_category().message(errno)));
  // The status of a command that has failed is kept.
  return status == 0 ? 1 : status;
}

std::string plain_name(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c >= 0x7F; }, '?');
  return text;
}

// A word that is longer than a line is not broken.
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
