// The background thread of streams, and how the objects that it serves register with it.
//
// It waits for the descriptors and the timers of all streams, and calls the IoHandler they belong
// to, while no call of the application does so. A thread of the application that is about to block
// anyway takes over that work (lead()), which saves a hand-over between threads for each event.
//
// A process has one such thread; in a simulation each program has one. It is created with the
// first stream and never ends, because streams are often destroyed in it. After fork(2) the child
// creates its own; streams that it inherited from the parent do not work there.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/epoll_set.h"
#include "base/event_fd.h"
#include "base/simulated_kernel.h"
#include "base/wait_leader.h"
#include "base/wait_loop.h"

namespace weft::stream::detail {

// An object with descriptors and timers that the stream thread serves.
class IoHandler {
 public:
  virtual ~IoHandler() = default;
  // Called when one of its descriptors is readable, or its time has come; in the stream thread, or
  // in a thread of the application that leads. May be called without a reason.
  virtual void on_io() noexcept = 0;
};

class StreamThread final : private WaitLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Token = std::uint64_t;

  static StreamThread& instance();
  // Creates the thread where the device has none (DeviceOptions::progress is manual): it then moves
  // the data of the device, so that descriptors of listeners and streams become readable. Else does
  // nothing. Throws Error.
  static void serve_device();
  // The thread of this process; null if it was not created yet.
  static StreamThread* existing();

  // Registers a handler, which is served as long as it lives. Throws Error.
  [[nodiscard]] Token add(std::weak_ptr<IoHandler> handler);
  // Calls the handler whenever `fd` is readable. Throws Error.
  void watch(Token token, int fd);
  void unwatch(int fd);
  // Calls the handler at `when`, or earlier.
  void wake_at(Token token, Clock::time_point when);
  // To be called before the descriptors are closed. The handler may still be inside of on_io() when
  // this returns.
  void remove(Token token, std::span<const int> fds);

  // Threads of the application hold a Waiter of this while they wait.
  [[nodiscard]] WaitLeader& wait_leader() { return wait_leader_; }
  // For a Waiter that leads: waits as ppoll(2) does, and serves the handlers meanwhile, so that no
  // event has to go to the stream thread first and from there to the caller.
  int lead(std::span<pollfd> entries, const timespec* timeout, const sigset_t* mask);
  // For a Waiter that leads: waits for an event, until `stop` is set or the timeout has passed, and
  // serves the handlers. May return without a reason.
  void lead_until(const std::atomic<bool>& stop, std::optional<std::chrono::milliseconds> timeout);
  // To be called by a thread that has set the flag which the leading thread waits for.
  void stop_leader();

 private:
  StreamThread();
  [[nodiscard]] static StreamThread& of_program(SimulatedKernel& kernel);
  void run();
  [[nodiscard]] int await_events(int timeout_ms) const;
  [[nodiscard]] std::optional<Clock::time_point> next_time();
  void call_handler(Token token);
  void call_due_handlers();
  void call_ready_handlers(int timeout_ms, bool is_thread);
  std::optional<Time> run_timers() override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }
  void dispatch_ready() override;
  [[nodiscard]] int sleep(std::span<pollfd> entries, std::optional<Time> until,
                          const sigset_t* mask) override;

  const std::uint64_t owner_;  // fork_mark()
  EpollSet epoll_;
  weft::EventFd wake_;  // an earlier time was added
  weft::EventFd stop_;  // another thread has set the flag of lead_until()
  WaitLeader wait_leader_;
  std::mutex mutex_;  // guards what follows
  Token last_ = 0;
  std::unordered_map<Token, std::weak_ptr<IoHandler>> handlers_;
  std::multimap<Clock::time_point, Token> times_;
};

// Registers one handler with the stream thread, and removes it when destroyed. The owner declares
// it behind the objects that own the descriptors, so that it is destroyed before them. Not
// thread-safe.
class ThreadRegistration {
 public:
  ThreadRegistration() = default;
  ~ThreadRegistration() { leave(); }
  ThreadRegistration(const ThreadRegistration&) = delete;
  ThreadRegistration& operator=(const ThreadRegistration&) = delete;

  [[nodiscard]] explicit operator bool() const { return thread_ != nullptr; }
  // Both throw Error. At most three descriptors at once.
  void enter(std::weak_ptr<IoHandler> handler);
  void watch(int fd);
  void unwatch(int fd);
  void wake_at(StreamThread::Clock::time_point when) { thread_->wake_at(token_, when); }
  void leave();

 private:
  StreamThread* thread_ = nullptr;  // null while not registered
  StreamThread::Token token_ = 0;
  // Events, completions, and for a while the search for an address.
  std::array<int, 3> fds_{};
  std::size_t fd_count_ = 0;
};

// Waits as poll(2) does: by StreamThread::lead() where this thread may lead, else by
// provider::wait().
[[nodiscard]] int wait(std::span<pollfd> entries, int timeout_ms);

}  // namespace weft::stream::detail
