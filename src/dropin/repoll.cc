#include "dropin/repoll.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/event_fd.h"
#include "dropin/export.h"
#include "dropin/rsocket.h"
#include "stream/fork_handler.h"

namespace weft::dropin {
namespace {

// The bits that poll(2) and epoll(7) share; the values are the same on Linux.
constexpr std::uint32_t poll_bits =
    EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDNORM | EPOLLWRNORM | EPOLLRDHUP;
static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR &&
              EPOLLHUP == POLLHUP && EPOLLPRI == POLLPRI && EPOLLRDNORM == POLLRDNORM &&
              EPOLLWRNORM == POLLWRNORM && EPOLLRDHUP == POLLRDHUP);

// The events of an entry that is not polled again before EPOLL_CTL_MOD.
constexpr std::uint32_t reported_once = EPOLLONESHOT;

// The file behind a descriptor. Tells whether the program has closed it, of which this library
// learns nothing, and got its number for another one. Files without an inode of their own, such as
// eventfd(2), look the same.
struct File {
  dev_t device = 0;
  ino_t inode = 0;

  // Nothing with errno set if the descriptor is not open.
  [[nodiscard]] static std::optional<File> behind(int fd) {
    struct stat found {};
    if (fstat(fd, &found) < 0) return std::nullopt;
    return File{found.st_dev, found.st_ino};
  }
  friend bool operator==(const File&, const File&) = default;
};

// How long a call waits at most where no descriptor is left by which a change can wake it.
constexpr int unwoken_ms = 10;

// The descriptors of one repoll_create(). Thread-safe. Events are reported as long as they last,
// also with EPOLLET, as in librdmacm.
class PolledSet {
 public:
  int change(int operation, int fd, const epoll_event* event) {
    const std::lock_guard lock(mutex_);
    // An rsocket has a file as well: the eventfd that holds its number.
    const auto file = File::behind(fd);
    const auto found = entries_.find(fd);
    const bool known = file && found != entries_.end() && found->second.file == *file;
    // Linux allows null for EPOLL_CTL_DEL since 2.6.9 (epoll_ctl(2)).
    if (operation != EPOLL_CTL_DEL && !event) return fail_with(EFAULT);
    switch (operation) {
      case EPOLL_CTL_ADD:
        if (known) return fail_with(EEXIST);
        if (!file) return fail_with(EBADF);
        entries_[fd] = {*event, *file};
        break;
      case EPOLL_CTL_MOD:
        if (!known) return fail_with(ENOENT);
        entries_[fd] = {*event, *file};
        break;
      case EPOLL_CTL_DEL:
        if (!known) return fail_with(ENOENT);
        entries_.erase(fd);
        break;
      default:
        return fail_with(EINVAL);
    }
    wake_waiters();
    return 0;
  }

  void forget(int fd) {
    const std::lock_guard lock(mutex_);
    if (entries_.erase(fd)) wake_waiters();
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    wake_waiters();
  }

  // The number of events, 0 at the deadline, or -1.
  int wait(epoll_event* events, int room, const Deadline& deadline) {
    const EventFd changed;
    if (changed.valid()) forget(changed.get());  // the program has closed what had its number
    // Registered before the first snapshot, so that no change after it is missed.
    const Waiting waiting(*this, changed);
    for (;;) {
      // This precedes the snapshot: a change that follows makes `changed` readable again.
      if (changed.valid()) changed.drain();
      auto polled = snapshot();
      if (polled.empty()) return fail_with(EBADF);  // closed
      polled.push_back({changed.get(), POLLIN, 0});
      const int ready = rpoll(polled.data(), polled.size(), timeout_ms(changed, deadline));
      if (ready < 0) return -1;
      // Without an event of an entry the set has changed, or an entry was closed: poll the new set.
      const int count = collect(polled, events, room);
      if (count > 0 || (ready == 0 && deadline.passed())) return count;
    }
  }

 private:
  // Makes `changed` readable at each change, while it exists.
  class Waiting {
   public:
    Waiting(PolledSet& set, const EventFd& changed) : set_(set), changed_(changed) {
      const std::lock_guard lock(set_.mutex_);
      set_.waiters_.push_back(&changed_);
    }
    ~Waiting() {
      const std::lock_guard lock(set_.mutex_);
      std::erase(set_.waiters_, &changed_);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    PolledSet& set_;
    const EventFd& changed_;
  };

  // The callers hold mutex_, so that no waiter is destroyed meanwhile.
  void wake_waiters() {
    for (const EventFd* waiter : waiters_) {
      if (waiter->valid()) waiter->signal();
    }
  }

  // epoll_wait(2) needs no descriptor, so that this must not fail where none is left.
  static int timeout_ms(const EventFd& changed, const Deadline& deadline) {
    const int left_ms = deadline.poll_timeout_ms();
    return changed.valid() || (left_ms >= 0 && left_ms < unwoken_ms) ? left_ms : unwoken_ms;
  }

  // Begins behind the descriptor that was reported last, so that none starves where a program has
  // room for few events. The first entry is ignored by poll; there is none if the set is closed.
  std::vector<pollfd> snapshot() {
    const std::lock_guard lock(mutex_);
    std::vector<pollfd> polled;
    if (closed_) return polled;
    polled.push_back({-1, 0, 0});
    const auto add = [&](auto begin, auto end) {
      for (; begin != end; ++begin) {
        const epoll_event& event = begin->second.event;
        const auto wanted = static_cast<short>(event.events & poll_bits);
        if (event.events != reported_once) polled.push_back({begin->first, wanted, 0});
      }
    };
    const auto next = entries_.upper_bound(last_reported_);
    add(next, entries_.end());
    add(entries_.begin(), next);
    return polled;
  }

  int collect(const std::vector<pollfd>& polled, epoll_event* events, int room) {
    const std::lock_guard lock(mutex_);
    int count = 0;
    for (const pollfd& entry : polled) {
      // The lock was free while rpoll() waited, so that the entry is looked up again.
      const auto found = entry.revents ? entries_.find(entry.fd) : entries_.end();
      if (found == entries_.end() || count == room) continue;  // or removed meanwhile
      if (File::behind(entry.fd) != found->second.file) {
        entries_.erase(found);  // closed by close(2)
        continue;
      }
      const auto occurred = static_cast<std::uint32_t>(entry.revents) & poll_bits;
      epoll_event& event = found->second.event;
      events[count++] = {occurred, event.data};
      last_reported_ = entry.fd;
      if (event.events & EPOLLONESHOT) event.events = reported_once;
    }
    return count;
  }

  struct Entry {
    epoll_event event{};
    File file;
  };

  std::mutex mutex_;
  std::map<int, Entry> entries_;  // by descriptor
  std::vector<const EventFd*> waiters_;
  int last_reported_ = -1;
  bool closed_ = false;
  // The threads that were waiting do not exist in the child, and one may have held the lock.
  stream::detail::ForkHandler fork_handler_{this, [](void* self) noexcept {
                                              auto& set = *static_cast<PolledSet*>(self);
                                              std::construct_at(&set.mutex_);
                                              std::construct_at(&set.waiters_);
                                            }};
};

// By the number that repoll_create() has returned. The mutex of a set is taken while this one is
// held, never the other way around.
struct Sets {
  std::mutex mutex;
  std::unordered_map<int, std::shared_ptr<PolledSet>> all;
  stream::detail::ForkHandler fork_handler{
      this, [](void* self) noexcept { std::construct_at(&static_cast<Sets*>(self)->mutex); }};
};

// Never destroyed: threads of the program may use it until the process ends.
Sets& sets() {
  static Sets* const made = new Sets();
  return *made;
}

std::shared_ptr<PolledSet> find_set(int descriptor) {
  const std::lock_guard lock(sets().mutex);
  const auto found = sets().all.find(descriptor);
  return found == sets().all.end() ? nullptr : found->second;
}

}  // namespace

bool close_repoll(int descriptor) {
  std::shared_ptr<PolledSet> set;
  {
    const std::lock_guard lock(sets().mutex);
    const auto found = sets().all.find(descriptor);
    if (found == sets().all.end()) return false;
    set = std::move(found->second);
    sets().all.erase(found);
  }
  // Threads that wait hold the set by pointers of their own, and get EBADF.
  set->close();
  // This comes last: a thread that gets the number next must not find the old set.
  ::close(descriptor);
  return true;
}

void forget_descriptor(int descriptor) {
  const std::lock_guard lock(sets().mutex);
  for (const auto& [number, set] : sets().all) set->forget(descriptor);
}

}  // namespace weft::dropin

using namespace weft::dropin;

// Upstream's header declares these for C. The descriptor only reserves the number. librdmacm
// returns errno values where these return -1 and set errno, as epoll does: from repoll_wait() such
// a value could not be told from a number of events.
WEFT_EXPORT int repoll_create(int flags) {
  return guarded([&] {
    if (flags & ~(O_CLOEXEC | O_NONBLOCK)) return fail_with(EINVAL);
    auto set = std::make_shared<PolledSet>();
    const int descriptor = eventfd(0, flags & O_CLOEXEC ? EFD_CLOEXEC : 0);
    if (descriptor < 0) return -1;
    const std::lock_guard lock(sets().mutex);
    sets().all[descriptor] = std::move(set);
    return descriptor;
  });
}

WEFT_EXPORT int repoll_ctl(int descriptor, int operation, int fd, epoll_event* event) {
  return guarded([&] {
    const auto set = find_set(descriptor);
    if (fd < 0) return fail_with(EBADF);
    if (!set || find_set(fd)) return fail_with(EINVAL);  // sets of sets are not possible
    return set->change(operation, fd, event);
  });
}

WEFT_EXPORT int repoll_wait(int descriptor, epoll_event* events, int room, int timeout_ms) {
  return guarded([&] {
    const auto set = find_set(descriptor);
    if (!set || room <= 0) return fail_with(EINVAL);
    return set->wait(events, room,
                     timeout_ms < 0 ? weft::Deadline::never()
                                    : weft::Deadline(std::chrono::milliseconds(timeout_ms)));
  });
}
