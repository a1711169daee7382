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

// Reads the memory of a process that is no child of the reader, as devices do. Returns 0 or the
// errno value. The child is the reader: Yama's scope 1 lets every process read its own children.
int try_reading_a_process() {
  // The child has a copy of it at the same address, and changes that.
  static int word = 0x57454654;
  const int expected = word;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return errno;
  // It ends by _exit(2), so that it does not flush output of this process a second time.
  if (child == 0) {
    const iovec remote{&word, sizeof word};
    int copy = word = 0;
    const iovec local{&copy, sizeof copy};
    const ssize_t got = syscall(SYS_process_vm_readv, parent, &local, 1UL, &remote, 1UL, 0UL);
    _exit(got == sizeof copy && copy == expected ? 0 : got < 0 ? errno : EIO);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno;
  }
  // A filter may end the child for the call.
  return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
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

// Of the device's ports, those that the kernel gives to outgoing connections: from `low` to `high`
// without the reserved ones, which are listed as "8080,9148-9200" (ip-sysctl).
std::set<unsigned> ports_of_connections(unsigned low, unsigned high) {
  std::set<unsigned> given;
  const unsigned end = std::min(high, first_port + ports - 1);
  for (unsigned port = std::max(low, first_port); port <= end; ++port) given.insert(port);
  std::istringstream reserved(first_line("/proc/sys/net/ipv4/ip_local_reserved_ports"));
  std::string range;
  while (std::getline(reserved, range, ',')) {
    std::istringstream limits(range);
    unsigned from = 0;
    if (!(limits >> from)) continue;
    unsigned to = from;
    char dash = 0;
    limits >> dash >> to;
    given.erase(given.lower_bound(from), given.upper_bound(std::max(from, to)));
  }
  return given;
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
                        "connections within a host leave TCP only where memfd_create is allowed, "
                        "and copy payload once only where process_vm_readv and process_vm_writev "
                        "are.",
                        ""});
  }
  const bool by_name = first_line("/proc/sys/kernel/yama/ptrace_scope") == "1";
  if (const int failed = try_reading_a_process(); failed != 0 && by_name) {
    findings.push_back(
        {"process memory", Health::note,
         "A process may read the memory of another one here only if that names it "
         "(kernel.yama.ptrace_scope is 1). Each process names the first one that connects to it.",
         "For processes with several peers: weft run --ptracer any (see WEFT_PTRACER)"});
  } else if (failed != 0) {
    findings.push_back(
        {"process memory", Health::note,
         fmt::format("Processes may not read each other's memory here ({}).",
                     std::strerror(failed)),
         "Nothing needs it: data between two processes of one host take two copies then."});
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
  if (ports_of_connections(low, high).empty()) return;
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
