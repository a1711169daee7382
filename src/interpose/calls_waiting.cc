// Replacements of poll(2), select(2) and epoll_wait(2). The kernel's own would do, because visible
// sockets are as ready as their streams (see VisibleSocket), but for those that a StreamSet lists.
// But a thread that blocks here can handle arriving data itself, so that it is woken without a
// hand-over from the stream thread.
//
// Only a single waiting thread does so (see WaitLeader). It cannot be cancelled (pthread_cancel(3))
// while it blocks.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "base/duration.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/kernel_connection.h"
#include "interpose/late_bells.h"
#include "interpose/next.h"
#include "interpose/program_signals.h"
#include "interpose/stream_set.h"
#include "interpose/table.h"
#include "stream/stream_thread.h"

using namespace weft::interpose;

namespace {

using Clock = std::chrono::steady_clock;
using StreamThread = weft::stream::detail::StreamThread;

// When the timeout of a call expires; no time means never.
class WaitLimit {
 public:
  explicit WaitLimit(int timeout_ms) {
    if (timeout_ms >= 0) at_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
  }
  explicit WaitLimit(const timespec* timeout) {
    // A longer timeout would overflow the clock; treat it as infinite.
    constexpr time_t longest_s = 1'000'000'000;
    if (!timeout || timeout->tv_sec > longest_s) return;
    at_ = Clock::now() + std::chrono::seconds(timeout->tv_sec) +
          std::chrono::nanoseconds(timeout->tv_nsec);
  }

  [[nodiscard]] bool passed() const { return at_ && Clock::now() >= *at_; }
  // The remaining time; null means without limit. Valid until the next call.
  const timespec* left() {
    if (!at_) return nullptr;
    left_ = weft::timespec_of(*at_ - Clock::now());
    return &left_;
  }

 private:
  std::optional<Clock::time_point> at_;
  timespec left_{};
};

// Waits by `kernel` as the C library does.
template <typename Kernel>
int wait_in_kernel(const sigset_t* mask, const Kernel& kernel) {
  const Waiting wait(mask);
  return wait.ends_polling() ? fail_with(EINTR) : kernel();
}

// Lets handlers run for which signals have come since the call began. Returns whether that ends it.
bool ends_before_wait(const sigset_t* mask) {
  if (!InCall::holds_signals()) return false;
  const Waiting wait(mask);
  return wait.ends_polling();
}

// Calls `lead` if this thread leads, else `kernel`. A thread that leads holds signals back. One
// that comes while it sleeps ends its sleep, and so the call.
template <typename Lead, typename Kernel>
int wait_by(StreamThread& attending, const sigset_t* mask, const Lead& lead, const Kernel& kernel) {
  const InCall work;
  if (ends_before_wait(mask)) return fail_with(EINTR);
  const weft::WaitLeader::Waiter waiter(attending.wait_leader());
  if (!waiter.leads()) return wait_in_kernel(mask, kernel);
  const sigset_t own = mask ? *mask : program_mask();
  const int found = guarded([&] { return lead(&own); });
  const int error = errno;
  if (mask && InCall::holds_signals()) const Waiting handlers_run(mask);
  errno = error;
  return found;
}

// Null if this process has no streams, and in a child of vfork(2).
StreamThread* stream_thread() {
  if (!Socket::some_have_streams()) return nullptr;
  StreamThread* const existing = StreamThread::existing();
  return existing && owns_table() ? existing : nullptr;
}

// For a set with streams that are looked at. Returns as epoll_wait(2). What may end by cancelling
// the thread is not guarded: that is an exception which must go on.
int wait_set(StreamSet& set, epoll_event* events, int most, WaitLimit& until,
             const sigset_t* mask) {
  const InCall work;
  const auto look = [&](bool asks) {
    return guarded([&] {
      const int found = asks ? set.ask_kernel(events, most, mask) : 0;
      return found < 0 ? found : set.look(events, found, most);
    });
  };
  // A program that does not wait gets all that is ready.
  const bool polls = until.passed();
  const bool asks = set.asks_kernel() || polls;
  if (const int found = look(asks); found != 0 || polls) return found;
  if (const int found = guarded([&] { return set.spin(events, most); })) return found;
  StreamThread* const attending = stream_thread();
  drop_late_bells();
  while (true) {
    pollfd entry{set.epoll(), POLLIN, 0};
    const auto lead = [&](const sigset_t* used) {
      return attending->lead({&entry, 1}, until.left(), used);
    };
    const auto poll = [&] { return next::ppoll(&entry, 1, until.left(), mask); };
    const auto wait = [&] {
      return attending ? wait_by(*attending, mask, lead, poll) : wait_in_kernel(mask, poll);
    };
    {
      const StreamSet::Sleep sleep(set);
      if (sleep.may_sleep() && wait() < 0) return -1;
    }
    drop_late_bells();
    // Another thread may have taken the events first, or it was a late bell: then wait again.
    const int found = look(true);
    if (found != 0 || until.passed()) return found;
  }
}

// For all epoll_wait(2) variants. Events that are ready are returned before the thread counts as a
// waiter: otherwise the stream thread would leave all work to a thread that never blocks here.
template <typename Kernel>
int wait_epoll(int epoll, epoll_event* events, int most, WaitLimit until, const sigset_t* mask,
               const Kernel& kernel) {
  if (StreamSet* const set = StreamSet::of(epoll); set && events && most > 0) {
    return wait_set(*set, events, most, until, mask);
  }
  StreamThread* const attending = until.passed() ? nullptr : stream_thread();
  if (!attending) return kernel();
  drop_late_bells();
  if (const int found = next::epoll_wait(epoll, events, most, 0)) return found;
  const auto lead = [&](const sigset_t* used) {
    while (true) {
      pollfd entry{epoll, POLLIN, 0};
      if (attending->lead({&entry, 1}, until.left(), used) < 0) return -1;
      drop_late_bells();
      // Another thread may have taken the events first, or it was a late bell: then wait again.
      const int found = next::epoll_wait(epoll, events, most, 0);
      if (found != 0 || until.passed()) return found;
    }
  };
  return wait_by(*attending, mask, lead, kernel);
}

// A descriptor that is waited for by another call than epoll_wait(2), for bytes or not.
void show_to_kernel(int fd, bool to_read) {
  const InCall work;
  if (to_read) let_key_go(fd);
  if (is_in_epoll_set(fd)) {
    if (const auto socket = find_stream(fd)) socket->leave_set();
  } else if (StreamSet* const set = StreamSet::of(fd)) {
    set->leave_all(false);
  }
}

void show_to_kernel(int count, const fd_set* to_read, const fd_set* to_write,
                    const fd_set* exceptional) {
  for (const fd_set* fds : {to_read, to_write, exceptional}) {
    for (int fd = 0; fds && fd < count; ++fd) {
      if (FD_ISSET(fd, fds)) show_to_kernel(fd, fds == to_read);
    }
  }
}

template <typename Kernel>
int wait_poll(pollfd* entries, nfds_t count, WaitLimit until, const sigset_t* mask,
              const Kernel& kernel) {
  for (nfds_t i = 0; entries && i < count; ++i) {
    const auto [fd, events, shown] = entries[i];
    show_to_kernel(fd, (events & (POLLIN | POLLRDNORM)) != 0);
    if ((events & POLLRDHUP) == 0) continue;
    const InCall work;
    if (const auto socket = find_stream(fd)) socket->want_end();
  }
  StreamThread* const attending = until.passed() ? nullptr : stream_thread();
  if (!attending) return kernel();
  const auto lead = [&](const sigset_t* used) {
    while (true) {
      drop_late_bells();
      const bool some_late = has_late_bells();
      const int found = attending->lead({entries, count}, until.left(), used);
      if (found <= 0 || !some_late) return found;
      drop_late_bells();
      const int left = next::poll(entries, count, 0);  // as poll(2) is level-triggered
      if (left != 0 || until.passed()) return left;
    }
  };
  return wait_by(*attending, mask, lead, kernel);
}

}  // namespace

WEFT_INTERPOSED int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  return wait_epoll(epoll, events, most, WaitLimit(timeout_ms), nullptr,
                    [&] { return next::epoll_wait(epoll, events, most, timeout_ms); });
}

WEFT_INTERPOSED int epoll_pwait(int epoll, epoll_event* events, int most, int timeout_ms,
                                const sigset_t* mask) {
  return wait_epoll(epoll, events, most, WaitLimit(timeout_ms), mask,
                    [&] { return next::epoll_pwait(epoll, events, most, timeout_ms, mask); });
}

WEFT_INTERPOSED int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout,
                                 const sigset_t* mask) {
  return wait_epoll(epoll, events, most, WaitLimit(timeout), mask,
                    [&] { return next::epoll_pwait2(epoll, events, most, timeout, mask); });
}

WEFT_INTERPOSED int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  return wait_poll(entries, count, WaitLimit(timeout_ms), nullptr,
                   [&] { return next::poll(entries, count, timeout_ms); });
}

WEFT_INTERPOSED int ppoll(pollfd* entries, nfds_t count, const timespec* timeout,
                          const sigset_t* mask) {
  return wait_poll(entries, count, WaitLimit(timeout), mask,
                   [&] { return next::ppoll(entries, count, timeout, mask); });
}

WEFT_INTERPOSED int select(int count, fd_set* to_read, fd_set* to_write, fd_set* exceptional,
                           timeval* timeout) {
  show_to_kernel(count, to_read, to_write, exceptional);
  return next::select(count, to_read, to_write, exceptional, timeout);
}

WEFT_INTERPOSED int pselect(int count, fd_set* to_read, fd_set* to_write, fd_set* exceptional,
                            const timespec* timeout, const sigset_t* mask) {
  show_to_kernel(count, to_read, to_write, exceptional);
  return next::pselect(count, to_read, to_write, exceptional, timeout, mask);
}

// --- Names that programs built with _FORTIFY_SOURCE call, see calls_data.cc ----------------------

WEFT_INTERPOSED int __poll_chk(pollfd* entries, nfds_t count, int timeout_ms, size_t room) {
  if (room / sizeof *entries < count) std::abort();
  return poll(entries, count, timeout_ms);
}
WEFT_INTERPOSED int __ppoll_chk(pollfd* entries, nfds_t count, const timespec* timeout,
                                const sigset_t* mask, size_t room) {
  if (room / sizeof *entries < count) std::abort();
  return ppoll(entries, count, timeout, mask);
}
