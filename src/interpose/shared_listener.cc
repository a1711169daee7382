#include "interpose/shared_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <mutex>

namespace weft::interpose {
namespace {

// Locks of fcntl(2) keep out other processes, but not other threads of this one.
constinit std::mutex mutex;

void lock_first_byte(int kernel, short type) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_len = 1;
  // Where the kernel has no locks for sockets, this goes on without one.
  while (next::fcntl(kernel, F_SETLKW, &range) < 0 && errno == EINTR) {
  }
}

class ListenerLock {
 public:
  explicit ListenerLock(int kernel) : kernel_(kernel) { lock_first_byte(kernel_, F_WRLCK); }
  ~ListenerLock() {
    const int error = errno;
    lock_first_byte(kernel_, F_UNLCK);
    errno = error;
  }
  ListenerLock(const ListenerLock&) = delete;
  ListenerLock& operator=(const ListenerLock&) = delete;

 private:
  const std::lock_guard<std::mutex> threads_{mutex};
  const int kernel_;
};

bool has_blocking_file(int kernel) {
  return (next::fcntl(kernel, F_GETFL, nullptr) & O_NONBLOCK) == 0;
}

}  // namespace

Descriptor accept_at_once(int kernel) {
  const ListenerLock lock(kernel);
  const bool blocks = has_blocking_file(kernel);
  if (blocks) set_blocking(kernel, false);
  Descriptor accepted(next::accept4(kernel, nullptr, nullptr, SOCK_CLOEXEC));
  const int error = errno;
  if (blocks) set_blocking(kernel, true);
  errno = error;
  return accepted;
}

// Only the one answer may be wrong without the lock.
bool listener_blocks(int kernel) {
  if (has_blocking_file(kernel)) return true;
  const ListenerLock lock(kernel);
  return has_blocking_file(kernel);
}

void set_listener_blocking(int kernel, bool blocks) {
  const ListenerLock lock(kernel);
  set_blocking(kernel, blocks);
}

bool was_disturbed(int kernel) {
  timeval timeout{};
  socklen_t bytes = sizeof timeout;
  next::getsockopt(kernel, SOL_SOCKET, SO_RCVTIMEO, &timeout, &bytes);
  return timeout.tv_sec == 0 && timeout.tv_usec == 0 && listener_blocks(kernel);
}

void shared_listener_before_fork() {
  mutex.lock();
}

void shared_listener_after_fork() {
  mutex.unlock();
}

}  // namespace weft::interpose
