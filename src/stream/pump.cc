#include "stream/pump.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

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

}  // namespace

Pump& Pump::instance() {
  static std::mutex making;
  static Pump* pump = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(making);
  if (!pump || owner != getpid()) {
    pump = new Pump();  // the one of the parent has no thread here
    owner = getpid();
  }
  return *pump;
}

Pump::Pump() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
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

int Pump::timeout_ms() {
  const std::lock_guard lock(mutex_);
  if (times_.empty()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(times_.begin()->first - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1'000'000'000));
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
  std::array<epoll_event, 32> events;
  while (true) {
    const int count = epoll_wait(epoll_, events.data(), events.size(), timeout_ms());
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 != no_token) {
        attend(events[i].data.u64);
        continue;
      }
      std::uint64_t ignored;
      [[maybe_unused]] const auto taken = read(wake_, &ignored, sizeof ignored);
    }
    attend_late();
  }
}

}  // namespace weft::stream::detail
