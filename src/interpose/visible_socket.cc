#include "interpose/visible_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "interpose/program_signals.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// The kernel raises this to its minimum, which a few pieces of filler_bytes fill.
constexpr int least_buffer_bytes = 1;
constexpr std::size_t filler_bytes = 2048;
constexpr int pipe_buffer_bytes = 256 * 1024;
// A peer that has decided to ring the bell does so within microseconds, unless it is stopped.
constexpr int bell_patience_ms = 5;
constexpr int relay_patience_ms = 1000;

bool is_writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return next::poll(&entry, 1, 0) > 0 && (entry.revents & POLLOUT) != 0;
}

void set_buffer(int fd, int bytes) {
  next::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

}  // namespace

HiddenPair::HiddenPair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Error(errno, "no descriptors for a socket");
  }
  visible_end = move_high(Descriptor(ends[0]));
  hidden_end = move_high(Descriptor(ends[1]));
}

int HiddenPair::open_visible(int type) const {
  if (type & SOCK_NONBLOCK) set_blocking(visible_end.get(), false);
  const int command = type & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD;
  return next::fcntl(visible_end.get(), command, nullptr);
}

VisibleSocket::VisibleSocket(HiddenPair pair)
    : visible_copy_(std::move(pair.visible_end)), hidden_end_(std::move(pair.hidden_end)) {}

VisibleSocket::VisibleSocket(int type, int& visible) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | type, 0, ends.data()) != 0) {
    throw Error(errno, "no descriptors for a socket");
  }
  Descriptor visible_end(ends[0]);
  hidden_end_ = move_high(Descriptor(ends[1]));
  visible_copy_ = copy_high(visible_end.get());
  visible = visible_end.release();
}

void VisibleSocket::drain_filler() const {
  std::array<char, 16384> ignored;
  while (next::recv(hidden_end_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT) ==
         static_cast<ssize_t>(ignored.size())) {
  }
}

// Takes exactly the bytes that were counted: one more is a bell that the stream has not noticed
// yet, and has to wake the program. Waits for those that a peer is about to write.
void VisibleSocket::drain_unread(int patience_ms) {
  std::array<char, 256> ignored;
  while (unread_ > 0) {
    const std::size_t wanted = std::min<std::uint64_t>(unread_, ignored.size());
    const ssize_t got = next::recv(visible_copy_.get(), ignored.data(), wanted, MSG_DONTWAIT);
    if (got > 0) {
      unread_ -= static_cast<std::uint64_t>(got);
    } else if (got == 0) {
      unread_ = 0;  // the end was shown, and nothing follows it
    } else {
      pollfd entry{visible_copy_.get(), POLLIN, 0};
      if (errno != EAGAIN || next::poll(&entry, 1, patience_ms) <= 0) return;
    }
  }
}

void VisibleSocket::drop_late_bells() {
  if (!readable_ && !broken_) drain_unread(0);
}

// After show_end() the socket stays readable without a byte. A bell that was rung makes it readable
// as well.
void VisibleSocket::set_readable(bool readable) {
  if (broken_) return;
  readable_ = readable;
  constexpr char byte = 0;
  if (!readable) {
    drain_unread(bell_patience_ms);
  } else if (!ended_ && unread_ == 0) {
    next::send(hidden_end_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    unread_ = 1;
  }
}

// Adds the new byte before it takes the old one, so that the socket is readable at any time.
void VisibleSocket::repeat_readable() {
  if (!readable_ || broken_ || ended_) return;
  constexpr char byte = 0;
  next::send(hidden_end_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  char ignored;
  next::recv(visible_copy_.get(), &ignored, 1, MSG_DONTWAIT);
}

// Fills the send buffer to make it not writable. The filler is drained from the hidden end.
void VisibleSocket::set_writable(bool writable) {
  if (writable == writable_ || broken_) return;
  writable_ = writable;
  if (writable) {
    drain_filler();
    return;
  }
  if (!std::exchange(has_small_buffer_, true)) set_buffer(visible_copy_.get(), least_buffer_bytes);
  static constexpr std::array<char, filler_bytes> filler{};
  do {
    if (next::send(visible_copy_.get(), filler.data(), filler.size(), MSG_DONTWAIT | MSG_NOSIGNAL) <
        0)
      return;
  } while (is_writable(visible_copy_.get()));
}

// The visible end is readable from then on, without a byte and with POLLRDHUP, as a TCP socket
// whose peer has sent its FIN.
void VisibleSocket::show_end() {
  if (ended_ || broken_) return;
  ended_ = true;
  next::shutdown(hidden_end_.get(), SHUT_WR);
}

void VisibleSocket::show_hang_up() {
  if (broken_) return;
  set_writable(true);
  broken_ = true;
  next::shutdown(hidden_end_.get(), SHUT_RDWR);
}

// Closing an end with unread bytes makes the kernel report a reset (EPOLLERR) at the other one. A
// peer that has a copy of that end, as its bell, keeps it open: then the program sees a hang-up.
void VisibleSocket::show_failure() {
  if (broken_) return;
  constexpr char byte = 0;
  next::send(visible_copy_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  broken_ = true;
  hidden_end_.reset();
  pollfd entry{visible_copy_.get(), 0, 0};
  if (next::poll(&entry, 1, 0) == 0) next::shutdown(visible_copy_.get(), SHUT_RDWR);
}

// The thread blocks in recv(2) and not in poll(2), because recv(2) obeys SO_RCVTIMEO. MSG_PEEK
// leaves the byte there, because unread_ counts it.
int VisibleSocket::await_readable() const {
  const Waiting wait;
  if (wait.ends_receiving()) return EINTR;
  char ignored;
  return next::recv(visible_copy_.get(), &ignored, 1, MSG_PEEK) < 0 ? errno : 0;
}

// A relay that has started meanwhile has closed the descriptor.
int VisibleSocket::await(short events, int timeout_ms) const {
  if (!visible_copy_.valid()) return 0;
  const Waiting wait;
  if (wait.ends_polling()) return EINTR;
  pollfd entry{visible_copy_.get(), events, 0};
  const int ready = next::poll(&entry, 1, timeout_ms);
  return ready < 0 ? errno : ready == 0 ? EAGAIN : 0;
}

int VisibleSocket::await_readable(int timeout_ms) const {
  return await(POLLIN, timeout_ms);
}

int VisibleSocket::await_writable(int timeout_ms) const {
  return await(POLLOUT, timeout_ms);
}

// The pair is emptied first. O_NONBLOCK of the program's end is its own: the ends do not share it.
Descriptor VisibleSocket::start_relay() {
  readable_ = false;
  drain_unread(relay_patience_ms);
  set_writable(true);
  broken_ = true;
  if (unread_ > 0) next::shutdown(hidden_end_.get(), SHUT_RDWR);
  set_buffer(visible_copy_.get(), pipe_buffer_bytes);
  set_buffer(hidden_end_.get(), pipe_buffer_bytes);
  visible_copy_.reset();
  next::fcntl(hidden_end_.get(), F_SETFL, nullptr);  // the relay's calls block
  return std::move(hidden_end_);
}

void VisibleSocket::release() {
  broken_ = true;
  visible_copy_.reset();
  hidden_end_.reset();
}

void VisibleSocket::set_receive_timeout(const void* value, unsigned bytes) const {
  if (visible_copy_.valid())
    next::setsockopt(visible_copy_.get(), SOL_SOCKET, SO_RCVTIMEO, value, bytes);
}

}  // namespace weft::interpose
