// rsocket(7): polls rsockets and ordinary descriptors together.
#include <poll.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <sys/select.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/event_fd.h"
#include "dropin/export.h"
#include "dropin/rsocket.h"
#include "stream/stream_thread.h"

namespace {

using namespace weft::dropin;
using weft::Deadline;
namespace stream = weft::stream;

// The same time that streams spin by default: stream::Options::spin.
constexpr std::chrono::microseconds spin{50};

// How long a call waits at most where it cannot be woken, because no descriptor is left for that.
constexpr int unwoken_ms = 10;

// Wakes a thread that waits when one of several rsockets changes. poll(2) needs no descriptor for
// itself, so rpoll() must not fail without one: then this wakes no thread, and rpoll() looks again
// after `unwoken_ms`.
class Waker final : public stream::Stream::Watcher {
 public:
  explicit Waker(const std::vector<std::shared_ptr<Rsocket>>& sockets) {
    for (const auto& socket : sockets) {
      if (!socket) continue;
      watched_.push_back({socket});
      socket->watch(this);
    }
  }
  // No call of changed() is in progress once unwatch() has returned, so that the event descriptor,
  // a member, can be closed after this.
  ~Waker() override {
    for (const Watched& each : watched_) {
      each.socket->unwatch(this);
      if (each.stream) each.stream->unwatch(this);
      if (each.datagrams) each.datagrams->unwatch(this);
    }
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Watches the objects that the sockets have now: they may be bound or connected meanwhile.
  void refresh() {
    for (Watched& each : watched_) {
      watch_instead(each.stream, each.socket->get_stream());
      watch_instead(each.datagrams, each.socket->get_datagrams());
    }
  }
  void changed(const stream::Stream::Readiness& /*now*/) noexcept override {
    if (wake_.valid()) wake_.signal();
  }
  void reset() noexcept {
    if (wake_.valid()) wake_.drain();
  }
  [[nodiscard]] int fd() const { return wake_.valid() ? wake_.get() : -1; }

 private:
  struct Watched {
    std::shared_ptr<Rsocket> socket;
    std::shared_ptr<stream::Stream> stream{};
    std::shared_ptr<DatagramSocket> datagrams{};
  };

  template <typename Object>
  void watch_instead(std::shared_ptr<Object>& old, std::shared_ptr<Object> present) {
    if (present == old) return;
    if (old) old->unwatch(this);
    old = std::move(present);
    if (old) (void)old->watch(this);
  }

  weft::EventFd wake_;
  std::vector<Watched> watched_;
};

short events_of(DatagramSocket& socket) {
  const auto ready = socket.readiness();
  const int events = (ready.readable ? POLLIN | POLLRDNORM : 0) |
                     (ready.writable ? POLLOUT | POLLWRNORM : 0) | (ready.over ? POLLHUP : 0);
  return static_cast<short>(events);
}

short events_of(const Rsocket& socket, stream::Stream& stream) {
  const auto ready = stream.readiness();
  if (!ready.settled) return 0;
  const bool read_ended = ready.ended || ready.over || socket.read_shut;
  int events = 0;
  if (ready.readable) events |= POLLIN | POLLRDNORM;
  if (ready.writable) events |= POLLOUT | POLLWRNORM;
  if (read_ended) events |= POLLRDHUP;
  // Programs stop reading at POLLHUP, so do not set it before the last bytes were read.
  const bool over = ready.over || (read_ended && socket.write_shut);
  if (over && stream.bytes_available() == 0) events |= POLLHUP;
  if (stream.state() == stream::State::failed) events |= POLLERR;
  return static_cast<short>(events);
}

// One call of rpoll().
class Polling {
 public:
  Polling(pollfd* entries, nfds_t count) : entries_(entries), count_(count) {
    for (nfds_t i = 0; i < count; ++i) {
      // The pointers keep the objects for the whole call, also if another thread closes one.
      sockets_.push_back(entries[i].fd < 0 ? nullptr : find_rsocket(entries[i].fd));
      any_ = any_ || sockets_.back();
    }
  }
  [[nodiscard]] bool has_rsockets() const { return any_; }

  // The number of entries with events. Throws Error.
  int run(const Deadline& deadline) {
    int ready = check(0);
    if (ready != 0 || deadline.passed()) return ready;
    // Poll before blocking: most replies arrive sooner than a blocked thread wakes up.
    const auto until = std::chrono::steady_clock::now() + spin;
    while (std::chrono::steady_clock::now() < until) {
      sched_yield();
      if ((ready = check(0)) != 0 || deadline.passed()) return ready;
    }
    Waker waker(sockets_);
    wake_fd_ = waker.fd();
    // What changed before its watch existed wakes nothing, so everything is checked again.
    waker.refresh();
    ready = check(0);
    while (ready == 0 && !deadline.passed()) {
      ready = check(deadline.poll_timeout_ms());
      // This precedes the check: a change that follows makes the descriptor readable again.
      waker.reset();
      if (ready != 0) break;
      waker.refresh();
      ready = check(0);
    }
    return ready;
  }

 private:
  // Checks the rsockets, then waits for the ordinary descriptors, the listeners and the waker,
  // unless an rsocket has an event already.
  int check(int timeout_ms) {
    native_.clear();
    owners_.clear();
    int found = 0;
    for (nfds_t i = 0; i < count_; ++i) {
      entries_[i].revents = 0;
      if (sockets_[i]) {
        check_one(i, *sockets_[i]);
      } else if (entries_[i].fd >= 0) {
        add_native(i, entries_[i].fd, entries_[i].events);
      }
      found += entries_[i].revents != 0;
    }
    if (wake_fd_ >= 0) native_.push_back({wake_fd_, POLLIN, 0});
    await(found > 0 ? 0 : timeout_ms);
    return found + collect();
  }

  void add_native(nfds_t owner, int fd, short events) {
    native_.push_back({fd, events, 0});
    owners_.push_back(owner);
  }

  // An error is thrown, so that nothing that is destroyed on the way changes errno.
  void await(int timeout_ms) {
    if (wake_fd_ < 0 && (timeout_ms < 0 || timeout_ms > unwoken_ms)) timeout_ms = unwoken_ms;
    if (stream::detail::wait(native_, timeout_ms) >= 0) return;
    // The descriptors that are added to those of the program may be more than poll(2) takes.
    const bool is_shortened = timeout_ms < 0 || timeout_ms > unwoken_ms;
    if (errno == EINVAL &&
        poll(native_.data(), owners_.size(), is_shortened ? unwoken_ms : timeout_ms) >= 0) {
      return;
    }
    throw weft::Error(errno, "cannot wait for descriptors");
  }

  // Takes the events of what was waited for, and returns how many entries have some by that.
  int collect() {
    int found = 0;
    for (std::size_t k = 0; k < owners_.size(); ++k) {
      pollfd& entry = entries_[owners_[k]];
      if (native_[k].revents == 0 || entry.revents != 0) continue;
      const auto& socket = sockets_[owners_[k]];
      entry.revents = socket ? events_of_listener(*socket, entry.events) : native_[k].revents;
      found += entry.revents != 0;
    }
    return found;
  }

  static short events_of_listener(const Rsocket& socket, short wanted) {
    const auto listener = socket.get_listener();
    if (!listener || !listener->has_client()) return 0;
    return static_cast<short>(wanted & (POLLIN | POLLRDNORM));
  }

  // Sets the events of an rsocket. For a listener, adds the descriptors to wait for.
  void check_one(nfds_t i, const Rsocket& socket) {
    const short wanted = static_cast<short>(entries_[i].events | POLLHUP | POLLERR);
    const auto set = [&](int events) { entries_[i].revents = static_cast<short>(events & wanted); };
    if (const auto datagrams = socket.get_datagrams()) {
      set(events_of(*datagrams));
    } else if (socket.type == SOCK_DGRAM) {
      set(POLLOUT);  // it is not bound yet: it can send, and is bound by that
    } else if (const auto stream = socket.get_stream()) {
      set(events_of(socket, *stream));
    } else if (const auto listener = socket.get_listener(); listener && listener->is_listening()) {
      if (listener->has_ended()) return set(POLLHUP | POLLERR);
      if ((wanted & (POLLIN | POLLRDNORM)) == 0) return;
      add_native(i, listener->requests_fd(), POLLIN);
      add_native(i, listener->waiting_fd(), POLLIN);
    } else {
      // Linux returns this for a TCP socket that is neither connected nor listening.
      set(POLLOUT | POLLHUP);
    }
  }

  pollfd* entries_;
  nfds_t count_;
  std::vector<std::shared_ptr<Rsocket>> sockets_;
  std::vector<pollfd> native_;  // the last one may be the waker
  std::vector<nfds_t> owners_;  // of the others: the indexes of their entries
  int wake_fd_ = -1;
  bool any_ = false;
};

// Throws Error.
int poll_until(pollfd* entries, nfds_t count, const Deadline& deadline) {
  Polling polling(entries, count);
  if (polling.has_rsockets()) return polling.run(deadline);
  while (true) {
    const int ready = poll(entries, count, deadline.poll_timeout_ms());
    if (ready != 0 || deadline.passed()) return ready;
  }
}

Deadline deadline_of(int timeout_ms) {
  return timeout_ms < 0 ? Deadline::never() : Deadline(std::chrono::milliseconds(timeout_ms));
}

bool is_in(int fd, const fd_set* set) {
  return set && FD_ISSET(fd, set);
}

std::vector<pollfd> entries_of(int count, const fd_set* readable, const fd_set* writable,
                               const fd_set* exceptional) {
  std::vector<pollfd> entries;
  for (int fd = 0; fd < count; ++fd) {
    const int events = (is_in(fd, readable) ? POLLIN : 0) | (is_in(fd, writable) ? POLLOUT : 0) |
                       (is_in(fd, exceptional) ? POLLPRI : 0);
    if (events) entries.push_back({fd, static_cast<short>(events), 0});
  }
  return entries;
}

// What an entry must have to be in a set of which the bit was asked for: as select(2) lists it.
constexpr int readable_events = POLLIN | POLLHUP | POLLERR;
constexpr int writable_events = POLLOUT | POLLERR;

bool is_answered(const pollfd& entry) {
  const int answers = ((entry.events & POLLIN) ? readable_events : 0) |
                      ((entry.events & POLLOUT) ? writable_events : 0) |
                      ((entry.events & POLLPRI) ? POLLPRI : 0);
  return (entry.revents & answers) != 0;
}

// Waits until an entry has an event that was asked for. What has only others, such as POLLHUP, is
// left out from then on: its number is negative then. Throws Error.
int await_answer(std::vector<pollfd>& entries, const Deadline& deadline) {
  while (true) {
    const int ready = poll_until(entries.data(), entries.size(), deadline);
    if (ready <= 0) return ready;
    bool any = false;
    for (pollfd& entry : entries) {
      // A closed descriptor is an error of select(2), and only an event of poll(2).
      if (entry.revents & POLLNVAL) return fail_with(EBADF);
      any = any || is_answered(entry);
      if (entry.revents && !is_answered(entry)) entry.fd = ~entry.fd;
    }
    if (any || deadline.passed()) return ready;
  }
}

int keep(const std::vector<pollfd>& entries, fd_set* set, int asked, int answers) {
  if (!set) return 0;
  int kept = 0;
  for (const pollfd& entry : entries) {
    if (!(entry.events & asked)) continue;
    if (entry.revents & answers) {
      ++kept;
    } else {
      FD_CLR(entry.fd < 0 ? ~entry.fd : entry.fd, set);
    }
  }
  return kept;
}

// Times that no clock reaches are without limit. Null where select(2) returns EINVAL.
std::optional<Deadline> deadline_of(const timeval& timeout) {
  constexpr long longest_s = 1'000'000'000;
  if (timeout.tv_sec < 0 || timeout.tv_usec < 0) return std::nullopt;
  if (timeout.tv_sec > longest_s) return Deadline::never();
  return Deadline(std::chrono::seconds(timeout.tv_sec) +
                  std::chrono::microseconds(timeout.tv_usec));
}

}  // namespace

WEFT_EXPORT int rpoll(pollfd* entries, nfds_t count, int timeout_ms) {
  return guarded([&] { return poll_until(entries, count, deadline_of(timeout_ms)); });
}

// The time that is left is not written back, which POSIX permits.
WEFT_EXPORT int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                        timeval* timeout) {
  return guarded([&] {
    // Beyond FD_SETSIZE the sets have no bits that could be read.
    if (count < 0 || count > FD_SETSIZE) return fail_with(EINVAL);
    const auto deadline = timeout ? deadline_of(*timeout) : Deadline::never();
    if (!deadline) return fail_with(EINVAL);
    auto entries = entries_of(count, readable, writable, exceptional);
    if (await_answer(entries, *deadline) < 0) return -1;
    return keep(entries, readable, POLLIN, readable_events) +
           keep(entries, writable, POLLOUT, writable_events) +
           keep(entries, exceptional, POLLPRI, POLLPRI);
  });
}
