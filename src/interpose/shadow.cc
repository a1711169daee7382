#include "interpose/shadow.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// The kernel gives the least that it can; a few pieces of this size fill it.
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

Shadow::Shadow(int type, int& visible) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | type, 0, ends.data()) != 0) {
    throw Error(errno, "no descriptors for a socket");
  }
  Descriptor front(ends[0]);
  back_ = out_of_the_way(Descriptor(ends[1]));
  front_ = copy_of(front.get());
  set_buffer(front.get(), least_buffer_bytes);
  visible = front.release();
}

void Shadow::drain(int fd) const {
  std::array<char, 16384> ignored;
  while (next::recv(fd, ignored.data(), ignored.size(), MSG_DONTWAIT) ==
         static_cast<ssize_t>(ignored.size())) {
  }
}

void Shadow::set_readable(bool readable) {
  if (readable == readable_ || broken_) return;
  readable_ = readable;
  constexpr char byte = 0;
  if (!readable) {
    drain(front_.get());
  } else if (!ended_) {
    next::send(back_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

// The new byte before the old ones go: it is never seen unreadable.
void Shadow::renew_readable() {
  if (!readable_ || broken_ || ended_) return;
  constexpr char byte = 0;
  next::send(back_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  char ignored;
  next::recv(front_.get(), &ignored, 1, MSG_DONTWAIT);
}

void Shadow::set_writable(bool writable) {
  if (writable == writable_ || broken_) return;
  writable_ = writable;
  if (writable) {
    drain(back_.get());
    return;
  }
  static constexpr std::array<char, filler_bytes> filler{};
  do {
    if (next::send(front_.get(), filler.data(), filler.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
      return;
  } while (is_writable(front_.get()));
}

void Shadow::end() {
  if (ended_ || broken_) return;
  ended_ = true;
  next::shutdown(back_.get(), SHUT_WR);
}

void Shadow::hang_up() {
  if (broken_) return;
  set_writable(true);
  broken_ = true;
  next::shutdown(back_.get(), SHUT_RDWR);
}

// The kernel calls it a reset where something was not read.
void Shadow::fail() {
  if (broken_) return;
  constexpr char byte = 0;
  next::send(front_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  broken_ = true;
  back_.reset();
}

int Shadow::await_readable() const {
  char ignored;
  return next::recv(front_.get(), &ignored, 1, MSG_PEEK) < 0 ? errno : 0;
}

int Shadow::await_writable(int timeout_ms) const {
  pollfd entry{front_.get(), POLLOUT, 0};
  const int ready = next::poll(&entry, 1, timeout_ms);
  return ready < 0 ? errno : ready == 0 ? EAGAIN : 0;
}

Descriptor Shadow::become_pipe() {
  set_readable(false);
  set_writable(true);
  broken_ = true;
  set_buffer(front_.get(), pipe_buffer_bytes);
  set_buffer(back_.get(), pipe_buffer_bytes);
  front_.reset();
  next::fcntl(back_.get(), F_SETFL, nullptr);  // who carries the bytes waits for them
  return std::move(back_);
}

void Shadow::release() {
  broken_ = true;
  front_.reset();
  back_.reset();
}

void Shadow::set_receive_timeout(const void* value, unsigned bytes) const {
  if (front_.valid()) next::setsockopt(front_.get(), SOL_SOCKET, SO_RCVTIMEO, value, bytes);
}

}  // namespace weft::interpose
