#include "cli/standard_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <exception>
#include <system_error>

#include "cli/terminal.h"

namespace weft::cli {
namespace {

constexpr std::size_t buffer_bytes = 4096;

}  // namespace

StandardOutput::StandardOutput(bool is_all)
    : is_all_(is_all), by_lines_(isatty(STDOUT_FILENO) == 1) {}

StandardOutput::~StandardOutput() {
  try {
    if (!closed_) flush();
  } catch (const std::exception&) {
    // flush() reports failures; here, only what an error has left behind is written.
  }
}

void StandardOutput::write(std::string_view text) {
  if (!is_open()) return;
  buffer_ += text;
  if (by_lines_ || buffer_.size() >= buffer_bytes) flush();
}

void StandardOutput::flush() {
  if (!is_open()) return;
  const int error = write_whole(STDOUT_FILENO, buffer_);
  buffer_.clear();
  if (error != 0) note_failure(error);
}

bool StandardOutput::is_open() const {
  if (closed_ && is_all_) throw OutputClosed();
  return !closed_;
}

void StandardOutput::note_failure(int error) {
  if (error != EPIPE) {
    throw std::system_error(error, std::system_category(), "cannot write standard output");
  }
  closed_ = true;
  if (is_all_) throw OutputClosed();
}

}  // namespace weft::cli
