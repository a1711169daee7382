#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace weft::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto delay = 500ms;  // shorter reads need no bar
constexpr auto interval = 100ms;
constexpr std::size_t columns = 40;

}  // namespace

Progress::Progress(bool wanted) : wanted_(wanted && isatty(STDERR_FILENO) != 0) {}

// Erases the line, which is no part of the output.
Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(std::uint64_t done, std::uint64_t all) {
  const auto now = Clock::now();
  if (now - begun_ < delay || now - last_ < interval) return;
  last_ = now;
  shown_ = true;
  constexpr double mega = 1e6;
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  std::string bar;
  // A file that grows meanwhile has more bytes than its size at first, so both numbers are limited.
  if (all > 0) {
    const auto full =
        static_cast<std::size_t>(std::min<std::uint64_t>(columns, done * columns / all));
    bar = fmt::format("[{}{}] {:3} % ", std::string(full, '#'), std::string(columns - full, ' '),
                      std::min<std::uint64_t>(100, done * 100 / all));
  }
  // \r and \033[K overwrite the line before: without the second one, a shorter text would leave the
  // end of a longer one.
  fmt::print(stderr, "\r\033[K{}{:.0f} MB, {:.0f} MB/s", bar, static_cast<double>(done) / mega,
             static_cast<double>(done) / mega / seconds);
  std::fflush(stderr);
}

}  // namespace weft::cli
