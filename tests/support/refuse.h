// Makes the kernel refuse system calls to the calling thread, as an old kernel or a sandbox does.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace weft::test {

// From now on each of `calls` (SYS_*) fails with `error` in this thread and in the threads and
// processes that it starts. This cannot be undone, so a test does it in a thread of its own. False
// where the kernel has no seccomp filters (seccomp(2)).
[[nodiscard]] inline bool refuse(std::initializer_list<long> calls, int error) {
  constexpr auto load = static_cast<std::uint16_t>(BPF_LD | BPF_W | BPF_ABS);
  constexpr auto equals = static_cast<std::uint16_t>(BPF_JMP | BPF_JEQ | BPF_K);
  constexpr auto answer = static_cast<std::uint16_t>(BPF_RET | BPF_K);
  std::vector<sock_filter> program{{load, 0, 0, offsetof(seccomp_data, nr)}};
  for (const long call : calls) {
    program.push_back({equals, 0, 1, static_cast<std::uint32_t>(call)});
    program.push_back({answer, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)});
  }
  program.push_back({answer, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}

}  // namespace weft::test
