// Drives a device: one epoll set and one progress thread, and any application thread that polls a
// completion queue meanwhile.
//
// An application that polls without pause needs no progress thread: each wake-up of that thread
// would only take the processor away from it. So the thread leaves alone what an application thread
// drives, and checks again after a tick. It does the work if no application thread has done so
// since (the application computes, or watches memory), or if one is about to block on an event.
//
// An application thread that blocks in wait() needs no progress thread either: incoming data wake
// it directly, and the progress thread pauses (see WaitLeader).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/after_fork.h"
#include "base/epoll_set.h"
#include "base/event_fd.h"
#include "base/quick_mutex.h"
#include "base/simulated_kernel.h"
#include "base/wait_leader.h"
#include "base/wait_loop.h"
#include "device/deadlines.h"
#include "device/stand_by_alarm.h"
#include "device/stand_by_request.h"
#include "device/system.h"

namespace weft::device {

enum class ProgressMode : std::uint8_t {
  automatic,  // the progress thread, and each thread that polls
  thread,     // the progress thread alone
  manual,     // only threads that poll: no progress thread is started
};

inline constexpr int first_nice_value = -20;
inline constexpr int last_nice_value = 19;

// What the progress thread is like, where there is one.
struct ProgressThread {
  // It meets deadlines to some microseconds, at the price of one more system call each time it
  // sleeps; otherwise to a millisecond.
  bool exact = false;
  // Its nice value, from -20 to 19; no value: that of the thread which starts it.
  std::optional<int> nice{};
};

// Something with a descriptor or a deadline. Called from the progress thread or from a polling
// application thread, possibly from both at once: implementations lock.
class Pollable {
 public:
  virtual ~Pollable() = default;
  virtual void on_ready(std::uint32_t epoll_events) = 0;
  // The same from an application thread in Engine::wait(): see Engine::defer().
  virtual void on_ready_in_wait(std::uint32_t epoll_events) { on_ready(epoll_events); }
  // The same from an application thread that has just polled this object, and will again: see
  // Engine::poll(). What its next poll takes in anyway may stay where it is.
  virtual void on_ready_between_polls(std::uint32_t epoll_events) { on_ready(epoll_events); }
  virtual void on_deadline() {}
  // The work that was deferred with Engine::defer() is due now.
  virtual void on_deferred() {}
  // One of the calls above will follow soon.
  virtual void prefetch() const {}

  // Exists while an application thread drives this object. That may take longer than the progress
  // thread's tick, and the progress thread does not interfere meanwhile.
  class Attention {
   public:
    explicit Attention(Pollable& target) : target_(target) {
      target_.attending_.store(true, std::memory_order_relaxed);
    }
    ~Attention() {
      target_.note_attention();
      target_.attending_.store(false, std::memory_order_relaxed);
    }
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;

   private:
    Pollable& target_;
  };

 protected:
  // An application thread that polls between other calls has made such a call.
  void note_attention() {
    attended_.store(true, std::memory_order_relaxed);
    polled_.store(true, std::memory_order_relaxed);
  }

 private:
  friend class Engine;
  // Whether an application thread has driven this since the progress thread's last check, and
  // whether one does so right now. If two threads drive one object, one may hide the other for a
  // moment; then the progress thread helps.
  std::atomic<bool> attended_{false};
  std::atomic<bool> attending_{false};
  std::atomic<bool> polled_{false};   // as attended_, since the last tick: see Engine::leave()
  bool left_ = false;                 // ready at the last check, and left to an application thread
  std::uint64_t eager_until_ns_ = 0;  // no application thread came: until then, do not wait again
};

class Engine final : private WaitLoop, private SimulatedKernel::Watcher {
 public:
  explicit Engine(ProgressMode mode, ProgressThread thread = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] ProgressMode mode() const { return mode_; }
  // Made in a simulation, which calls in place of a thread.
  [[nodiscard]] bool simulated() const { return simulation_ != nullptr; }

  // From now on `target` is called for `events` (EPOLLIN, EPOLLOUT) on `fd`. The engine keeps it
  // alive until unwatch(), and while a call to it is under way. Returns a token, or 0 if the kernel
  // refuses.
  std::uint64_t watch(int fd, std::uint32_t events, std::shared_ptr<Pollable> target);
  // The same, but does not start the progress thread: `target` is called once that runs for another
  // reason, or from a thread that polls.
  std::uint64_t watch_idly(int fd, std::uint32_t events, std::shared_ptr<Pollable> target);
  void change(std::uint64_t token, std::uint32_t events);
  // To be called before the descriptor is closed. A call that is under way may still complete.
  void unwatch(std::uint64_t token);

  // Takes a descriptor that is watched for EPOLLIN out of the epoll set while an application thread
  // polls its target at least once in a tick: for each message the kernel would note the event for
  // a thread that does not look. Watched as before from then on when the polling ends, when the
  // progress thread or a waiting thread serves the descriptors, or with the next change(). Does
  // nothing without steady_polling().
  void leave(std::uint64_t token);
  // Not 0 while application threads poll steadily. The value changes where descriptors that were
  // left may be watched again, so leave() is to be called once for each value.
  [[nodiscard]] std::uint32_t steady_polling() const {
    return left_.steady.load(std::memory_order_relaxed);
  }

  // Calls on_deadline() once, at about `deadline_ns` of sys::now_ns().
  void call_at(std::uint64_t deadline_ns, const std::shared_ptr<Pollable>& target);

  // The same, but starts no thread: while the device has none, the call waits until there is one.
  void call_idly_at(std::uint64_t deadline_ns, const std::shared_ptr<Pollable>& target);

  // Handles what is ready now, without waiting. Called by application threads. `driven`: what the
  // caller drives itself with each of its polls, and has driven just now. Returns whether anything
  // else was ready.
  bool poll(std::span<Pollable* const> driven = {});
  // As ppoll(2), until `until_ns` of sys::now_ns() if given. Meanwhile it handles what becomes
  // ready, unless another application thread waits already. Returns the number of entries, 0 or
  // -errno.
  int wait(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns, const sigset_t* mask);
  // For a thread that waits in another way than by wait(), as a Waiter of wait_leader(): where that
  // leads, it calls the functions of wait_loop().
  [[nodiscard]] bool may_be_led() const {
    return mode_ == ProgressMode::automatic && !simulation_ && !abandoned_;
  }
  [[nodiscard]] WaitLeader& wait_leader() { return wait_leader_; }
  [[nodiscard]] WaitLoop& wait_loop() { return *this; }
  // Such a thread leads now, so everything is watched again.
  void end_steady_polling();
  // Whether a thread has polled since the last call, or since the progress thread last looked.
  [[nodiscard]] bool take_polled() { return polled_.exchange(false, std::memory_order_relaxed); }
  // To be called before work on `target` that the application asked for: prefetches its memory
  // where the last such work was on another object.
  void turn_to(const Pollable& target) {
    if (last_target_.load(std::memory_order_relaxed) == &target) return;
    last_target_.store(&target, std::memory_order_relaxed);
    target.prefetch();
  }
  // Starts the progress thread now, for a process that can start none later. Throws
  // std::system_error where that is refused already.
  void start();
  // An application thread is about to block on an event, so the progress thread must listen.
  void expect_sleep();

  // Defers work to the caller's next call, where it costs no extra system call. Returns true only
  // if another thread is certain to call on_deferred() in time: the progress thread, or the next
  // thread that waits; without a progress thread, the program with its next call. On false the
  // caller does the work now, as always in a simulation. `waiting`: the caller is in
  // on_ready_in_wait(). `ticks`: how many ticks of the progress thread may end before it comes.
  // With one that may be right away; with two it is a whole tick at least, so a program that goes
  // on in time is never interrupted for it.
  bool defer(const std::weak_ptr<Pollable>& target, bool waiting, std::uint32_t ticks = 1);
  // Much has come in, so more is likely to follow sooner than a thread wakes up: the progress
  // thread looks a little longer before it sleeps. To be called from on_ready().
  void expect_more() {
    bulk_.more_expected.store(true, std::memory_order_relaxed);
    note_bulk();
  }
  // Much has come in by another call. For a while it is better if one thread receives and another
  // one handles what it has received.
  void note_bulk() { bulk_.last_ns.store(sys::now_ns(), std::memory_order_relaxed); }
  [[nodiscard]] bool moves_bulk() const {
    return sys::now_ns() - bulk_.last_ns.load(std::memory_order_relaxed) < bulk_lasts_ns;
  }
  // The deferred work is done. To be called once for each successful defer().
  void deferral_done() { deferred_.fetch_sub(1); }
  // An application thread comes back to wait() again and again, so deferred work leaves with it.
  [[nodiscard]] bool application_waits() const { return wait_leader_.is_thread_aside(); }

  // In the child after fork(): closes the child's copies of all descriptors, and does nothing any
  // more. The thread does not exist there.
  void abandon_after_fork();

 private:
  static constexpr std::uint64_t bulk_lasts_ns = 1'000'000;

  struct Slot {
    std::shared_ptr<Pollable> target;
    int fd = -1;
    std::uint32_t generation = 1;
    std::uint32_t events = 0;
    bool left = false;  // not in the epoll set: see leave()
  };

  // What leave() has taken out of the epoll set.
  struct Left {
    std::vector<std::uint64_t> tokens;     // some may have ended
    std::atomic<std::uint32_t> steady{0};  // see steady_polling()
    std::uint32_t changes = 0;             // its last value
    std::atomic<bool> refused{false};  // the kernel takes one of them no more, for want of memory
  };

  struct Bulk {
    std::atomic<bool> more_expected{false};
    std::atomic<std::uint64_t> last_ns{0};
  };

  struct Deferred {
    std::weak_ptr<Pollable> target;
    std::uint64_t due = 0;  // at the end of this tick
  };

  // A token names a place and its generation: an event that was fetched before unwatch() finds
  // another generation and is dropped.
  [[nodiscard]] static std::uint64_t token_of(std::size_t index, std::uint32_t generation) {
    return std::uint64_t{generation} << 32 | index;
  }
  [[nodiscard]] static std::size_t index_of(std::uint64_t token) { return token & 0xFFFFFFFF; }
  [[nodiscard]] static std::uint32_t generation_of(std::uint64_t token) {
    return static_cast<std::uint32_t>(token >> 32);
  }

  std::uint64_t add(int fd, std::uint32_t events, std::shared_ptr<Pollable> target);
  void start_thread();
  void run();
  void take_nice_value() const;
  void serve();
  // Skips what application threads drive themselves. Returns whether there was any of it.
  bool dispatch_unattended(std::span<const epoll_event> events, bool all);
  bool stand_by(std::chrono::microseconds tick);
  void set_steady_polling(bool steady);
  void note_change();
  void watch_again(bool all);
  [[nodiscard]] bool add_again(Slot& slot, std::uint64_t token);
  void dispatch(const epoll_event& event, void (*handle)(Pollable&, std::uint32_t));
  [[nodiscard]] bool leave_to_application(Pollable& target);
  [[nodiscard]] bool try_to_defer(const std::weak_ptr<Pollable>& target, bool waiting,
                                  std::uint32_t ticks);
  std::optional<Time> run_timers() override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }
  void dispatch_ready() override;
  [[nodiscard]] int sleep(std::span<pollfd> entries, std::optional<Time> until,
                          const sigset_t* mask) override;
  [[nodiscard]] int add(int fd, std::uint32_t events, std::uint64_t token);
  void dispatch_simulated(std::uint64_t token, std::uint32_t events) override;
  void run_simulated_deadlines() override;
  [[nodiscard]] bool has_deadline_by(std::uint64_t until_ns) override;
  template <typename Predicate>
  void run_deferred_if(Predicate due);
  void run_deferred();
  void run_deferred_of_tick();
  void end_tick();
  std::optional<Time> run_deadlines(int most);
  [[nodiscard]] std::span<const epoll_event> await_events(std::span<epoll_event> events,
                                                          int longest_ms);
  void wait_exactly(std::optional<Time> deadline_ns) const;
  [[nodiscard]] std::shared_ptr<Pollable> find(std::uint64_t token);
  void prefetch_next(std::span<const epoll_event> events, const epoll_event& current);

  // Null outside of a simulation. Kept until the engine ends, which may be later than its end.
  const std::shared_ptr<SimulatedKernel> simulation_;
  std::size_t watcher_ = 0;  // its number there
  ProgressMode mode_;
  const ProgressThread kind_;
  Bulk bulk_;
  EpollSet epoll_;
  EventFd wake_;

  std::mutex mutex_;
  StableArray<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  Deadlines<Pollable> deadlines_;
  Left left_;

  // Counted under the mutex before the state of the progress thread is read: either that thread
  // sees the count, or defer() sees that it sleeps.
  std::atomic<int> deferred_{0};
  QuickMutex deferred_mutex_;
  std::vector<Deferred> deferred_targets_;
  std::uint64_t tick_ = 0;  // of stand_by(), while something is deferred; under that mutex
  WaitLeader wait_leader_;
  StandByRequest asked_aside_;
  std::atomic<bool> standing_by_{false};
  std::atomic<bool> polled_{false};  // by an application thread, since the last tick of stand_by()
  std::atomic<const Pollable*> last_target_{nullptr};  // of turn_to(); it may have ended
  std::atomic<bool> stopping_{false};
  std::atomic<bool> abandoned_{false};
  StandByAlarm alarm_;  // set: an application thread is about to sleep, or the engine ends
  std::thread thread_;
};

}  // namespace weft::device
