#include "check/debug_registers.h"

#include <fmt/format.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/system_call.h"

namespace weft::check {
namespace {

// Before 5.18 the kernel ends a process whose thread meets a trap while it blocks SIGTRAP.
constexpr int least_major = 5;
constexpr int least_minor = 18;

bool is_old_kernel() {
  utsname names{};
  int major = 0;
  int minor = 0;
  if (uname(&names) != 0 || std::sscanf(names.release, "%d.%d", &major, &minor) != 2) return true;
  return major < least_major || (major == least_major && minor < least_minor);
}

// A hypervisor may accept the registers and not emulate them, so one is tried.
bool counts_accesses() {
  static std::atomic<std::uint64_t> word{0};
  const WatchedBytes watched{.first = reinterpret_cast<std::uintptr_t>(&word), .bytes = 8};
  const int file = open_debug_register(watched, 0, 0);
  if (file < 0) return false;
  word.fetch_add(1);
  const bool counted = accesses_of(file) > 0;
  close_debug_register(file);
  if (!counted) errno = ENODEV;
  return counted;
}

bool raises_signals() {
  static std::uint64_t word;
  const WatchedBytes watched{.first = reinterpret_cast<std::uintptr_t>(&word), .bytes = 8};
  const int file = open_debug_register(watched, 0, 1);
  if (file < 0) return false;
  close_debug_register(file);
  return true;
}

}  // namespace

int open_debug_register(const WatchedBytes& watched, pid_t thread, std::uint64_t tag) {
#if defined(__x86_64__) && defined(__LP64__)
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_BREAKPOINT;
  attributes.size = sizeof attributes;
  attributes.bp_type = watched.writes_only ? unsigned{HW_BREAKPOINT_W} : unsigned{HW_BREAKPOINT_RW};
  attributes.bp_addr = watched.first;
  attributes.bp_len = watched.bytes;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.inherit = 1;
  attributes.inherit_thread = 1;
  attributes.remove_on_exec = 1;
  if (tag != 0) {
    attributes.sample_period = 1;
    attributes.sigtrap = 1;
    attributes.sig_data = tag;
  }
  return static_cast<int>(
      system_call(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
#else
  (void)watched, (void)thread, (void)tag;
  return errno = ENOSYS, -1;
#endif
}

void enable_debug_register(int file) {
  system_call(SYS_ioctl, file, PERF_EVENT_IOC_ENABLE, 0);
}

void disable_debug_register(int file) {
  system_call(SYS_ioctl, file, PERF_EVENT_IOC_DISABLE, 0);
}

void close_debug_register(int file) {
  system_call(SYS_close, file);
}

std::uint64_t accesses_of(int file) {
  std::uint64_t count = 0;
  const auto got = system_call(SYS_read, file, &count, sizeof count);
  return got == sizeof count ? count : 0;
}

std::string why_no_debug_registers() {
#if !defined(__x86_64__) || !defined(__LP64__)
  return "only the debug registers of x86-64 are supported";
#endif
  if (is_old_kernel()) return "it takes Linux 5.18 or a newer one";
  if (raises_signals() && counts_accesses()) return {};
  const int failed = errno;
  if (failed == ENOSPC) return "all of them are in use";
  if (failed == ENODEV) return "this machine's hypervisor does not provide them";
  return fmt::format("perf_event_open(2) is refused ({})", std::strerror(failed));
}

}  // namespace weft::check
