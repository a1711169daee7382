// Waiting is the kernel's own: descriptors are shown as their streams are (see Shadow). But a
// thread that sleeps here can see to what comes in itself, and is woken by it without a hand-over.
//
// Only where it is the one that does: several would be in each other's way. Such a thread cannot be
// cancelled (pthread_cancel(3)) while it sleeps.
#include <poll.h>
#include <sys/epoll.h>

#include <chrono>
#include <optional>

#include "base/duration.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/next.h"
#include "interpose/table.h"
#include "stream/pump.h"

using namespace weft::interpose;

namespace {

using Clock = std::chrono::steady_clock;
using Pump = weft::stream::detail::Pump;

// Until when a call may sleep; no time is for ever.
class Until {
 public:
  explicit Until(int timeout_ms) {
    if (timeout_ms >= 0) at_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
  }
  explicit Until(const timespec* timeout) {
    // What no clock can say is for ever, too.
    constexpr time_t longest_s = 1'000'000'000;
    if (!timeout || timeout->tv_sec > longest_s) return;
    at_ = Clock::now() + std::chrono::seconds(timeout->tv_sec) +
          std::chrono::nanoseconds(timeout->tv_nsec);
  }

  [[nodiscard]] bool passed() const { return at_ && Clock::now() >= *at_; }
  // Null for ever; valid until the next call.
  const timespec* left() {
    if (!at_) return nullptr;
    left_ = weft::timespec_of(*at_ - Clock::now());
    return &left_;
  }

 private:
  std::optional<Clock::time_point> at_;
  timespec left_{};
};

// `kernel` waits as the C library has it: where nobody leads, or another thread does.
template <typename Lead, typename Kernel>
int wait_by(Pump& attending, const Lead& lead, const Kernel& kernel) {
  const weft::WaitLeader::Waiter waiter(attending.wait_leader());
  return waiter.leads() ? guarded(lead) : kernel();
}

Pump* pump() {
  return table_is_ours() ? Pump::existing() : nullptr;
}

// All calls of epoll. Who finds something at once does not wait, and must not count as somebody who
// does: the pump's thread would leave everything to a thread that never looks.
template <typename Kernel>
int wait_epoll(int epoll, epoll_event* events, int most, Until until, const sigset_t* mask,
               const Kernel& kernel) {
  Pump* const attending = until.passed() ? nullptr : pump();
  if (!attending) return kernel();
  if (const int found = next::epoll_wait(epoll, events, most, 0)) return found;
  const auto lead = [&] {
    while (true) {
      pollfd entry{epoll, POLLIN, 0};
      if (attending->lead({&entry, 1}, until.left(), mask) < 0) return -1;
      // Another thread may have taken them before us.
      const int found = next::epoll_wait(epoll, events, most, 0);
      if (found != 0 || until.passed()) return found;
    }
  };
  return wait_by(*attending, lead, kernel);
}

template <typename Kernel>
int wait_poll(pollfd* entries, nfds_t count, Until until, const sigset_t* mask,
              const Kernel& kernel) {
  Pump* const attending = until.passed() ? nullptr : pump();
  if (!attending) return kernel();
  const auto lead = [&] { return attending->lead({entries, count}, until.left(), mask); };
  return wait_by(*attending, lead, kernel);
}

}  // namespace

WEFT_INTERPOSED int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  return wait_epoll(epoll, events, most, Until(timeout_ms), nullptr,
                    [&] { return next::epoll_wait(epoll, events, most, timeout_ms); });
}

WEFT_INTERPOSED int epoll_pwait(int epoll, epoll_event* events, int most, int timeout_ms,
                                const sigset_t* mask) {
  return wait_epoll(epoll, events, most, Until(timeout_ms), mask,
                    [&] { return next::epoll_pwait(epoll, events, most, timeout_ms, mask); });
}

WEFT_INTERPOSED int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout,
                                 const sigset_t* mask) {
  return wait_epoll(epoll, events, most, Until(timeout), mask,
                    [&] { return next::epoll_pwait2(epoll, events, most, timeout, mask); });
}

WEFT_INTERPOSED int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  return wait_poll(entries, count, Until(timeout_ms), nullptr,
                   [&] { return next::poll(entries, count, timeout_ms); });
}

WEFT_INTERPOSED int ppoll(pollfd* entries, nfds_t count, const timespec* timeout,
                          const sigset_t* mask) {
  return wait_poll(entries, count, Until(timeout), mask,
                   [&] { return next::ppoll(entries, count, timeout, mask); });
}
