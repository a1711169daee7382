// LoopCore: the implementation of an EventLoop. It waits for descriptors, runs posted work and
// timers, and passes events to the connections and listeners that they belong to.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/epoll_set.h"
#include "message/device.h"
#include "message/loop_sends.h"
#include "message/loop_signal.h"
#include "message/polled_links.h"
#include "message/session.h"
#include "message/timer_queue.h"
#include "weft/message/event_loop.hpp"

namespace weft::message::detail {

// The numbers of a listener. Its connections share them, because they may outlive the listener, and
// may belong to other loops.
struct ListenerCounts {
  std::atomic<std::size_t> connections{0};
  std::uint64_t turned_away = 0;
};

// Counts one connection in the ListenerCounts for as long as this object lives.
class CountedConnection {
 public:
  CountedConnection() = default;
  explicit CountedConnection(std::shared_ptr<ListenerCounts> counts) : counts_(std::move(counts)) {
    ++counts_->connections;
  }
  CountedConnection(CountedConnection&& other) noexcept = default;
  CountedConnection& operator=(CountedConnection&& other) noexcept {
    std::swap(counts_, other.counts_);
    return *this;
  }
  ~CountedConnection() {
    if (counts_) --counts_->connections;
  }

 private:
  std::shared_ptr<ListenerCounts> counts_;
};

// A request to connect that the application has neither accepted nor rejected.
struct PendingRequest {
  std::weak_ptr<LoopCore> loop;
  verbs::Id id;
  MessageGreeting greeting;
  CountedConnection counted;
};

// Rejects a request; errors are ignored, because the peer may have disconnected already.
void reject_quietly(const verbs::Id& id, const Rejection& rejection) noexcept;

// Kept alive by the handle and by each call of step(). Only the section "Any thread" is
// thread-safe.
class LoopCore : public std::enable_shared_from_this<LoopCore>, public Executor {
 public:
  // `events`: of the device of all connections.
  LoopCore(const Limits& limits, verbs::EventChannel events, verbs::Backend backend);
  ~LoopCore() override;
  LoopCore(const LoopCore&) = delete;
  LoopCore& operator=(const LoopCore&) = delete;

  // --- Any thread
  void post(std::function<void()> work);
  void wake() noexcept;  // makes step() return
  void stop() noexcept;
  // From now on the descriptor shows another loop that there is work, which costs system calls.
  // Throws Error(EOPNOTSUPP) where nothing would make it readable.
  [[nodiscard]] int fd();
  // Whether this thread is inside of step().
  [[nodiscard]] bool is_inside() const { return stepping_thread_ == std::this_thread::get_id(); }
  // Throws std::logic_error if another thread is inside of step().
  void check_thread() const;

  // --- The loop's thread
  std::size_t step(const Deadline& deadline);
  void run();
  // Ends all connections and listeners without calling handlers. Idempotent.
  void shut_down();
  EventLoop::TimerId after(std::chrono::nanoseconds delay, std::function<void()> work);
  bool cancel(EventLoop::TimerId timer);
  std::shared_ptr<Link> connect(const Address& peer, Handlers handlers, const Options& options);
  [[nodiscard]] std::uint64_t listen(const Address& address, RequestHandler on_request, int backlog,
                                     std::uint16_t& port);
  void close_listener(std::uint64_t number);
  // Null if the listener is closed.
  [[nodiscard]] std::shared_ptr<ListenerCounts> counts(std::uint64_t listener) const;
  [[nodiscard]] verbs::Backend backend() const { return backend_; }
  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] Terms terms() const;
  [[nodiscard]] std::size_t connections() const { return links_.size(); }

  // --- Executor: for coroutines of other layers
  void when_readable(int fd, std::function<void()> ready) override;
  void forget(int fd) noexcept override;

  // --- For links
  [[nodiscard]] const verbs::EventChannel& events() const { return events_; }
  // Registers a connection, and returns its number. set_id() follows when it has an id.
  std::uint64_t add(std::shared_ptr<Link> link);
  void set_id(const verbs::Id& id, std::uint64_t number);
  void forget(const rdma_cm_id* id) { by_id_.erase(id); }
  void remove(std::uint64_t number);
  [[nodiscard]] std::shared_ptr<Device> device_for(verbs::Context context);
  // Queues a turn of the connection, behind those of the others.
  void ready(std::shared_ptr<Link> link);
  [[nodiscard]] LoopSends& sends() { return sends_; }
  // The program sends on this connection: a burst of another one is over.
  void note_send(const Link& link);
  // Messages of the connection wait, for its turn or, between steps, for the end of the burst.
  void ready_to_send(std::shared_ptr<Link> link);
  // Messages of a connection, which were sent since the last step, have waited for the next one.
  [[nodiscard]] bool sends_wait() const { return sends_.waits() && !is_inside(); }
  // Whether the loop looks for completions of one more connection itself, by poll_later(), and so
  // without events.
  [[nodiscard]] bool can_poll() const;
  // Whether the device moves data only while this loop or another thread polls it.
  [[nodiscard]] bool is_manual() const;
  void poll_later(std::shared_ptr<Link> link) { polled_.add(std::move(link)); }
  // Calls `work` from step(), after the events that are handled now.
  void defer(std::function<void()> work);
  // Starts a coroutine that no other one awaits. What it throws comes out of step().
  void spawn(Task<> task);
  // Queues a turn of the connection for when memory of a pool has been released.
  void wait_for_memory(std::shared_ptr<Link> link);

 private:
  struct ListenerState {
    verbs::Id id;
    RequestHandler on_request;
    std::shared_ptr<ListenerCounts> counts;
  };

  void watch(int fd);
  std::size_t end_burst();
  [[nodiscard]] int timeout_ms(const Deadline& deadline) const;
  // Waits at most `timeout` milliseconds, then does what there is to do. Returns how much it was.
  std::size_t turn(int timeout);
  void wait(int timeout);
  std::size_t take_events();
  std::size_t spin(const Deadline& deadline);
  std::size_t do_posted();
  std::size_t do_deferred();
  std::size_t do_timers();
  std::size_t do_ready();
  std::size_t take_connection_events();
  std::size_t take_readiness(int fd);
  std::size_t take_completion_events(const Device& device);
  void handle(verbs::ConnectionEvent event);
  void handle_request(verbs::ConnectionEvent event);

  Limits limits_;
  const verbs::Backend backend_;
  const bool is_embedded_;
  EpollSet epoll_;
  LoopSignal signal_;  // makes epoll_ readable
  verbs::EventChannel events_;
  std::atomic<std::thread::id> stepping_thread_{};  // that is inside of step()
  std::atomic<bool> wake_requested_{false};         // step() is to return
  std::atomic<bool> stopped_{false};
  bool shut_down_ = false;

  std::mutex posted_mutex_;  // guards posted_
  std::deque<std::function<void()>> posted_;
  std::deque<std::function<void()>> deferred_;
  TimerQueue timers_;

  std::uint64_t last_number_ = 0;  // of connections and listeners
  std::unordered_map<std::uint64_t, std::shared_ptr<Link>> links_;
  std::unordered_map<const rdma_cm_id*, std::uint64_t> by_id_;
  std::unordered_map<std::uint64_t, std::shared_ptr<ListenerState>> listeners_;
  std::vector<std::shared_ptr<Device>> devices_;
  std::deque<std::shared_ptr<Link>> ready_;
  PolledLinks polled_;
  struct MemoryWait {
    std::atomic<bool> released{false};
    std::deque<std::shared_ptr<Link>> links;
  } memory_wait_;
  LoopSends sends_;
  std::unordered_map<int, std::function<void()>> readable_callbacks_;  // of when_readable()
  TaskSet tasks_;
};

}  // namespace weft::message::detail
