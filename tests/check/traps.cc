// Programs that use SIGTRAP, fork(2), execve(2) or ptrace(2) while the checks watch their memory.
//
//   traps HOW
#include <infiniband/verbs.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>

#include "check/pair.h"

namespace {

using misuse::need;
using misuse::Pair;

volatile sig_atomic_t handled = 0;

void count(int /*signal*/) {
  handled = handled + 1;
}

std::uint64_t read_word(const volatile std::uint64_t& word) {
  return word;
}

// A receive is posted for the first bytes of the memory.
struct Posted {
  Posted() { pair.receive(0, 64); }
  void finish() {
    need(pair.send(IBV_WR_SEND, pair.piece(8192, 64), IBV_SEND_SIGNALED) == 0, "ibv_post_send");
    Pair::poll(pair.sender_cq);
    Pair::poll(pair.receiver_cq);
    pair.close();
  }
  Pair pair;
};

// Keeps its own handler, and is checked.
void early_handler() {
  std::signal(SIGTRAP, count);
  Posted posted;
  std::raise(SIGTRAP);
  need(handled == 1, "its handler is called");
  read_word(posted.pair.memory[0]);
  need(handled == 1, "its handler is not called for watched memory");
  posted.finish();
}

// Installs its handler while memory is watched.
void late_handler() {
  Posted posted;
  need(std::signal(SIGTRAP, count) == SIG_DFL, "it had no handler");
  read_word(posted.pair.memory[0]);
  need(handled == 0, "its handler is not called for watched memory");
  std::raise(SIGTRAP);
  need(handled == 1, "its handler is called");
  struct sigaction action {};
  need(sigaction(SIGTRAP, nullptr, &action) == 0 && action.sa_handler == count, "it has its own");
  posted.finish();
}

// Replaces the library's handler, as programs can that `weft run` has not started: it is not
// watched behind its next call.
void replaced_handler() {
  Posted posted;
  struct {
    void (*handler)(int) = SIG_IGN;
    unsigned long flags = 0;
    void (*restorer)() = nullptr;
    unsigned long mask = 0;
  } ignored;
  need(syscall(SYS_rt_sigaction, SIGTRAP, &ignored, nullptr, sizeof ignored.mask) == 0,
       "rt_sigaction");
  ibv_wc completion{};
  need(ibv_poll_cq(posted.pair.receiver_cq, 1, &completion) == 0, "ibv_poll_cq");
  read_word(posted.pair.memory[0]);
  posted.finish();
}

// The child reads its copy, and then the parent looks too early.
void forking() {
  need(ibv_fork_init() == 0, "ibv_fork_init");
  Posted posted;
  const pid_t child = fork();
  if (child == 0) {
    read_word(posted.pair.memory[0]);
    _exit(3);
  }
  int status = 0;
  need(waitpid(child, &status, 0) == child, "waitpid");
  need(WIFEXITED(status) && WEXITSTATUS(status) == 3, "the child ends by itself");
  read_word(posted.pair.memory[0]);
  posted.finish();
}

// The child has a device of its own, and looks too early.
void forking_first() {
  need(ibv_fork_init() == 0, "ibv_fork_init");
  Posted parent;
  const pid_t child = fork();
  if (child == 0) {
    Posted posted;
    read_word(posted.pair.memory[0]);
    posted.finish();
    std::fflush(stdout);
    _exit(3);
  }
  int status = 0;
  need(waitpid(child, &status, 0) == child, "waitpid");
  need(WIFEXITED(status) && WEXITSTATUS(status) == 3, "the child ends by itself");
  parent.finish();
}

void executing() {
  Posted posted;
  execl("/bin/echo", "echo", "end", nullptr);
}

// Its thread cannot be watched.
void blocking() {
  sigset_t traps;
  sigemptyset(&traps);
  sigaddset(&traps, SIGTRAP);
  sigprocmask(SIG_BLOCK, &traps, nullptr);
  Posted posted;
  read_word(posted.pair.memory[0]);
  sigset_t pending;
  need(sigpending(&pending) == 0 && sigismember(&pending, SIGTRAP) == 0, "no signal is pending");
  posted.finish();
}

// The parent is a debugger, and sees no signal.
void traced() {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    Posted posted;
    read_word(posted.pair.memory[0]);
    posted.finish();
    _exit(3);
  }
  int status = 0;
  need(waitpid(child, &status, 0) == child, "waitpid");
  need(WIFEXITED(status) && WEXITSTATUS(status) == 3, "the child meets no trap");
}

const std::map<std::string_view, void (*)()> cases = {
    {"early-handler", early_handler},
    {"late-handler", late_handler},
    {"replaced-handler", replaced_handler},
    {"fork", forking},
    {"fork-first", forking_first},
    {"exec", executing},
    {"blocked", blocking},
    {"traced", traced},
};

}  // namespace

int main(int words, char** text) {
  const auto found = words == 2 ? cases.find(text[1]) : cases.end();
  if (found == cases.end()) return 2;
  found->second();
  std::printf("end\n");
  return 0;
}
