#include "cli/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace weft::cli {

void StandardOutput::write(std::string_view text) {
  if (is_open() && std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) note_failure();
}

void StandardOutput::flush() {
  if (is_open() && std::fflush(stdout) != 0) note_failure();
}

bool StandardOutput::is_open() const {
  if (closed_ && is_all_) throw OutputClosed();
  return !closed_;
}

void StandardOutput::note_failure() {
  if (errno != EPIPE) {
    throw std::system_error(errno, std::system_category(), "cannot write standard output");
  }
  closed_ = true;
  if (is_all_) throw OutputClosed();
}

}  // namespace weft::cli
