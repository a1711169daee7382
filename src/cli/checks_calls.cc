// The system calls that the device uses where it may, and does without elsewhere.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "check/debug_registers.h"
#include "cli/checks.h"

// Missing in older headers; in the kernel since 5.14.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace weft::cli {
namespace {

struct Call {
  const char* name;
  int (*attempt)();  // 0, or an errno value
  // What the device does, or lacks, where the call is refused; the end of a sentence.
  const char* without;
};

// This is to be called before any other function that may change errno.
int error_of(long result) {
  return result < 0 ? errno : 0;
}

// The result of a call on a descriptor that is closed then. errno is read before close(2), which
// may change it.
template <typename Use>
int with(int fd, const Use& use) {
  if (fd < 0) return errno;
  const int failed = error_of(use(fd));
  close(fd);
  return failed;
}

int try_preadv2() {
  return with(eventfd(1, 0), [](int fd) {
    std::uint64_t token = 0;
    const iovec piece{&token, sizeof token};
    // An offset of -1 is the current position (preadv2(2)); an eventfd has no other one.
    return syscall(SYS_preadv2, fd, &piece, 1UL, -1L, -1L, RWF_NOWAIT);
  });
}

// These three try a page of the program's own data, which is mapped and writable for certain.
int try_msync() {
  static std::byte here{};
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(&here) & ~(page - 1);
  return error_of(msync(reinterpret_cast<void*>(at), page, MS_ASYNC));
}

int try_mincore() {
  static std::byte here{};
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(&here) & ~(page - 1);
  unsigned char resident = 0;
  return error_of(mincore(reinterpret_cast<void*>(at), page, &resident));
}

int try_populate() {
  static std::byte here{};
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(&here) & ~(page - 1);
  return error_of(madvise(reinterpret_cast<void*>(at), page, MADV_POPULATE_WRITE));
}

// The C library has a function for this since glibc 2.25, which a program may not have.
int try_getrandom() {
  std::uint32_t word = 0;
  return error_of(syscall(SYS_getrandom, &word, sizeof word, 0));
}

// Its own memory, which needs no permission: a refusal is that of a filter, or of a kernel that was
// built without the call. check_sandbox() reads another process.
int try_own_memory() {
  int from = 1;
  int to = 0;
  const iovec local{&to, sizeof to};
  const iovec remote{&from, sizeof from};
  return error_of(syscall(SYS_process_vm_readv, getpid(), &local, 1UL, &remote, 1UL, 0UL));
}

int try_socket_owners() {
  return with(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG),
              // A sandbox refuses the socket already, so that no query is sent.
              [](int) { return 0L; });
}

// A socket that is not connected returns its state as well.
int try_tcp_info() {
  return with(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), [](int fd) {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    return static_cast<long>(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes));
  });
}

// An empty path and AT_EMPTY_PATH name the descriptor itself.
int try_statx() {
  struct statx status {};
  return error_of(syscall(SYS_statx, STDIN_FILENO, "", AT_EMPTY_PATH, STATX_TYPE, &status));
}

// Of no datagrams.
int try_sendmmsg() {
  return with(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
              [](int fd) { return syscall(SYS_sendmmsg, fd, nullptr, 0U, 0U); });
}
int try_recvmmsg() {
  return with(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
              [](int fd) { return syscall(SYS_recvmmsg, fd, nullptr, 0U, MSG_DONTWAIT, nullptr); });
}

// Of the type that the device uses.
int try_socketpair() {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return errno;
  for (const int end : ends) close(end);
  return 0;
}

// Any file will do.
int try_flock() {
  return with(eventfd(0, EFD_CLOEXEC),
              [](int fd) { return static_cast<long>(flock(fd, LOCK_EX | LOCK_NB)); });
}

// Registering twice changes nothing.
int try_membarrier() {
  return error_of(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
}

int try_rt_sigpending() {
  std::uint64_t pending = 0;  // as the kernel has it: one bit for each signal
  return error_of(syscall(SYS_rt_sigpending, &pending, sizeof pending));
}

// Signal 0 is checked and not sent (kill(2)).
int try_rt_tgsigqueueinfo() {
  siginfo_t details{};
  details.si_code = SI_QUEUE;
  return error_of(syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), 0, &details));
}

constexpr std::array calls{
    Call{"preadv2(RWF_NOWAIT)", try_preadv2, "events are withdrawn by poll and read"},
    Call{"msync(MS_ASYNC)", try_msync, "registering memory takes longer for large regions"},
    Call{"mincore", try_mincore, "registering memory reads a byte of each page"},
    Call{"madvise(MADV_POPULATE_WRITE)", try_populate,
         "on-demand regions are checked with mincore, which does not see read-only pages"},
    Call{"getrandom", try_getrandom, "random numbers come from /dev/urandom"},
    Call{"process_vm_readv", try_own_memory,
         "memory that is unmapped while it is registered ends programs that handle SIGSEGV "
         "themselves"},
    Call{"sock_diag", try_socket_owners, "the user of a peer on this host is not checked"},
    Call{"getsockopt(TCP_INFO)", try_tcp_info, "a host that vanishes is noticed late"},
    Call{"sendmmsg", try_sendmmsg, "datagrams leave one by one"},
    Call{"recvmmsg", try_recvmmsg, "datagrams arrive one by one"},
    Call{"socketpair", try_socketpair, "each connection within this host begins with TCP"},
    Call{"membarrier", try_membarrier, "the locks of the data path take longer"},
    Call{"flock", try_flock,
         "the counters below /sys/class/infiniband do not count programs on Weft"},
    Call{"rt_sigpending", try_rt_sigpending,
         "a signal that comes just before `ibv_get_cq_event` sleeps does not end it"},
    Call{
        "rt_tgsigqueueinfo", try_rt_tgsigqueueinfo,
        "some signal handlers of programs under `weft run --sockets` get no details of the signal"},
    Call{"statx", try_statx, "a capture file is treated as a pipe"},
};

}  // namespace

void check_calls(Findings& findings) {
  // A refused call is a note and no problem, since the device has another way for each of them.
  std::string good;
  for (const Call& call : calls) {
    const int failed = call.attempt();
    if (failed == 0) {
      good += (good.empty() ? "" : ", ") + std::string(call.name);
      continue;
    }
    // A closed standard input is no refusal.
    if (failed == EBADF) continue;
    findings.push_back({"system calls", Health::note,
                        fmt::format("{} is not available ({}): {}.", call.name,
                                    std::strerror(failed), call.without),
                        ""});
  }
  findings.push_back(
      {"system calls", Health::good, fmt::format("These optional ones work: {}.", good), ""});
}

void check_debug_registers(Findings& findings) {
  const std::string why = check::why_no_debug_registers();
  if (why.empty()) {
    findings.push_back({"debug registers", Health::good,
                        "Programs can watch their memory: `weft run --check` has all its checks.",
                        ""});
    return;
  }
  findings.push_back(
      {"debug registers", Health::note,
       fmt::format("`weft run --check` lacks early-access and polled-write here: {}.", why),
       "Containers: perf_event_open in the seccomp profile; sysctl kernel.perf_event_paranoid=2"});
}

}  // namespace weft::cli
