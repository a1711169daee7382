// What the kernel sees of a stream: one end of a pair of local sockets has the program's descriptor
// number, and is kept as readable, writable, ended or broken as the stream is. So poll, select and
// epoll with all their flags, O_NONBLOCK and close-on-exec are the kernel's own.
//
// A byte for the program's end makes it readable; filling its buffer makes it not writable. The
// bytes mean nothing: what the program sends and receives goes past the pair.
#pragma once

#include "interpose/descriptor.h"

namespace weft::interpose {

// Not thread-safe, but for the waiting.
class Shadow {
 public:
  // With the program's end in `visible`: the caller's. `type`: SOCK_NONBLOCK, SOCK_CLOEXEC. Throws
  // Error.
  Shadow(int type, int& visible);

  void set_readable(bool readable);
  void set_writable(bool writable);
  // Whoever waits for edges is told once more, where it is readable.
  void renew_readable();
  void end();      // EPOLLRDHUP: nothing more comes
  void hang_up();  // EPOLLHUP: and nothing more goes
  void fail();     // EPOLLERR as well

  // As recv(2) and send(2) would wait: with the timeouts of SO_RCVTIMEO and SO_SNDTIMEO. 0, or an
  // errno value. The first begins anew after a signal only where the handler says SA_RESTART.
  [[nodiscard]] int await_readable() const;
  [[nodiscard]] int await_writable(int timeout_ms) const;

  // From now on the pair itself carries bytes: gives away the end that is not the program's.
  [[nodiscard]] Descriptor become_pipe();
  // Forgets its copies.
  void release();
  [[nodiscard]] bool usable() const { return !broken_ && front_.valid(); }
  // SO_RCVTIMEO of the program.
  void set_receive_timeout(const void* value, unsigned bytes) const;

 private:
  void drain(int fd) const;

  Descriptor front_;  // a copy of the program's
  Descriptor back_;
  bool readable_ = false;
  bool writable_ = true;
  bool broken_ = false;
  bool ended_ = false;
};

}  // namespace weft::interpose
