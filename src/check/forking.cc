#include "check/forking.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstdlib>

#include "check/checker.h"

namespace weft::check {
namespace {

// ibv_fork_init(3): these variables have the same effect.
bool asked_by_environment() {
  return secure_getenv("RDMAV_FORK_SAFE") || secure_getenv("IBV_FORK_SAFE");
}

void check_fork() {
  Checker& state = checker();
  if (state.fork_ready || asked_by_environment()) return;
  Object region;
  std::size_t count = 0;
  {
    const std::lock_guard lock(state.mutex);
    for (const Object& object : state.objects.live()) {
      if (object.kind != Kind::region) continue;
      if (count++ == 0) region = object;
    }
  }
  if (count == 0) return;
  Call call("fork");
  call.report(Rule::fork_without_init,
              fmt::format("The process forks with {} registered region{}, and neither "
                          "ibv_fork_init() nor ibv_is_fork_initialized() was called.",
                          count, count == 1 ? "" : "s"),
              "It forks here", {{"One of the regions was registered here", region.made}});
}

// The locks are held across the fork, so that the child finds complete lists.
void before() {
  Inside::enter();
  check_fork();
  checker().early_accesses.before_fork();
  checker().polled_writes.before_fork();
  checker().reporter.before_fork();
  checker().stacks.before_fork();
  checker().mutex.lock();
}

void after_in_parent() {
  checker().mutex.unlock();
  checker().stacks.after_fork();
  checker().reporter.after_fork_in_parent();
  checker().polled_writes.after_fork_in_parent();
  checker().early_accesses.after_fork_in_parent();
  Inside::leave();
}

void after_in_child() {
  Checker& state = checker();
  state.objects.inherit();
  state.regions.unplace_all();
  state.mutex.unlock();
  state.stacks.after_fork();
  state.reporter.after_fork_in_child();
  state.polled_writes.after_fork_in_child();
  state.early_accesses.after_fork_in_child();
  Inside::leave();
}

}  // namespace

void watch_forks() {
  pthread_atfork(before, after_in_parent, after_in_child);
}

}  // namespace weft::check
