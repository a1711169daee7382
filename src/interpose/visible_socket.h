// The local socket that the program sees in place of a stream. It is one end of a socketpair(2),
// has the program's descriptor number, and is kept as readable, writable, ended or broken as the
// stream is. So poll, select and epoll with all their flags, O_NONBLOCK and close-on-exec are the
// kernel's own.
//
// A byte that was sent to the program's end makes it readable; filling its send buffer makes it not
// writable. These bytes mean nothing: what the program sends and receives bypasses the pair.
//
// The hidden end can also be the bell of a stream (stream::Options::bell): then a peer process
// makes the program's end readable itself.
#pragma once

#include <cstdint>

#include "interpose/descriptor.h"

namespace weft::interpose {

// Both ends of a visible socket.
struct HiddenPair {
  // Throws Error.
  HiddenPair();
  // The program's descriptor, the lowest number that is free; `type`: SOCK_NONBLOCK, SOCK_CLOEXEC.
  // -1 with errno.
  [[nodiscard]] int open_visible(int type) const;

  Descriptor visible_end;
  Descriptor hidden_end;
};

// Not thread-safe, except for the functions that wait.
class VisibleSocket {
 public:
  // There is none yet. Nothing can be shown.
  VisibleSocket() : broken_(true) {}
  // Returns the program's end in `visible`; the caller owns it. `type`: SOCK_NONBLOCK,
  // SOCK_CLOEXEC. Throws Error.
  VisibleSocket(int type, int& visible);
  // The program has its descriptor: HiddenPair::open_visible().
  explicit VisibleSocket(HiddenPair pair);

  // Another descriptor of the program's end. Owned by this object.
  [[nodiscard]] int copy() const { return visible_copy_.get(); }
  // The descriptor that makes the program's end readable. Owned by this object.
  [[nodiscard]] int bell() const { return hidden_end_.get(); }
  // A peer has written `bells` bytes to the bell, or is about to.
  void count_bells(std::uint64_t bells) { unread_ += bells; }
  // Takes bytes of the bell that came after the socket was set to not readable.
  void drop_late_bells();
  // Whether bytes are in the program's end, or will be at once.
  [[nodiscard]] bool has_unread() const { return unread_ > 0; }
  // Whether it is not readable, and such a byte is still to come.
  [[nodiscard]] bool awaits_bells() const { return unread_ > 0 && !readable_ && !broken_; }

  void set_readable(bool readable);
  // It counts as readable, without being shown: set_readable() follows before anybody waits.
  void note_readable() { readable_ = true; }
  void set_writable(bool writable);
  // Repeats the event for EPOLLET waiters, if the socket is readable.
  void repeat_readable();
  void show_end();      // EPOLLRDHUP: nothing more arrives
  void show_hang_up();  // EPOLLHUP: and nothing more can be sent
  void show_failure();  // EPOLLERR as well

  // Wait as recv(2) and send(2) do, up to the timeout of SO_RCVTIMEO and SO_SNDTIMEO. Return 0 or
  // an errno value. The first is restarted after a signal only if the handler has SA_RESTART.
  [[nodiscard]] int await_readable() const;
  // With a timeout of its own, -1 for none. A signal always ends it: EINTR.
  [[nodiscard]] int await_readable(int timeout_ms) const;
  [[nodiscard]] int await_writable(int timeout_ms) const;

  // From now on the pair carries the program's bytes. Returns the end that is not the program's. No
  // peer may ring any more; if a byte of the bell is still missing, the pair is shut down, because
  // that byte would end up among the program's.
  [[nodiscard]] Descriptor start_relay();
  // Closes the descriptors that this object has; the program's own stays open.
  void release();
  [[nodiscard]] bool usable() const { return !broken_ && visible_copy_.valid(); }
  // `value` is that of SO_RCVTIMEO.
  void set_receive_timeout(const void* value, unsigned bytes) const;

 private:
  [[nodiscard]] int await(short events, int timeout_ms) const;
  void drain_filler() const;
  void drain_unread(int patience_ms);

  Descriptor visible_copy_;  // of the program's end
  Descriptor hidden_end_;
  std::uint64_t unread_ = 0;  // bytes that are in the program's end, or will be at once
  bool readable_ = false;
  bool writable_ = true;
  bool has_small_buffer_ = false;  // the program's end, as soon as it was not writable
  bool broken_ = false;            // nothing can be shown any more
  bool ended_ = false;
};

}  // namespace weft::interpose
