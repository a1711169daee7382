#include "stream/stream_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>

#include "base/duration.h"
#include "base/fork_mark.h"
#include "base/simulated_kernel.h"
#include "base/thread.h"
#include "provider/shared.h"
#include "weft/deadline.hpp"
#include "weft/error.hpp"

namespace weft::stream::detail {
namespace {

constexpr StreamThread::Token no_token = 0;  // marks the wake-up descriptor in epoll events

WaitLoop::Time time_of(StreamThread::Clock::time_point at) {
  return static_cast<WaitLoop::Time>(std::chrono::nanoseconds(at.time_since_epoch()).count());
}

// This thread leads, and calls handlers: it looks at the flag of lead_until() afterwards.
thread_local bool calls_as_leader = false;

class CallsAsLeader {
 public:
  CallsAsLeader() { calls_as_leader = true; }
  ~CallsAsLeader() { calls_as_leader = false; }
  CallsAsLeader(const CallsAsLeader&) = delete;
  CallsAsLeader& operator=(const CallsAsLeader&) = delete;
};

constinit std::mutex creation_mutex;
constinit std::atomic<StreamThread*> the_thread{nullptr};

}  // namespace

// One thread for all streams of the process, started by the first stream that needs it.
StreamThread& StreamThread::instance() {
  if (SimulatedKernel* const kernel = SimulatedKernel::current()) return of_program(*kernel);
  if (StreamThread* const thread = existing()) return *thread;
  // Another thread may hold it at fork(2).
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { std::construct_at(&creation_mutex); });
  const std::lock_guard lock(creation_mutex);
  StreamThread* thread = existing();
  if (!thread) {
    // Never deleted. After fork(2) this replaces the object of the parent, whose thread does not
    // exist in this process.
    thread = new StreamThread();
    the_thread = thread;
  }
  return *thread;
}

// Each program of a simulation is a process.
StreamThread& StreamThread::of_program(SimulatedKernel& kernel) {
  std::shared_ptr<void>* const place = kernel.kept(SimulatedKernel::Keeper::stream);
  if (!place) {
    throw Error(EOPNOTSUPP,
                "streams of a simulation belong to programs: use them in Host::run() of "
                "weft/simulation.hpp");
  }
  if (!*place) *place = std::shared_ptr<StreamThread>(new StreamThread());
  return *static_cast<StreamThread*>(place->get());
}

void StreamThread::serve_device() {
  // The thread may be asleep since before there was a device for it to drive.
  if (provider::is_manual()) instance().wake_.signal();
}

StreamThread* StreamThread::existing() {
  if (SimulatedKernel* const kernel = SimulatedKernel::current()) {
    const auto* const place = kernel->kept(SimulatedKernel::Keeper::stream);
    return place ? static_cast<StreamThread*>(place->get()) : nullptr;
  }
  StreamThread* const thread = the_thread;
  return thread && thread->owner_ == fork_mark() ? thread : nullptr;
}

StreamThread::StreamThread() : owner_(fork_mark()) {
  if (!epoll_.valid() || !wake_.valid() || !stop_.valid()) {
    throw Error(errno, "cannot create the descriptors of the stream thread");
  }
  watch(no_token, wake_.get());
  if (SimulatedKernel* const kernel = SimulatedKernel::current()) {
    kernel->start_thread([this] { run(); });
    return;
  }
  Thread([this] { run(); }).detach();
}

StreamThread::Token StreamThread::add(std::weak_ptr<IoHandler> handler) {
  const std::lock_guard lock(mutex_);
  handlers_.emplace(++last_, std::move(handler));
  return last_;
}

void StreamThread::watch(Token token, int fd) {
  const int failed = epoll_.add(fd, EPOLLIN, token);
  if (failed < 0) throw Error(-failed, "cannot watch a descriptor of a stream");
}

void StreamThread::unwatch(int fd) {
  epoll_.remove(fd);
}

void StreamThread::wake_at(Token token, Clock::time_point when) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    // Two steps: the order of both sides of a comparison is not specified.
    const auto added = times_.emplace(when, token);
    first = added == times_.begin();
  }
  // The thread computes its timeout anew.
  if (first) wake_.signal();  // otherwise the thread wakes up early enough
}

void StreamThread::remove(Token token, std::span<const int> fds) {
  for (const int fd : fds) epoll_.remove(fd);
  const std::lock_guard lock(mutex_);
  handlers_.erase(token);
  std::erase_if(times_, [token](const auto& entry) { return entry.second == token; });
}

std::optional<StreamThread::Clock::time_point> StreamThread::next_time() {
  const std::lock_guard lock(mutex_);
  if (times_.empty()) return std::nullopt;
  return times_.begin()->first;
}

// The handler is called without the lock: it may add and remove, and is kept alive meanwhile.
void StreamThread::call_handler(Token token) {
  std::shared_ptr<IoHandler> handler;
  {
    const std::lock_guard lock(mutex_);
    const auto found = handlers_.find(token);
    if (found != handlers_.end()) handler = found->second.lock();
  }
  if (handler) handler->on_io();
}

void StreamThread::call_due_handlers() {
  std::vector<Token> due;
  {
    const std::lock_guard lock(mutex_);
    const auto end = times_.upper_bound(steady_now());
    for (auto at = times_.begin(); at != end; ++at) due.push_back(at->second);
    times_.erase(times_.begin(), end);
  }
  for (const Token token : due) call_handler(token);
}

// The thread's main function. It blocks until the next time is due, and hands the work over as soon
// as an application thread leads.
void StreamThread::run() {
  while (true) {
    call_due_handlers();
    const auto next = next_time();
    call_ready_handlers((next ? Deadline(*next) : Deadline::never()).poll_timeout_ms(), true);
    if (wait_leader_.has_leader()) wait_leader_.stand_aside();
  }
}

// Waits at most `timeout_ms`, and calls the handlers of all descriptors that are readable.
// `is_thread`: the caller is the stream thread itself; it leaves the events to an application
// thread that has begun to lead meanwhile.
//
// The wake-up descriptor is readable when an earlier time was added. The stream thread may be
// asleep with the old timeout, so another thread must not consume the wake-up unless the stream
// thread stands aside and will compute its timeout anew.
void StreamThread::call_ready_handlers(int timeout_ms, bool is_thread) {
  std::array<epoll_event, 32> events;
  if (SimulatedKernel::current()) {
    timeout_ms = await_events(timeout_ms);
  } else if (is_thread && provider::is_manual()) {
    // The device has no thread, so this one moves its data; then fd() becomes readable.
    pollfd any{epoll_.get(), POLLIN, 0};
    (void)provider::wait({&any, 1}, timeout_ms);
    timeout_ms = 0;
  }
  const auto ready = epoll_.wait(events, timeout_ms);
  // epoll is level-triggered: the leader finds the same events.
  if (is_thread && wait_leader_.has_leader()) return;
  for (const epoll_event& event : ready) {
    if (event.data.u64 != no_token) {
      call_handler(event.data.u64);
    } else if (is_thread || wait_leader_.is_thread_aside()) {
      wake_.drain();
    } else {
      sched_yield();
    }
  }
}

// In a simulation only its own calls wait. Returns how long to wait after that.
int StreamThread::await_events(int timeout_ms) const {
  pollfd entry{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
  if (timeout_ms != 0) (void)provider::wait({&entry, 1}, timeout_ms);
  return 0;
}

// --- Waiting in a thread of the application ------------------------------------------------------

// The thread that leads does the work of the stream thread until its own descriptors are ready: one
// thread wakes up for an event, not two.
int StreamThread::lead(std::span<pollfd> entries, const timespec* timeout, const sigset_t* mask) {
  std::optional<Time> until;
  if (timeout) {
    const auto length =
        std::chrono::seconds(timeout->tv_sec) + std::chrono::nanoseconds(timeout->tv_nsec);
    until = time_of(steady_now() + length);
  }
  const int ready = run_wait_loop(*this, entries, until, mask);
  if (ready >= 0) return ready;
  errno = -ready;
  return -1;
}

// As run_wait_loop(), but one turn of it: a handler that is called here may have set the flag.
void StreamThread::lead_until(const std::atomic<bool>& stop,
                              std::optional<std::chrono::milliseconds> timeout) {
  std::optional<Time> until = run_timers();
  if (stop) return;
  if (timeout) {
    const Time end = time_of(steady_now() + *timeout);
    until = std::min(until.value_or(end), end);
  }
  std::array<pollfd, 2> entries{{{stop_.get(), POLLIN, 0}, {epoll_.get(), POLLIN, 0}}};
  if (sleep(entries, until, nullptr) <= 0) return;
  // What an earlier leader has left there ends this wait without a reason.
  if (entries[0].revents != 0) stop_.drain();
  if (entries[1].revents != 0) dispatch_ready();
}

void StreamThread::stop_leader() {
  if (!calls_as_leader) stop_.signal();
}

void StreamThread::dispatch_ready() {
  const CallsAsLeader calls;
  call_ready_handlers(0, false);
}

std::optional<WaitLoop::Time> StreamThread::run_timers() {
  const CallsAsLeader calls;
  call_due_handlers();
  const auto next = next_time();
  return next ? std::optional(time_of(*next)) : std::nullopt;
}

int StreamThread::sleep(std::span<pollfd> entries, std::optional<Time> until,
                        const sigset_t* mask) {
  timespec left{};
  if (until) {
    const Time now = time_of(steady_now());
    left = timespec_of(std::chrono::nanoseconds(*until > now ? *until - now : 0));
  }
  const int ready = provider::shared_embedded().wait(entries.data(), entries.size(),
                                                     until ? &left : nullptr, mask);
  return ready < 0 ? -errno : ready;
}

// --- Registration --------------------------------------------------------------------------------

void ThreadRegistration::enter(std::weak_ptr<IoHandler> handler) {
  StreamThread& thread = StreamThread::instance();
  token_ = thread.add(std::move(handler));
  thread_ = &thread;
}

void ThreadRegistration::watch(int fd) {
  thread_->watch(token_, fd);
  fds_.at(fd_count_++) = fd;
}

void ThreadRegistration::unwatch(int fd) {
  if (thread_ == StreamThread::existing()) thread_->unwatch(fd);
  const auto watched = std::span(fds_).first(fd_count_);
  fd_count_ =
      static_cast<std::size_t>(std::remove(watched.begin(), watched.end(), fd) - watched.begin());
}

void ThreadRegistration::leave() {
  if (!thread_) return;
  // In a child of fork(2) the epoll instance is the one that the parent still uses: to remove the
  // descriptors there would stop the parent's streams.
  if (thread_ == StreamThread::existing())
    thread_->remove(token_, std::span(fds_).first(fd_count_));
  thread_ = nullptr;
  fd_count_ = 0;
}

int wait(std::span<pollfd> entries, int timeout_ms) {
  // In a simulation the stream thread goes on meanwhile.
  if (SimulatedKernel::current()) return provider::wait(entries, timeout_ms);
  StreamThread* const thread = timeout_ms != 0 ? StreamThread::existing() : nullptr;
  if (!thread) return provider::wait(entries, timeout_ms);
  const WaitLeader::Waiter waiter(thread->wait_leader());
  if (!waiter.leads()) return provider::wait(entries, timeout_ms);
  const timespec timeout = timespec_of(std::chrono::milliseconds(timeout_ms));
  return thread->lead(entries, timeout_ms < 0 ? nullptr : &timeout, nullptr);
}

}  // namespace weft::stream::detail
