#include "interpose/visible_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// The kernel raises this to its minimum, which a few pieces of filler_bytes fill.
constexpr int least_buffer_bytes = 1;
constexpr std::size_t filler_bytes = 2048;
constexpr int pipe_buffer_bytes = 256 * 1024;

bool is_writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return next::poll(&entry, 1, 0) > 0 && (entry.revents & POLLOUT) != 0;
}

void set_buffer(int fd, int bytes) {
  next::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

}  // namespace

VisibleSocket::VisibleSocket(int type, int& visible) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | type, 0, ends.data()) != 0) {
    throw Error(errno, "no descriptors for a socket");
  }
  Descriptor visible_end(ends[0]);
  hidden_end_ = move_high(Descriptor(ends[1]));
  visible_copy_ = copy_high(visible_end.get());
  set_buffer(visible_end.get(), least_buffer_bytes);
  visible = visible_end.release();
}

void VisibleSocket::drain(int fd) const {
  std::array<char, 16384> ignored;
  while (next::recv(fd, ignored.data(), ignored.size(), MSG_DONTWAIT) ==
         static_cast<ssize_t>(ignored.size())) {
  }
}

// After show_end() the socket stays readable without a byte.
void VisibleSocket::set_readable(bool readable) {
  if (readable == readable_ || broken_) return;
  readable_ = readable;
  constexpr char byte = 0;
  if (!readable) {
    drain(visible_copy_.get());
  } else if (!ended_) {
    next::send(hidden_end_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
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
    drain(hidden_end_.get());
    return;
  }
  static constexpr std::array<char, filler_bytes> filler{};
  do {
    if (next::send(visible_copy_.get(), filler.data(), filler.size(), MSG_DONTWAIT | MSG_NOSIGNAL) <
        0)
      return;
  } while (is_writable(visible_copy_.get()));
}

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

// Closing an end with unread bytes makes the kernel report a reset (EPOLLERR) at the other one.
void VisibleSocket::show_failure() {
  if (broken_) return;
  constexpr char byte = 0;
  next::send(visible_copy_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  broken_ = true;
  hidden_end_.reset();
}

int VisibleSocket::await_readable() const {
  char ignored;
  return next::recv(visible_copy_.get(), &ignored, 1, MSG_PEEK) < 0 ? errno : 0;
}

int VisibleSocket::await_writable(int timeout_ms) const {
  pollfd entry{visible_copy_.get(), POLLOUT, 0};
  const int ready = next::poll(&entry, 1, timeout_ms);
  return ready < 0 ? errno : ready == 0 ? EAGAIN : 0;
}

// The pair is emptied first. O_NONBLOCK of the program's end is its own: the ends do not share it.
Descriptor VisibleSocket::start_relay() {
  set_readable(false);
  set_writable(true);
  broken_ = true;
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
