// rsocket(7): polls rsockets and ordinary descriptors together.
#include <poll.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
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

// Wakes a thread that waits when one of several streams and datagram sockets changes.
class Waker final : public stream::Stream::Watcher {
 public:
  Waker() {
    if (!wake_.valid()) throw weft::Error(errno, "no descriptor to wait on");
  }
  // No call of changed() is in progress once unwatch() has returned, so that the event descriptor,
  // a member, can be closed after this.
  ~Waker() override {
    for (const auto& stream : streams_) stream->unwatch(this);
    for (const auto& socket : datagrams_) socket->unwatch(this);
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  void add(std::shared_ptr<stream::Stream> stream) {
    streams_.push_back(std::move(stream));
    (void)streams_.back()->watch(this);
  }
  void add(std::shared_ptr<DatagramSocket> socket) {
    datagrams_.push_back(std::move(socket));
    (void)datagrams_.back()->watch(this);
  }
  void changed(const stream::Stream::Readiness& /*now*/) noexcept override { wake_.signal(); }
  void reset() noexcept { wake_.drain(); }
  [[nodiscard]] int fd() const { return wake_.get(); }

 private:
  weft::EventFd wake_;
  std::vector<std::shared_ptr<stream::Stream>> streams_;
  std::vector<std::shared_ptr<DatagramSocket>> datagrams_;
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
  int events = 0;
  if (ready.readable || socket.read_shut) events |= POLLIN | POLLRDNORM;
  if (ready.writable) events |= POLLOUT | POLLWRNORM;
  // Programs stop reading at POLLHUP, so do not set it before the last bytes were read.
  if (ready.over && stream.bytes_available() == 0) events |= POLLHUP;
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
    // There is one entry more, for the waker.
    native_.resize(count + 1);
  }
  [[nodiscard]] bool has_rsockets() const { return any_; }

  // The number of entries with events, or -1.
  int run(const Deadline& deadline) {
    int ready = check(0);
    if (ready != 0 || deadline.passed()) return ready;
    // Poll before blocking: most replies arrive sooner than a blocked thread wakes up.
    const auto until = std::chrono::steady_clock::now() + spin;
    while (std::chrono::steady_clock::now() < until) {
      sched_yield();
      if ((ready = check(0)) != 0 || deadline.passed()) return ready;
    }
    Waker waker;
    // What changed before its watch existed wakes nothing, so everything is checked again below.
    for (const auto& socket : sockets_) {
      if (!socket) continue;
      if (auto stream = socket->get_stream()) waker.add(std::move(stream));
      if (auto datagrams = socket->get_datagrams()) waker.add(std::move(datagrams));
    }
    wake_fd_ = waker.fd();
    ready = check(0);
    while (ready == 0 && !deadline.passed()) {
      ready = check(deadline.poll_timeout_ms());
      // This precedes the check: a change that follows makes the descriptor readable again.
      waker.reset();
      if (ready == 0) ready = check(0);
    }
    return ready;
  }

 private:
  // Checks the rsockets, then waits for the ordinary descriptors and the waker, unless an rsocket
  // has an event already.
  int check(int timeout_ms) {
    int found = 0;
    for (nfds_t i = 0; i < count_; ++i) {
      // poll(2) ignores entries with a negative descriptor: those of rsockets, and that of the
      // waker before it exists.
      native_[i] = {sockets_[i] ? -1 : entries_[i].fd, entries_[i].events, 0};
      found += check_one(i);
    }
    native_[count_] = {wake_fd_, POLLIN, 0};
    if (stream::detail::wait(native_, found > 0 ? 0 : timeout_ms) < 0) return -1;
    found = 0;
    for (nfds_t i = 0; i < count_; ++i) {
      // check_one() has replaced the descriptor of a listener, which is a native one from then on.
      const bool is_stream = sockets_[i] && native_[i].fd < 0;
      if (!is_stream) entries_[i].revents = native_[i].revents;
      found += entries_[i].revents != 0;
    }
    return found;
  }

  // Sets the events of an rsocket and returns true if there are any. For a listener, sets the
  // descriptor to wait for instead.
  int check_one(nfds_t i) {
    entries_[i].revents = 0;
    const auto& socket = sockets_[i];
    if (!socket) return 0;
    const int always = POLLHUP | POLLERR;
    if (const auto datagrams = socket->get_datagrams()) {
      entries_[i].revents =
          static_cast<short>(events_of(*datagrams) & (entries_[i].events | always));
    } else if (socket->type == SOCK_DGRAM) {
      // It is not bound yet: it can send, and is bound by that.
      entries_[i].revents = static_cast<short>(POLLOUT & entries_[i].events);
    } else if (const auto stream = socket->get_stream()) {
      entries_[i].revents =
          static_cast<short>(events_of(*socket, *stream) & (entries_[i].events | always));
    } else if (socket->listening) {
      const int wanted = entries_[i].events & (POLLIN | POLLRDNORM);
      native_[i] = {socket->get_listener()->fd(), static_cast<short>(wanted), 0};
    } else {
      // Linux returns this for a TCP socket that is neither connected nor listening.
      entries_[i].revents = static_cast<short>((POLLOUT & entries_[i].events) | POLLHUP);
    }
    return entries_[i].revents != 0;
  }

  pollfd* entries_;
  nfds_t count_;
  std::vector<std::shared_ptr<Rsocket>> sockets_;
  std::vector<pollfd> native_;
  int wake_fd_ = -1;
  bool any_ = false;
};

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

int keep(const std::vector<pollfd>& entries, fd_set* set, int asked, int answers) {
  if (!set) return 0;
  int kept = 0;
  for (const pollfd& entry : entries) {
    if (!(entry.events & asked)) continue;
    if (entry.revents & answers) {
      ++kept;
    } else {
      FD_CLR(entry.fd, set);
    }
  }
  return kept;
}

}  // namespace

WEFT_EXPORT int rpoll(pollfd* entries, nfds_t count, int timeout_ms) {
  return guarded([&] {
    Polling polling(entries, count);
    if (!polling.has_rsockets()) return poll(entries, count, timeout_ms);
    return polling.run(deadline_of(timeout_ms));
  });
}

WEFT_EXPORT int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                        timeval* timeout) {
  return guarded([&] {
    // Beyond FD_SETSIZE the sets have no bits that could be read.
    if (count < 0 || count > FD_SETSIZE) return fail_with(EINVAL);
    // The time is rounded up, so that the call does not end before it. It is not written back,
    // which POSIX permits.
    int timeout_ms = -1;
    if (timeout) {
      const auto left =
          std::chrono::seconds(timeout->tv_sec) + std::chrono::microseconds(timeout->tv_usec);
      timeout_ms = static_cast<int>(std::min<long long>(
          std::chrono::ceil<std::chrono::milliseconds>(left).count(), INT32_MAX));
    }
    auto entries = entries_of(count, readable, writable, exceptional);
    if (rpoll(entries.data(), entries.size(), timeout_ms) < 0) return -1;
    for (const pollfd& entry : entries) {
      // A closed descriptor is an error of select(2), and only an event of poll(2).
      if (entry.revents & POLLNVAL) return fail_with(EBADF);
    }
    // The events of each set are those that select(2) lists for Linux.
    return keep(entries, readable, POLLIN, POLLIN | POLLHUP | POLLERR) +
           keep(entries, writable, POLLOUT, POLLOUT | POLLERR) +
           keep(entries, exceptional, POLLPRI, POLLPRI);
  });
}
