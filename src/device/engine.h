// Who makes things happen: one epoll set and one thread per device, and any application thread that
// polls a completion queue meanwhile.
//
// An application that polls without pause needs no thread: each wake-up of the thread would only
// take the processor away from it. So what an application thread looks after, the progress thread
// leaves alone and looks at again after a tick. When nobody has looked meanwhile (the application
// computes, or watches memory), or somebody is about to sleep on an event, the thread does the
// work.
//
// An application thread that sleeps in wait() needs no thread either: it is woken by what comes in
// itself, and the progress thread stands aside (see WaitLeader).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/wait_leader.h"
#include "base/wait_loop.h"
#include "device/system.h"

namespace weft::device {

enum class ProgressMode : std::uint8_t {
  automatic,  // the thread, and whoever polls
  thread,     // the thread alone
  manual,     // only whoever polls: no thread is started
};

// Something with a descriptor or a deadline. Called from the progress thread or from a polling
// application thread, possibly from both at once: implementations lock.
class Pollable {
 public:
  virtual ~Pollable() = default;
  virtual void on_ready(std::uint32_t epoll_events) = 0;
  // The same from an application thread in Engine::wait(): see Engine::put_off().
  virtual void on_ready_in_wait(std::uint32_t epoll_events) { on_ready(epoll_events); }
  virtual void on_deadline() {}
  // What was put off (see Engine::put_off()) is due now.
  virtual void on_put_off() {}

  // While it exists, an application thread looks after this itself. One look may take longer than
  // the progress thread's tick: what is being looked after is not left alone.
  class Attention {
   public:
    explicit Attention(Pollable& target) : target_(target) {
      target_.attending_.store(true, std::memory_order_relaxed);
    }
    ~Attention() {
      target_.attended_.store(true, std::memory_order_relaxed);
      target_.attending_.store(false, std::memory_order_relaxed);
    }
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;

   private:
    Pollable& target_;
  };

 private:
  friend class Engine;
  // Since the last look; right now. Two threads that look after one thing may hide one another for
  // a moment: then the progress thread helps.
  std::atomic<bool> attended_{false};
  std::atomic<bool> attending_{false};
  bool left_ = false;                 // ready at the last look, and left to an application thread
  std::uint64_t eager_until_ns_ = 0;  // nobody came then: do not wait again soon
};

class Engine final : private WaitLoop {
 public:
  explicit Engine(ProgressMode mode);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] ProgressMode mode() const { return mode_; }

  // From now on `target` hears of `events` (EPOLLIN, EPOLLOUT) on `fd`; it is kept alive until
  // unwatch(), and while a call to it is under way. Returns a token, or 0 where the kernel refused.
  std::uint64_t watch(int fd, std::uint32_t events, std::shared_ptr<Pollable> target);
  void change(std::uint64_t token, std::uint32_t events);
  // Before the descriptor is closed. A call that is under way may still come to its end.
  void unwatch(std::uint64_t token);

  // Calls on_deadline() once, at about `deadline_ns` of sys::now_ns().
  void call_at(std::uint64_t deadline_ns, const std::shared_ptr<Pollable>& target);

  // Handles what is ready now, without waiting. For an application thread.
  void poll();
  // ppoll(2), until `until_ns` of sys::now_ns() where there is such a time; handles meanwhile what
  // becomes ready, where no other application thread waits. The number of entries, 0 or -errno.
  int wait(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns, const sigset_t* mask);
  // An application is about to sleep on an event: the thread must be listening.
  void expect_sleep();

  // An application thread would like to leave something undone until its next call, which is likely
  // to come at once and to do it for free. True where somebody sees to it within a tick in any case
  // and calls on_put_off(): the progress thread, which is awake or will be, or who waits next.
  // `waiting`: in on_ready_in_wait().
  bool put_off(std::weak_ptr<Pollable> target, bool waiting);
  // An application thread that comes to wait() again and again: what was put off goes then.
  [[nodiscard]] bool application_waits() const { return wait_leader_.is_thread_aside(); }
  void put_off_done() { put_off_.fetch_sub(1); }

  // In the child after fork(): closes the child's copies of all descriptors, and does nothing any
  // more. The thread does not exist there.
  void abandon_after_fork();

 private:
  struct Slot {
    std::shared_ptr<Pollable> target;
    int fd = -1;
    std::uint32_t generation = 1;
  };

  void start_thread();
  void run();
  // Leaves to application threads what they attend to; true where there was any of that.
  bool dispatch_unattended(std::span<const epoll_event> events, bool all);
  bool stand_by(std::chrono::microseconds tick);
  void dispatch(const epoll_event& event, void (*handle)(Pollable&, std::uint32_t));
  [[nodiscard]] bool leave_to_application(Pollable& target);
  void take_wake_up() const;
  std::optional<Time> run_timers() override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }
  void dispatch_ready() override;
  [[nodiscard]] int sleep(std::span<pollfd> entries, std::optional<Time> until,
                          const sigset_t* mask) override;
  void run_put_off();
  int run_deadlines();
  [[nodiscard]] std::shared_ptr<Pollable> find(std::uint64_t token);
  void wake();

  ProgressMode mode_;
  sys::Descriptor epoll_;
  sys::Descriptor wake_;

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::multimap<std::uint64_t, std::weak_ptr<Pollable>> deadlines_;

  // Either the thread sees that something was put off, or who puts it off sees that it sleeps.
  std::atomic<int> put_off_{0};
  std::mutex put_off_mutex_;
  std::vector<std::weak_ptr<Pollable>> put_off_targets_;
  WaitLeader wait_leader_;
  std::atomic<bool> standing_by_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> abandoned_{false};
  std::mutex stand_by_mutex_;
  std::condition_variable stand_by_;
  bool sleep_expected_ = false;
  std::thread thread_;
};

}  // namespace weft::device
