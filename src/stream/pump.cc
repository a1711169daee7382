#include "stream/pump.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "base/duration.h"
#include "provider/shared.h"
#include "weft/deadline.hpp"
#include "weft/error.hpp"

namespace weft::stream::detail {
namespace {

constexpr Pump::Token no_token = 0;  // of the descriptor that wakes

// The program's handlers run in the program's threads.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

// The kernel's own: who stands before the C library's makes of it what is below.
int wait_for_events(int epoll, std::span<epoll_event> events, int timeout_ms) {
  return static_cast<int>(syscall(SYS_epoll_pwait, epoll, events.data(),
                                  static_cast<int>(events.size()), timeout_ms, nullptr, 0));
}

WaitLoop::Time time_of(Pump::Clock::time_point at) {
  return static_cast<WaitLoop::Time>(std::chrono::nanoseconds(at.time_since_epoch()).count());
}

constinit std::mutex making;
constinit std::atomic<Pump*> the_pump{nullptr};

}  // namespace

Pump& Pump::instance() {
  if (Pump* const pump = existing()) return *pump;
  const std::lock_guard lock(making);
  Pump* pump = existing();
  if (!pump) {
    pump = new Pump();  // the one of the parent has no thread here
    the_pump = pump;
  }
  return *pump;
}

Pump* Pump::existing() {
  Pump* const pump = the_pump;
  return pump && pump->owner_ == getpid() ? pump : nullptr;
}

Pump::Pump()
    : owner_(getpid()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (epoll_ < 0 || wake_ < 0) throw Error(errno, "cannot make the descriptors of streams");
  watch(no_token, wake_);
  const NoSignals inherited;
  std::thread([this] { run(); }).detach();
}

Pump::Token Pump::add(std::weak_ptr<Attendant> attendant) {
  const std::lock_guard lock(mutex_);
  attendants_.emplace(++last_, std::move(attendant));
  return last_;
}

void Pump::watch(Token token, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = token;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error(errno, "cannot wait for what happens to a stream");
  }
}

void Pump::wake_at(Token token, Clock::time_point when) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    first = times_.emplace(when, token) == times_.begin();
  }
  if (!first) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
}

void Pump::remove(Token token, std::initializer_list<int> fds) {
  for (const int fd : fds) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  const std::lock_guard lock(mutex_);
  attendants_.erase(token);
  std::erase_if(times_, [token](const auto& entry) { return entry.second == token; });
}

std::optional<Pump::Clock::time_point> Pump::next_time() {
  const std::lock_guard lock(mutex_);
  if (times_.empty()) return std::nullopt;
  return times_.begin()->first;
}

void Pump::attend(Token token) {
  std::shared_ptr<Attendant> attendant;
  {
    const std::lock_guard lock(mutex_);
    const auto found = attendants_.find(token);
    if (found != attendants_.end()) attendant = found->second.lock();
  }
  if (attendant) attendant->attend();
}

void Pump::attend_late() {
  std::vector<Token> late;
  {
    const std::lock_guard lock(mutex_);
    const auto end = times_.upper_bound(Clock::now());
    for (auto at = times_.begin(); at != end; ++at) late.push_back(at->second);
    times_.erase(times_.begin(), end);
  }
  for (const Token token : late) attend(token);
}

void Pump::run() {
  while (true) {
    attend_late();
    const auto next = next_time();
    attend_ready((next ? Deadline(*next) : Deadline::never()).poll_timeout_ms(), true);
    if (wait_leader_.has_leader()) wait_leader_.stand_aside();
  }
}

// The thread's wake-up says that there is an earlier time. It may sleep in ignorance of it until it
// stands aside: only then may others take it.
void Pump::attend_ready(int timeout_ms, bool is_thread) {
  std::array<epoll_event, 32> events;
  const int count = wait_for_events(epoll_, events, timeout_ms);
  if (is_thread && wait_leader_.has_leader()) return;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 != no_token) {
      attend(events[i].data.u64);
    } else if (is_thread || wait_leader_.is_thread_aside()) {
      std::uint64_t ignored;
      [[maybe_unused]] const auto taken = read(wake_, &ignored, sizeof ignored);
    } else {
      sched_yield();
    }
  }
}

// --- A thread of the application that waits ------------------------------------------------------

int Pump::lead(std::span<pollfd> entries, const timespec* timeout, const sigset_t* mask) {
  std::optional<Time> until;
  if (timeout) {
    const auto length =
        std::chrono::seconds(timeout->tv_sec) + std::chrono::nanoseconds(timeout->tv_nsec);
    until = time_of(Clock::now() + length);
  }
  const int ready = run_wait_loop(*this, entries, until, mask);
  if (ready >= 0) return ready;
  errno = -ready;
  return -1;
}

std::optional<WaitLoop::Time> Pump::run_timers() {
  attend_late();
  const auto next = next_time();
  return next ? std::optional(time_of(*next)) : std::nullopt;
}

int Pump::sleep(std::span<pollfd> entries, std::optional<Time> until, const sigset_t* mask) {
  timespec left{};
  if (until) {
    const Time now = time_of(Clock::now());
    left = timespec_of(std::chrono::nanoseconds(*until > now ? *until - now : 0));
  }
  const int ready = provider::shared_embedded().wait(entries.data(), entries.size(),
                                                     until ? &left : nullptr, mask);
  return ready < 0 ? -errno : ready;
}

int wait(std::span<pollfd> entries, int timeout_ms) {
  Pump* const pump = timeout_ms != 0 ? Pump::existing() : nullptr;
  if (!pump) return provider::wait(entries, timeout_ms);
  const WaitLeader::Waiter waiter(pump->wait_leader());
  if (!waiter.leads()) return provider::wait(entries, timeout_ms);
  const timespec timeout = timespec_of(std::chrono::milliseconds(timeout_ms));
  return pump->lead(entries, timeout_ms < 0 ? nullptr : &timeout, nullptr);
}

}  // namespace weft::stream::detail
