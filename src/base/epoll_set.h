// epoll(7) by bare system calls, for event loops inside Weft. A program may run under a library
// that replaces epoll_wait(2), such as libweft-sockets.so, whose replacement ends up in these
// loops.
//
// A loop that other threads must be able to interrupt adds an EventFd under a token of its own.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>
#include <utility>

#include "base/descriptor.h"

namespace weft {

// Thread-safe, as epoll is. All calls return what the kernel returned, or -errno.
class EpollSet {
 public:
  // The descriptor of a new set, close-on-exec; or -errno.
  [[nodiscard]] static int create();

  EpollSet() : EpollSet(Descriptor(create())) {}
  // `epoll` may have been moved to another number before.
  explicit EpollSet(Descriptor epoll) : epoll_(std::move(epoll)) {}

  [[nodiscard]] bool valid() const { return epoll_.valid(); }
  // Readable while wait() would find an event.
  [[nodiscard]] int get() const { return epoll_.get(); }

  // `events`: EPOLLIN and the like. wait() reports them with `token`.
  int add(int fd, std::uint32_t events, std::uint64_t token) const;
  // Also renews an EPOLLONESHOT registration that has fired.
  int change(int fd, std::uint32_t events, std::uint64_t token) const;
  int remove(int fd) const;  // before `fd` is closed
  // In the child after fork(2): closes the child's copy. The set of the parent is not changed.
  void close() { epoll_.reset(); }

  // The first of `events` that are ready. Blocks for at most `timeout_ms`; -1 is for ever. Empty
  // also after a signal or an error.
  [[nodiscard]] std::span<const epoll_event> wait(std::span<epoll_event> events,
                                                  int timeout_ms) const;

 private:
  int control(int operation, int fd, std::uint32_t events, std::uint64_t token) const;

  Descriptor epoll_;
};

}  // namespace weft
