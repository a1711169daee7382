// Class LoopCore: this file has the steps of the loop and its timers; loop_connections.cc has
// events, listeners and devices.
#include "message/loop_core.h"

#include <fmt/format.h>
#include <sched.h>

#include <array>
#include <stdexcept>

#include "base/simulated_kernel.h"
#include "message/link.h"
#include "provider/shared.h"

namespace weft::message::detail {
namespace {

// Throws Error(EINVAL), which names the first limit out of range.
const Limits& checked(const Limits& limits) {
  const auto check = [](bool good, const char* name, const char* rule) {
    if (good) return;
    throw Error(EINVAL, fmt::format("limits of an event loop: {} must {}", name, rule),
                {.object = "limits of an event loop", .attribute = name});
  };
  check(limits.credits >= 1 && limits.credits <= 0x7FFF, "credits", "be 1 to 32767");
  check(limits.max_message_bytes >= 1, "max_message_bytes", "be at least 1");
  check(limits.pool_bytes >= limits.max_message_bytes, "pool_bytes",
        "be at least max_message_bytes");
  check(limits.send_queue_messages >= 1, "send_queue_messages", "be at least 1");
  check(limits.eager_bytes <= 1U << 30, "eager_bytes", "be at most 1 GiB");
  check(limits.spin.count() >= 0, "spin", "not be negative");
  return limits;
}

// Marks this thread as the one that is inside of step().
class StepGuard {
 public:
  explicit StepGuard(std::atomic<std::thread::id>& stepping) : stepping_(stepping) {
    std::thread::id none{};
    // A program error, so it is a std::logic_error and no Error.
    if (!stepping_.compare_exchange_strong(none, std::this_thread::get_id())) {
      throw std::logic_error("EventLoop::step() from a callback, or from two threads at once");
    }
  }
  ~StepGuard() { stepping_ = std::thread::id{}; }
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;

 private:
  std::atomic<std::thread::id>& stepping_;
};

// Pieces of posted work that run before other sources have their turn.
constexpr std::size_t posted_batch = 64;

}  // namespace

LoopCore::LoopCore(const Limits& limits, verbs::EventChannel events, verbs::Backend backend)
    : limits_(checked(limits)),
      backend_(backend),
      is_embedded_(verbs::choose_backend(backend).backend == verbs::Backend::embedded),
      events_(std::move(events)) {
  if (!epoll_.valid() || !signal_.valid()) {
    throw Error(errno, "cannot create a descriptor of an event loop");
  }
  watch(signal_.fd());
  watch(timers_.fd());
  watch(events_.fd());
}

LoopCore::~LoopCore() {
  shut_down();
  // Not in shut_down(), which a coroutine may call: it would destroy itself.
  tasks_.clear();
}

void LoopCore::watch(int fd) {
  const int failed = epoll_.add(fd, EPOLLIN, static_cast<std::uint64_t>(fd));
  if (failed < 0) throw Error(-failed, "cannot watch a descriptor in an event loop");
}

// --- Coroutines ----------------------------------------------------------------------------------

// An exception of the coroutine is thrown from deferred work, so that it comes out of step().
void LoopCore::spawn(Task<> task) {
  tasks_.start(std::move(task), [this](const std::exception_ptr& failed) {
    if (failed) defer([failed] { std::rethrow_exception(failed); });
  });
}

// Once: the callback is removed before it is called.
void LoopCore::when_readable(int fd, std::function<void()> ready) {
  watch(fd);
  readable_callbacks_[fd] = std::move(ready);
}

void LoopCore::forget(int fd) noexcept {
  if (readable_callbacks_.erase(fd) > 0) epoll_.remove(fd);
}

std::size_t LoopCore::take_readiness(int fd) {
  const auto ready = std::move(readable_callbacks_.at(fd));
  forget(fd);
  ready();
  return 1;
}

// --- Any thread ----------------------------------------------------------------------------------

void LoopCore::post(std::function<void()> work) {
  {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(work));
  }
  signal_.raise();
}

void LoopCore::wake() noexcept {
  wake_requested_ = true;
  signal_.raise();
}

void LoopCore::stop() noexcept {
  stopped_ = true;
  wake();
}

int LoopCore::fd() {
  if (is_manual()) {
    throw Error(
        EOPNOTSUPP,
        "the descriptor of an event loop would never become readable, because the device has "
        "no thread (WEFT_PROGRESS=manual): call run(), or step() with a deadline, or choose "
        "DeviceOptions::Progress::automatic");
  }
  signal_.watch();
  return epoll_.get();
}

// Between steps any thread may use the loop's objects, as long as it is one at a time.
void LoopCore::check_thread() const {
  const std::thread::id inside = stepping_thread_;
  if (inside == std::thread::id{} || inside == std::this_thread::get_id()) return;
  throw std::logic_error("used in another thread than its event loop's: use EventLoop::post()");
}

// --- Stepping ------------------------------------------------------------------------------------

// Looks once without waiting, so that a deadline that has passed still handles what is here.
std::size_t LoopCore::step(const Deadline& deadline) {
  const auto self = shared_from_this();  // a callback may destroy the loop
  const StepGuard guard(stepping_thread_);
  sends_.begin_step();
  std::size_t done = end_burst();
  done += turn(0);
  while (done == 0 && !shut_down_ && !wake_requested_ && !deadline.passed()) {
    done = spin(deadline);
    if (done == 0) done = polled_.arm(shut_down_);
    if (done == 0 && !shut_down_) done = turn(timeout_ms(deadline));
  }
  // Another loop learns of completions by events only.
  if (signal_.is_watched()) done += polled_.arm(shut_down_);
  wake_requested_ = false;
  return done;
}

// Polls for a while, because the next message often comes sooner than a sleeping thread wakes up.
std::size_t LoopCore::spin(const Deadline& deadline) {
  // In a simulation nothing arrives sooner by that.
  if (!polled_.may_spin() || SimulatedKernel::current()) return 0;
  const TimePoint end = steady_now() + limits_.spin;
  std::size_t done = 0;
  while (done == 0 && !signal_.is_raised() && !deadline.passed() && steady_now() < end) {
    sched_yield();  // the other side may need this processor
    done = polled_.look(shut_down_);
    if (shut_down_) return done;
  }
  polled_.learn(done > 0);
  return done;
}

// Work that is queued inside of the loop raises no event, so the loop must not wait then.
int LoopCore::timeout_ms(const Deadline& deadline) const {
  return ready_.empty() && deferred_.empty() ? deadline.poll_timeout_ms() : 0;
}

void LoopCore::run() {
  const auto self = shared_from_this();
  while (!stopped_ && !shut_down_) step(Deadline::never());
  stopped_ = false;
}

// The kernel is asked for events now and then while connections are polled, and whenever these have
// nothing to do.
std::size_t LoopCore::turn(int timeout) {
  wait(timeout);
  const bool asks = timeout != 0 || polled_.asks_kernel();
  std::size_t done = asks ? 0 : polled_.turn(shut_down_);
  if (done == 0 && !shut_down_) done = take_events();
  if (asks) done += polled_.turn(shut_down_);
  if (!shut_down_) done += do_posted();
  if (!shut_down_) done += do_ready();
  // After the completions, which may be the frame that a keepalive timer waits for.
  if (!shut_down_) done += do_timers();
  if (!shut_down_) done += do_deferred();
  if (!shut_down_ && (!ready_.empty() || !deferred_.empty())) signal_.raise_outside();
  return done;
}

// provider::wait() does the waiting: with the embedded device this thread then runs the device
// meanwhile, and nothing has to be handed over from the device's thread.
void LoopCore::wait(int timeout) {
  if (timeout == 0 && !is_manual()) return;
  pollfd any{epoll_.get(), POLLIN, 0};
  if (provider::wait({&any, 1}, timeout) < 0 && errno != EINTR) {
    throw Error(errno, "cannot wait for events");
  }
}

// Finds what is ready, and never blocks.
std::size_t LoopCore::take_events() {
  std::array<epoll_event, 16> events;
  std::size_t done = 0;
  std::size_t completion_events = 0;
  for (const epoll_event& event : epoll_.wait(events, 0)) {
    if (shut_down_) break;
    const auto fd = static_cast<int>(event.data.u64);
    if (fd == signal_.fd()) {
      signal_.clear();
    } else if (fd == timers_.fd()) {
      timers_.rearm();
    } else if (fd == events_.fd()) {
      done += take_connection_events();
    } else if (readable_callbacks_.contains(fd)) {
      done += take_readiness(fd);
    } else {
      // A callback may add devices. NOLINTNEXTLINE(modernize-loop-convert)
      for (std::size_t d = 0; d < devices_.size(); ++d) {
        const auto device = devices_[d];
        if (device->channel.fd() == fd) completion_events += take_completion_events(*device);
      }
    }
  }
  polled_.note_events(completion_events);
  return done + completion_events;
}

bool LoopCore::is_manual() const {
  return is_embedded_ && provider::is_manual();
}

bool LoopCore::can_poll() const {
  if (SimulatedKernel::current()) return false;
  return limits_.spin.count() > 0 && !signal_.is_watched() && polled_.has_room();
}

// Runs the work without the lock: it may post more.
std::size_t LoopCore::do_posted() {
  std::size_t done = 0;
  while (true) {
    std::function<void()> work;
    {
      const std::lock_guard lock(posted_mutex_);
      if (posted_.empty()) return done;
      if (done == posted_batch) break;
      work = std::move(posted_.front());
      posted_.pop_front();
      if (!posted_.empty()) signal_.raise();  // the rest is not forgotten if this one throws
    }
    ++done;
    work();
    if (shut_down_) return done;
  }
  signal_.raise();
  return done;
}

// Only what was deferred before this call: work that defers itself again must not block the loop.
std::size_t LoopCore::do_deferred() {
  std::size_t done = 0;
  for (std::size_t left = deferred_.size(); left > 0 && !deferred_.empty(); --left) {
    const auto work = std::move(deferred_.front());
    deferred_.pop_front();
    if (!deferred_.empty()) signal_.raise_outside();
    ++done;
    work();
    if (shut_down_) break;
  }
  return done;
}

// Gives each connection that is ready one turn. Connections that wait for memory become ready when
// some was released.
std::size_t LoopCore::do_ready() {
  if (memory_wait_.released.exchange(false)) {
    for (auto& link : memory_wait_.links) link->on_memory_released();
    ready_.insert(ready_.end(), memory_wait_.links.begin(), memory_wait_.links.end());
    memory_wait_.links.clear();
  }
  std::size_t done = 0;
  for (std::size_t left = ready_.size(); left > 0 && !ready_.empty(); --left) {
    const auto link = std::move(ready_.front());
    ready_.pop_front();
    if (!ready_.empty()) signal_.raise_outside();
    done += link->turn();
    if (shut_down_) break;
  }
  return done;
}

void LoopCore::ready(std::shared_ptr<Link> link) {
  ready_.push_back(std::move(link));
  if (!is_inside()) signal_.raise_outside();
}

// The messages that the program sends on one connection between two steps are one frame. It is
// posted when the program goes on to another connection: by the next step, what a frame touches has
// left the cache where there are hundreds of connections.
void LoopCore::note_send(const Link& link) {
  if (sends_.burst() == &link) return sends_.count_message();
  (void)end_burst();
}

void LoopCore::ready_to_send(std::shared_ptr<Link> link) {
  if (is_inside()) return ready(std::move(link));
  sends_.begin_burst(std::move(link));
  signal_.raise_outside();
}

// Returns how much was done.
std::size_t LoopCore::end_burst() {
  auto link = sends_.end_burst();
  if (!link) return 0;
  if (sends_.posts_burst()) return link->post_burst();
  ready(std::move(link));
  return 0;
}

void LoopCore::defer(std::function<void()> work) {
  deferred_.push_back(std::move(work));
  if (!is_inside()) signal_.raise_outside();
}

void LoopCore::wait_for_memory(std::shared_ptr<Link> link) {
  memory_wait_.links.push_back(std::move(link));
}

// --- Timers --------------------------------------------------------------------------------------

EventLoop::TimerId LoopCore::after(std::chrono::nanoseconds delay, std::function<void()> work) {
  return timers_.add(steady_now() + delay, std::move(work));
}

bool LoopCore::cancel(EventLoop::TimerId timer) {
  return timers_.cancel(timer);
}

// The time is taken once, so that timers which callbacks add cannot keep the loop in here.
std::size_t LoopCore::do_timers() {
  if (timers_.empty()) return 0;
  const TimePoint now = steady_now();
  std::size_t done = 0;
  while (const auto work = timers_.take_due(now)) {
    ++done;
    (*work)();
    if (shut_down_) break;
  }
  return done;
}

// --- The end ------------------------------------------------------------------------------------

void LoopCore::shut_down() {
  if (std::exchange(shut_down_, true)) return;
  listeners_.clear();
  const auto links = std::move(links_);
  links_.clear();
  for (const auto& [number, link] : links) link->shut_down();
  by_id_.clear();
  ready_.clear();
  (void)sends_.end_burst();
  polled_.clear();
  memory_wait_.links.clear();
  deferred_.clear();
  timers_.clear();
  std::deque<std::function<void()>> dropped;  // destroyed without the lock: it may call post()
  // Declared after `dropped`, so the lock is released before that is destroyed.
  const std::lock_guard lock(posted_mutex_);
  posted_.swap(dropped);
}

}  // namespace weft::message::detail
