// What is behind an event loop: descriptors, posted work, timers, and who the events are for.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "message/pool.h"
#include "message/session.h"
#include "weft/message/event_loop.hpp"

namespace weft::message::detail {

// How many connections a listener has. Shared with them: they may outlive it, and live in other
// loops.
struct Headcount {
  std::atomic<std::size_t> connections{0};
  std::uint64_t turned_away = 0;
};

// One of these.
class Ticket {
 public:
  Ticket() = default;
  explicit Ticket(std::shared_ptr<Headcount> count) : count_(std::move(count)) {
    ++count_->connections;
  }
  Ticket(Ticket&& other) noexcept = default;
  Ticket& operator=(Ticket&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~Ticket() {
    if (count_) --count_->connections;
  }

 private:
  std::shared_ptr<Headcount> count_;
};

// A request to connect that nobody has decided on.
struct PendingRequest {
  std::weak_ptr<LoopCore> loop;
  verbs::Id id;
  MessageGreeting greeting;
  Ticket ticket;
};

// Of one device: made when the first connection needs it.
struct Device {
  verbs::Context context;
  verbs::ProtectionDomain domain;
  verbs::CompletionChannel channel;
  std::shared_ptr<Pool> pool;
};

void reject_quietly(const verbs::Id& id, const Rejection& rejection) noexcept;

class LoopCore : public std::enable_shared_from_this<LoopCore>, public Executor {
 public:
  LoopCore(const Limits& limits, verbs::Backend backend);
  ~LoopCore() override;
  LoopCore(const LoopCore&) = delete;
  LoopCore& operator=(const LoopCore&) = delete;

  // --- Any thread
  void post(std::function<void()> work);
  void wake() noexcept;  // ends a step
  void stop() noexcept;
  [[nodiscard]] int fd() const { return epoll_; }
  [[nodiscard]] bool is_inside() const { return inside_ == std::this_thread::get_id(); }
  // Throws std::logic_error where another thread is inside.
  void check_thread() const;

  // --- The loop's thread
  std::size_t step(const Deadline& deadline);
  void run();
  // Ends everything, without callbacks.
  void shut();
  EventLoop::TimerId after(std::chrono::nanoseconds delay, std::function<void()> work);
  bool cancel(EventLoop::TimerId timer);
  std::shared_ptr<Link> connect(const Address& peer, Handlers handlers, const Options& options);
  [[nodiscard]] std::uint64_t listen(const Address& address, RequestHandler on_request, int backlog,
                                     std::uint16_t& port);
  void close_listener(std::uint64_t number);
  [[nodiscard]] std::shared_ptr<Headcount> headcount(std::uint64_t listener) const;
  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] Terms terms() const;
  [[nodiscard]] std::size_t connections() const { return links_.size(); }

  // --- For coroutines of other layers
  void when_readable(int fd, std::function<void()> ready) override;
  void forget(int fd) noexcept override;

  // --- For links
  [[nodiscard]] const verbs::EventChannel& events() const { return events_; }
  // Registers it. An id follows with set_id() when it has one.
  std::uint64_t add(std::shared_ptr<Link> link);
  void set_id(const verbs::Id& id, std::uint64_t number);
  void forget(const rdma_cm_id* id) { by_id_.erase(id); }
  void remove(std::uint64_t number) { links_.erase(number); }
  [[nodiscard]] std::shared_ptr<Device> device_for(verbs::Context context);
  // The link has more to do, after the others had their turn.
  void ready(std::shared_ptr<Link> link);
  // Calls `work` from step(), soon.
  void defer(std::function<void()> work);
  // A coroutine that runs by itself. What it throws comes out of step().
  void spawn(Task<> task);
  // The link waits for memory of a pool.
  void wait_for_memory(std::shared_ptr<Link> link);

 private:
  struct ListenerState {
    verbs::Id id;
    RequestHandler on_request;
    std::shared_ptr<Headcount> count;
  };

  void watch(int fd);
  void signal() noexcept;
  [[nodiscard]] int timeout_ms(const Deadline& deadline) const;
  // Waits, and does what there is. Returns how much it was.
  std::size_t turn(int timeout);
  std::size_t do_posted();
  std::size_t do_deferred();
  std::size_t do_timers();
  std::size_t do_ready();
  std::size_t take_connection_events();
  std::size_t take_readiness(int fd);
  std::size_t take_completion_events(const Device& device);
  void handle(verbs::ConnectionEvent event);
  void handle_request(verbs::ConnectionEvent event);
  void set_timer();

  Limits limits_;
  int epoll_ = -1;
  int wake_ = -1;
  int timer_ = -1;
  verbs::EventChannel events_;
  std::atomic<std::thread::id> inside_{};
  std::atomic<bool> woken_{false};  // the descriptor is readable
  std::atomic<bool> look_up_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> memory_released_{false};
  bool shut_ = false;

  std::mutex posting_;  // posted_
  std::deque<std::function<void()>> posted_;

  std::deque<std::function<void()>> deferred_;
  std::map<std::pair<TimePoint, EventLoop::TimerId>, std::function<void()>> timers_;
  std::unordered_map<EventLoop::TimerId, TimePoint> timer_times_;
  EventLoop::TimerId last_timer_ = 0;

  std::uint64_t last_number_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<Link>> links_;
  std::unordered_map<const rdma_cm_id*, std::uint64_t> by_id_;
  std::unordered_map<std::uint64_t, std::shared_ptr<ListenerState>> listeners_;
  std::vector<std::shared_ptr<Device>> devices_;
  std::deque<std::shared_ptr<Link>> ready_;
  std::deque<std::shared_ptr<Link>> hungry_;
  std::unordered_map<int, std::function<void()>> readers_;
  TaskSet tasks_;
};

}  // namespace weft::message::detail
