#include "message/loop_core.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

#include "message/link.h"
#include "provider/shared.h"

namespace weft::message::detail {
namespace {

const Limits& checked(const Limits& limits) {
  const auto check = [](bool good, const char* what) {
    if (!good) throw Error(EINVAL, fmt::format("limits of an event loop: {}", what));
  };
  check(limits.credits >= 1 && limits.credits <= 0x7FFF, "credits must be 1 to 32767");
  check(limits.max_message_bytes >= 1, "max_message_bytes must be at least 1");
  check(limits.pool_bytes >= limits.max_message_bytes,
        "pool_bytes must be at least max_message_bytes");
  check(limits.send_queue_messages >= 1, "send_queue_messages must be at least 1");
  check(limits.eager_bytes <= 1U << 30, "eager_bytes must be at most 1 GiB");
  return limits;
}

int made(int fd) {
  if (fd < 0) throw Error(errno, "cannot make a descriptor for an event loop");
  return fd;
}

// Moves `inside` on while a thread is in step().
class Inside {
 public:
  explicit Inside(std::atomic<std::thread::id>& inside) : inside_(inside) {
    std::thread::id nobody{};
    if (!inside_.compare_exchange_strong(nobody, std::this_thread::get_id())) {
      throw std::logic_error("EventLoop::step() from a callback, or from two threads at once");
    }
  }
  ~Inside() { inside_ = std::thread::id{}; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  std::atomic<std::thread::id>& inside_;
};

// How much is done before the next source has its turn.
constexpr int batch = 64;

}  // namespace

LoopCore::LoopCore(const Limits& limits, verbs::Backend backend)
    : limits_(checked(limits)), events_(backend) {
  epoll_ = made(epoll_create1(EPOLL_CLOEXEC));
  wake_ = made(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  timer_ = made(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  watch(wake_);
  watch(timer_);
  watch(events_.fd());
}

LoopCore::~LoopCore() {
  shut();
  // Not before: shut() may come from one of them.
  tasks_.clear();
  for (const int fd : {epoll_, wake_, timer_}) {
    if (fd >= 0) close(fd);
  }
}

void LoopCore::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error(errno, "cannot watch a descriptor in an event loop");
  }
}

// --- Coroutines ----------------------------------------------------------------------------------

void LoopCore::spawn(Task<> task) {
  tasks_.start(std::move(task), [this](const std::exception_ptr& failed) {
    if (failed) defer([failed] { std::rethrow_exception(failed); });
  });
}

void LoopCore::when_readable(int fd, std::function<void()> ready) {
  watch(fd);
  readers_[fd] = std::move(ready);
}

void LoopCore::forget(int fd) noexcept {
  if (readers_.erase(fd) > 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

std::size_t LoopCore::take_readiness(int fd) {
  const auto ready = std::move(readers_.at(fd));
  forget(fd);
  ready();
  return 1;
}

// --- Any thread ----------------------------------------------------------------------------------

void LoopCore::post(std::function<void()> work) {
  {
    const std::lock_guard lock(posting_);
    posted_.push_back(std::move(work));
  }
  signal();
}

void LoopCore::wake() noexcept {
  look_up_ = true;
  signal();
}

void LoopCore::signal() noexcept {
  if (woken_.exchange(true)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
}

void LoopCore::stop() noexcept {
  stopped_ = true;
  wake();
}

void LoopCore::check_thread() const {
  const std::thread::id inside = inside_;
  if (inside == std::thread::id{} || inside == std::this_thread::get_id()) return;
  throw std::logic_error("used in another thread than its event loop's: use EventLoop::post()");
}

// --- Stepping ------------------------------------------------------------------------------------

std::size_t LoopCore::step(const Deadline& deadline) {
  const auto self = shared_from_this();  // a callback may destroy the loop
  const Inside inside(inside_);
  std::size_t done = turn(0);
  while (done == 0 && !shut_ && !look_up_ && !deadline.passed()) {
    done = turn(timeout_ms(deadline));
  }
  look_up_ = false;
  return done;
}

int LoopCore::timeout_ms(const Deadline& deadline) const {
  return ready_.empty() && deferred_.empty() ? deadline.poll_timeout_ms() : 0;
}

void LoopCore::run() {
  const auto self = shared_from_this();
  while (!stopped_ && !shut_) step(Deadline::never());
  stopped_ = false;
}

std::size_t LoopCore::turn(int timeout) {
  std::array<epoll_event, 16> events;
  if (timeout != 0) {
    pollfd any{epoll_, POLLIN, 0};
    if (provider::wait({&any, 1}, timeout) < 0 && errno != EINTR) {
      throw Error(errno, "cannot wait for events");
    }
  }
  const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  if (count < 0 && errno != EINTR) throw Error(errno, "cannot wait for events");
  std::size_t done = 0;
  for (int i = 0; i < count && !shut_; ++i) {
    const int fd = events[i].data.fd;
    std::uint64_t ignored = 0;
    if (fd == wake_) {
      [[maybe_unused]] const auto got = read(wake_, &ignored, sizeof ignored);
      woken_ = false;
    } else if (fd == timer_) {
      [[maybe_unused]] const auto got = read(timer_, &ignored, sizeof ignored);
    } else if (fd == events_.fd()) {
      done += take_connection_events();
    } else if (readers_.contains(fd)) {
      done += take_readiness(fd);
    } else {
      // A callback may add devices. NOLINTNEXTLINE(modernize-loop-convert)
      for (std::size_t d = 0; d < devices_.size(); ++d) {
        const auto device = devices_[d];
        if (device->channel.fd() == fd) done += take_completion_events(*device);
      }
    }
  }
  if (!shut_) done += do_posted();
  if (!shut_) done += do_ready();
  if (!shut_) done += do_timers();  // after what has come: it may be the sign of life
  if (!shut_) done += do_deferred();
  // Whoever waits for our descriptor must know that there is more.
  if (!shut_ && (!ready_.empty() || !deferred_.empty())) signal();
  return done;
}

std::size_t LoopCore::do_posted() {
  std::size_t done = 0;
  while (true) {
    std::function<void()> work;
    {
      const std::lock_guard lock(posting_);
      if (posted_.empty()) return done;
      if (done == batch) break;
      work = std::move(posted_.front());
      posted_.pop_front();
      if (!posted_.empty()) signal();  // where this one throws, the rest is not forgotten
    }
    ++done;
    work();
    if (shut_) return done;
  }
  signal();
  return done;
}

std::size_t LoopCore::do_deferred() {
  std::size_t done = 0;
  for (std::size_t left = deferred_.size(); left > 0 && !deferred_.empty(); --left) {
    const auto work = std::move(deferred_.front());
    deferred_.pop_front();
    if (!deferred_.empty()) signal();
    ++done;
    work();
    if (shut_) break;
  }
  return done;
}

std::size_t LoopCore::do_ready() {
  if (memory_released_.exchange(false)) {
    for (auto& link : hungry_) link->on_memory();
    ready_.insert(ready_.end(), hungry_.begin(), hungry_.end());
    hungry_.clear();
  }
  std::size_t done = 0;
  for (std::size_t left = ready_.size(); left > 0 && !ready_.empty(); --left) {
    const auto link = std::move(ready_.front());
    ready_.pop_front();
    if (!ready_.empty()) signal();
    done += link->turn();
    if (shut_) break;
  }
  return done;
}

void LoopCore::ready(std::shared_ptr<Link> link) {
  ready_.push_back(std::move(link));
  if (!is_inside()) signal();
}

void LoopCore::defer(std::function<void()> work) {
  deferred_.push_back(std::move(work));
  if (!is_inside()) signal();
}

void LoopCore::wait_for_memory(std::shared_ptr<Link> link) {
  hungry_.push_back(std::move(link));
}

// --- Timers --------------------------------------------------------------------------------------

EventLoop::TimerId LoopCore::after(std::chrono::nanoseconds delay, std::function<void()> work) {
  const TimePoint at = TimePoint::clock::now() + delay;
  const EventLoop::TimerId id = ++last_timer_;
  timers_.emplace(std::pair(at, id), std::move(work));
  timer_times_.emplace(id, at);
  if (timers_.begin()->first.second == id) set_timer();
  return id;
}

bool LoopCore::cancel(EventLoop::TimerId timer) {
  const auto found = timer_times_.find(timer);
  if (found == timer_times_.end()) return false;
  timers_.erase({found->second, timer});
  timer_times_.erase(found);
  return true;
}

void LoopCore::set_timer() {
  itimerspec when{};
  if (!timers_.empty()) {
    const auto since = timers_.begin()->first.first.time_since_epoch();
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
    constexpr std::int64_t second = 1'000'000'000;
    when.it_value.tv_sec = static_cast<time_t>(ns / second);
    when.it_value.tv_nsec = static_cast<long>(ns % second);
  }
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
}

std::size_t LoopCore::do_timers() {
  const TimePoint now = TimePoint::clock::now();
  if (timers_.empty() || timers_.begin()->first.first > now) return 0;
  std::size_t done = 0;
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto work = std::move(timers_.begin()->second);
    timer_times_.erase(timers_.begin()->first.second);
    timers_.erase(timers_.begin());
    set_timer();
    ++done;
    work();
    if (shut_) break;
  }
  return done;
}

// --- The end ------------------------------------------------------------------------------------

void LoopCore::shut() {
  if (std::exchange(shut_, true)) return;
  listeners_.clear();
  const auto links = std::move(links_);
  links_.clear();
  for (const auto& [number, link] : links) link->cut();
  by_id_.clear();
  ready_.clear();
  hungry_.clear();
  deferred_.clear();
  timers_.clear();
  timer_times_.clear();
  std::deque<std::function<void()>> dropped;
  const std::lock_guard lock(posting_);
  posted_.swap(dropped);
}

}  // namespace weft::message::detail
