// Checks of sandboxes and ports.
#include <fmt/format.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "cli/checks.h"

namespace weft::cli {
namespace {

// The ports by which queue pairs without rdma_cm find each other (device/connect/slots.h).
constexpr unsigned first_port = 28672;
constexpr unsigned ports = 1024;

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Reads the memory of another process of this user. Returns 0 or the errno value.
int try_reading_a_process() {
  // The child has a copy of it at the same address.
  static int word = 0x57454654;
  int pipes[2];
  if (pipe(pipes) != 0) return errno;
  const pid_t child = fork();
  if (child < 0) return errno;
  // The child only waits for the end of the pipe, which also comes if this process is killed. It
  // ends by _exit(2), so that it does not flush output of this process a second time.
  if (child == 0) {
    char ignored = 0;
    close(pipes[1]);
    [[maybe_unused]] const auto ended = read(pipes[0], &ignored, 1);
    _exit(0);
  }
  close(pipes[0]);
  int copy = 0;
  const iovec local{&copy, sizeof copy};
  const iovec remote{&word, sizeof word};
  // Yama (ptrace_scope) and seccomp may refuse it.
  const ssize_t got = syscall(SYS_process_vm_readv, child, &local, 1UL, &remote, 1UL, 0UL);
  // errno is kept, because close(2) and waitpid(2) may change it.
  const int failed = got == sizeof copy && copy == word ? 0 : errno;
  close(pipes[1]);
  waitpid(child, nullptr, 0);
  return failed;
}

// Returns 0 or the errno value.
int try_io_uring() {
  // The smallest ring, which is closed at once.
  io_uring_params parameters{};
  const long fd = syscall(SYS_io_uring_setup, 1, &parameters);
  if (fd < 0) return errno;
  close(static_cast<int>(fd));
  return 0;
}

// Local ports of all TCP sockets in this network namespace, including those in TIME_WAIT.
std::set<unsigned> ports_in_use() {
  std::set<unsigned> used;
  // The first line of each file is its heading. The second word of a line is the local address, in
  // hexadecimal digits behind which the port follows.
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string slot;
      std::string local;
      words >> slot >> local;
      used.insert(
          static_cast<unsigned>(std::stoul(local.substr(local.rfind(':') + 1), nullptr, 16)));
    }
  }
  return used;
}

// A line of the file is "Name:" and the value behind a tab.
std::string status_field(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(name + ":")) {
      const std::size_t from = line.find_first_not_of(" \t", name.size() + 1);
      return from == std::string::npos ? "" : line.substr(from);
    }
  }
  return {};
}

}  // namespace

void check_sandbox(Findings& findings) {
  // 0 is none, 1 the strict mode, and 2 a filter (proc(5)).
  const std::string seccomp = status_field("Seccomp");
  if (!seccomp.empty() && seccomp != "0") {
    findings.push_back({"seccomp", Health::note,
                        "System calls of this process are filtered (seccomp), as in containers. "
                        "The embedded device needs only sockets, epoll, eventfd and threads; "
                        "connections within a host leave TCP only where memfd_create, "
                        "process_vm_readv and process_vm_writev are allowed.",
                        ""});
  }
  if (const int failed = try_reading_a_process()) {
    findings.push_back(
        {"process memory", Health::note,
         fmt::format("Processes may not read each other's memory here ({}).",
                     std::strerror(failed)),
         "Nothing needs it: data between two processes of one host go through TCP then."});
  } else {
    findings.push_back({"process memory", Health::good,
                        "Processes of one user may read each other's memory.", ""});
  }
  const int ring = try_io_uring();
  findings.push_back({"io_uring", Health::good,
                      ring == 0 ? "io_uring is available; the embedded device does not use it."
                                : fmt::format("io_uring is not available ({}); the embedded device "
                                              "does not use it.",
                                              std::strerror(ring)),
                      ""});
}

void check_ports(Findings& findings) {
  const auto used = ports_in_use();
  const auto taken =
      std::distance(used.lower_bound(first_port), used.lower_bound(first_port + ports));
  const bool full = taken >= static_cast<std::ptrdiff_t>(ports);
  findings.push_back(
      {"ports", full ? Health::problem : Health::good,
       fmt::format("{} of the TCP ports {} to {}, by which queue pairs without rdma_cm find each "
                   "other, are in use.",
                   taken, first_port, first_port + ports - 1),
       full ? "End some of the processes that listen there: ss -tlnp" : ""});
  unsigned low = 0;
  unsigned high = 0;
  std::istringstream range(first_line("/proc/sys/net/ipv4/ip_local_port_range"));
  // Without the file, as in some sandboxes, there is nothing to compare.
  if (!(range >> low >> high)) return;
  if (low >= first_port + ports || high < first_port) return;
  // The remedy is the kernel's default range, 32768 to 60999, which begins behind the device's
  // ports. The end is not moved down, since other programs may rely on a larger range.
  findings.push_back(
      {"ports", Health::note,
       fmt::format(
           "The kernel uses ports from {} to {} for outgoing connections, so some of the device's "
           "ports may be taken.",
           low, high),
       fmt::format("sysctl net.ipv4.ip_local_port_range=\"{} {}\"", first_port + ports + 3072,
                   std::max(high, 60999U))});
}

}  // namespace weft::cli
