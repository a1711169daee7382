// The replacement of syscall(2), by which some programs close and duplicate descriptors: libuv, and
// with it Node.js, closes all of its own so. What this library knows of the number must end with
// it, because the next file gets it. Others make processes so, to which connections have to be
// handed over, or use io_uring and AIO without a library for them.
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "interpose/asynchronous.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/next.h"
#include "interpose/process.h"
#include "interpose/table.h"

using namespace weft::interpose;

namespace {

constinit next::Function<long(long, long, long, long, long, long, long)> next_syscall{"syscall"};

bool has_memory_of_its_own(long flags) {
  return (flags & CLONE_VM) == 0;
}

// A child in namespaces of its own, which fork(2) cannot make.
bool is_isolated(long flags) {
  constexpr long namespaces = CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS |
                              CLONE_NEWPID | CLONE_NEWUSER | CLONE_NEWUTS;
  return (flags & namespaces) != 0;
}

// Kernels without a kind of namespace refuse it by the same error, so a program that only wants
// more isolation has another way: vsftpd calls fork(2) then.
long refuse_isolation() {
  static std::atomic_flag printed;
  return guarded([]() -> long {
    if (!printed.test_and_set()) {
      print_notice(
          "a child process in namespaces of its own could not use the connections of this one, so "
          "the program is told that the kernel has no such namespaces");
    }
    return fail_with(EINVAL);
  });
}

}  // namespace

// No call has more than six arguments. What the caller has not passed is not used, but read, which
// a sanitizer would report.
WEFT_INTERPOSED __attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(list, long);
  va_end(list);
  const auto& [a, b, c, d, e, f] = arguments;
  switch (number) {
    case SYS_close:
      return close(static_cast<int>(a));
    case SYS_close_range:
      return close_range(static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<int>(c));
    case SYS_dup:
      return dup(static_cast<int>(a));
#ifdef SYS_dup2
    case SYS_dup2:
      return dup2(static_cast<int>(a), static_cast<int>(b));
#endif
    case SYS_dup3:
      return dup3(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c));
    case SYS_io_uring_setup:
      return refuse_ring();
    case SYS_io_submit:
      if (!prepare_kernel_aio(b, reinterpret_cast<void* const*>(c))) return -1;
      break;
    case SYS_clone:
      if (!has_memory_of_its_own(a) || !owns_table()) break;
      if (a == SIGCHLD) return fork();
      if (is_isolated(a)) return refuse_isolation();
      break;
    default:
      break;
  }
  return next_syscall(number, a, b, c, d, e, f);
}
