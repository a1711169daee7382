// Two processes, each pinned to a processor of its own, that measure something together.
#pragma once

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>

namespace weft::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The other process, through a socket.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  template <typename T>
  void send(const T& value) const {
    if (write(fd_, &value, sizeof value) != sizeof value) throw std::runtime_error("no peer");
  }
  template <typename T>
  [[nodiscard]] T receive() const {
    T value;
    if (recv(fd_, &value, sizeof value, MSG_WAITALL) != sizeof value) {
      throw std::runtime_error("no peer");
    }
    return value;
  }
  // Returns when the other process has made this call as well.
  void meet() const {
    send('x');
    (void)receive<char>();
  }

 private:
  int fd_;
};

inline void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);  // where it fails, the figures are noisier
}

// `measure(line, first)` runs in both processes; returns what it returns in the first one.
template <typename Measure>
double run_two_processes(const Measure& measure) {
  int lines[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0) throw std::runtime_error("no socket pair");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  const bool first = child != 0;
  // Each end has only its own, so that it hears of the other one's death.
  close(lines[first ? 1 : 0]);
  pin(first ? 0 : 1);
  if (!first) {
    try {
      measure(Line(lines[1]), false);
    } catch (const std::exception&) {
      _exit(1);  // the first process finds the line closed
    }
    _exit(0);
  }
  const double result = measure(Line(lines[0]), true);
  close(lines[0]);
  waitpid(child, nullptr, 0);
  return result;
}

}  // namespace weft::bench
