#include "cli/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace weft::cli {
namespace {

// A shell has the same exit status for a command that it cannot find.
constexpr int cannot_start = 127;

// In the child of fork(2): only async-signal-safe calls would be allowed if there were other
// threads. There are none, so that memory can be allocated.
[[noreturn]] void become(const std::vector<std::string>& command, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the child must not outlive this process if it is killed
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(arguments.front(), arguments.data());
  // For line(), which otherwise would find an end without a reason.
  const std::string reason =
      command.front() + " cannot be started: " + std::generic_category().message(errno) + "\n";
  [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, reason.data(), reason.size());
  _exit(cannot_start);
}

// The time is rounded up. Otherwise the last millisecond before the deadline would be polled with a
// timeout of 0 again and again.
int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

}  // namespace

Child::Child(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  // The program must not inherit the descriptors of the pipe: while it has them, closing its
  // outputs does not end the pipe. dup2(2) makes the two copies that it needs without the flag.
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot open a pipe");
  }
  pid_ = fork();
  if (pid_ == 0) become(command, ends[1]);
  const int failed = errno;
  close(ends[1]);
  if (pid_ < 0) {
    close(ends[0]);  // no destructor runs for an object whose constructor throws
    throw std::system_error(failed, std::generic_category(), "cannot start a process");
  }
  output_ = ends[0];
}

Child::~Child() {
  if (output_ >= 0) close(output_);
  if (pid_ <= 0) return;
  // SIGKILL cannot be caught, so that the wait is short. Without the wait, a zombie would remain.
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<std::string> Child::line(std::chrono::steady_clock::time_point deadline) {
  late_ = false;
  while (true) {
    if (const std::size_t end = read_.find('\n'); end != std::string::npos) {
      std::string text = read_.substr(0, end);
      read_.erase(0, end + 1);
      return text;
    }
    pollfd entry{output_, POLLIN, 0};
    const int ready = poll(&entry, 1, milliseconds_until(deadline));
    // The deadline is a time and not a duration, so that a signal does not prolong it.
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      late_ = true;
      return std::nullopt;
    }
    std::array<char, 4096> some{};
    const ssize_t got = read(output_, some.data(), some.size());
    // A last line without a line end is not returned.
    if (got <= 0) return std::nullopt;
    read_.append(some.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace weft::cli
