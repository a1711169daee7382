// Decides which thread waits for I/O: the background thread, or an application thread that is about
// to block anyway. Events that arrive then wake the application thread directly, without a
// hand-over from the background thread.
//
// An application thread leads while it is the only one that waits, and is expected back for a
// moment each time it stops. If two of them wait, neither can rely on the other to handle its
// events, so the background thread handles them all.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace weft {

class WaitLeader {
 public:
  // Registers an application thread that is about to wait, for as long as this exists.
  class Waiter {
   public:
    explicit Waiter(WaitLeader& leader) : leader_(leader), leads_(leader.enter()) {}
    ~Waiter() { leader_.leave(leads_); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    // True if it is the only waiter: this thread must handle the events itself (run_wait_loop()).
    [[nodiscard]] bool leads() const { return leads_; }

   private:
    WaitLeader& leader_;
    bool leads_;
  };

  WaitLeader() = default;
  WaitLeader(const WaitLeader&) = delete;
  WaitLeader& operator=(const WaitLeader&) = delete;

  // --- Any thread
  // An application thread leads now.
  [[nodiscard]] bool has_leader() const { return has_leader_; }
  // The background thread is in stand_aside(): it waits for no events, and checks everything again
  // when it returns.
  [[nodiscard]] bool is_thread_aside() const { return thread_aside_; }

  // --- The background thread
  // Blocks until the leading application thread has stayed away for the grace period, until it left
  // while others wait, or until stop().
  void stand_aside();

  // Ends stand_aside() for good; from now on no application thread leads.
  void stop();

 private:
  bool enter();
  void leave(bool led);

  std::atomic<bool> has_leader_{false};
  std::atomic<bool> thread_aside_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiters_ = 0;
  std::uint64_t terms_ = 0;     // how often an application thread began to lead
  bool awaits_leave_ = false;   // the background thread sleeps until the leader leaves
  bool thread_needed_ = false;  // the leader left while others wait: no grace period
  bool stopped_ = false;
};

}  // namespace weft
