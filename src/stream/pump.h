// The thread that looks after streams while no call of the application does: it waits for all their
// descriptors, and for their times. A thread of the application that waits does it in its stead.
//
// There is one for a process, made with the first stream and never ended: streams are often ended
// in it. After fork(2) the child makes its own; streams of the parent are dead there.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/wait_leader.h"
#include "base/wait_loop.h"

namespace weft::stream::detail {

class Attendant {
 public:
  virtual ~Attendant() = default;
  // One of its descriptors is readable, or its time has come.
  virtual void attend() noexcept = 0;
};

class Pump final : private WaitLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Token = std::uint64_t;

  static Pump& instance();
  // Null where this process has none yet.
  static Pump* existing();

  // From now on it is attended to while it lives. Throws Error.
  [[nodiscard]] Token add(std::weak_ptr<Attendant> attendant);
  void watch(Token token, int fd);
  // No later than that.
  void wake_at(Token token, Clock::time_point when);
  // Before its descriptors are closed. It may still be in attend() afterwards.
  void remove(Token token, std::initializer_list<int> fds);

  // Threads of the application wait while they have a Waiter of this.
  [[nodiscard]] WaitLeader& wait_leader() { return wait_leader_; }
  // For a waiter that leads: ppoll(2), and attends meanwhile, so that nothing has to be handed over
  // to the pump's thread and from there to the caller.
  int lead(std::span<pollfd> entries, const timespec* timeout, const sigset_t* mask);

 private:
  Pump();
  void run();
  [[nodiscard]] std::optional<Clock::time_point> next_time();
  void attend(Token token);
  void attend_late();
  void attend_ready(int timeout_ms, bool is_thread);
  std::optional<Time> run_timers() override;
  [[nodiscard]] int descriptor() const override { return epoll_; }
  void dispatch_ready() override { attend_ready(0, false); }
  [[nodiscard]] int sleep(std::span<pollfd> entries, std::optional<Time> until,
                          const sigset_t* mask) override;

  const pid_t owner_;
  int epoll_;
  int wake_;
  WaitLeader wait_leader_;
  std::mutex mutex_;
  Token last_ = 0;
  std::unordered_map<Token, std::weak_ptr<Attendant>> attendants_;
  std::multimap<Clock::time_point, Token> times_;
};

// poll(2) by Pump::lead() where that can be, else by provider::wait().
[[nodiscard]] int wait(std::span<pollfd> entries, int timeout_ms);

}  // namespace weft::stream::detail
