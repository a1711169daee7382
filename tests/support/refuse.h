// Makes the kernel refuse system calls to the calling thread, as an old kernel or a sandbox does.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace weft::test {

// A system call (SYS_*), or only its use with a value in one of its arguments, from 0.
struct RefusedCall {
  RefusedCall(long refused) : call(refused) {}  // NOLINT: a number stands for the whole call
  RefusedCall(long refused, unsigned which, std::uint32_t such)
      : call(refused), argument(static_cast<int>(which)), value(such) {}

  long call;
  int argument = -1;
  std::uint32_t value = 0;
};

// From now on each of `calls` fails with `error` in this thread and in the threads and
// processes that it starts. This cannot be undone, so a test does it in a thread of its own. False
// where the kernel has no seccomp filters (seccomp(2)).
[[nodiscard]] inline bool refuse(const std::vector<RefusedCall>& calls, int error) {
  constexpr auto load = static_cast<std::uint16_t>(BPF_LD | BPF_W | BPF_ABS);
  constexpr auto equals = static_cast<std::uint16_t>(BPF_JMP | BPF_JEQ | BPF_K);
  constexpr auto answer = static_cast<std::uint16_t>(BPF_RET | BPF_K);
  std::vector<sock_filter> program{{load, 0, 0, offsetof(seccomp_data, nr)}};
  const sock_filter refused{answer, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)};
  for (const RefusedCall& entry : calls) {
    const bool any = entry.argument < 0;
    const auto skip = static_cast<std::uint8_t>(any ? 1 : 4);
    program.push_back({equals, 0, skip, static_cast<std::uint32_t>(entry.call)});
    if (!any) {
      const auto at = offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(entry.argument);
      program.push_back(
          {load, 0, 0, static_cast<std::uint32_t>(at)});  // little endian: its low half
      program.push_back({equals, 0, 1, entry.value});
    }
    program.push_back(refused);
    if (!any) program.push_back({load, 0, 0, offsetof(seccomp_data, nr)});
  }
  program.push_back({answer, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}

// Runs `body` in a thread of its own, to which the calls are refused. False where that cannot be:
// then it was not run.
template <typename Body>
[[nodiscard]] bool run_without(const std::vector<RefusedCall>& calls, int error, Body body) {
  bool possible = false;
  std::thread([&] {
    possible = refuse(calls, error);
    if (possible) body();
  }).join();
  return possible;
}

}  // namespace weft::test
