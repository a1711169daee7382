// A child of fork(2) has a mark of its own, also one that was made without the C library.
#include "base/fork_mark.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace weft {
namespace {

int status_of(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// 0 if this process has a mark that none of `before` is.
int new_mark(std::vector<std::uint64_t> before) {
  const std::uint64_t mark = fork_mark();
  if (mark != fork_mark()) return 1;
  for (const std::uint64_t other : before) {
    if (mark == other) return 2;
  }
  return 0;
}

TEST(ForkMark, EachDescendantHasItsOwn) {
  const std::uint64_t mark = fork_mark();
  EXPECT_EQ(fork_mark(), mark);
  const pid_t child = fork();
  if (child == 0) {
    if (const int failed = new_mark({mark})) _exit(failed);
    const std::uint64_t own = fork_mark();
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(new_mark({mark, own}));
    _exit(status_of(grandchild) == 0 ? 0 : 3);
  }
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(fork_mark(), mark);
}

// Handlers of pthread_atfork(3) are not called there.
TEST(ForkMark, AChildOfCloneHasItsOwn) {
  const std::uint64_t mark = fork_mark();
  const auto child = static_cast<pid_t>(
      syscall(SYS_clone, static_cast<unsigned long>(SIGCHLD), nullptr, nullptr, nullptr, nullptr));
  if (child == 0) _exit(new_mark({mark}));
  EXPECT_EQ(status_of(child), 0);
}

}  // namespace
}  // namespace weft
