// What is done with descriptors of any kind: closing, copying, flags; and whoever goes past us.
#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstring>

#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/table.h"

using namespace weft::interpose;

namespace {

// A child of vfork(2) makes copies for the program that it will become. There is no fork(2) before
// which the connection could have been given to the kernel.
int refuse_copy(int copy) {
  say("a connection can be handed to another program by fork and exec or posix_spawn, and not by "
      "vfork");
  next::close(copy);
  return fail_with(EOPNOTSUPP);
}

int keep_copy(int from, int copy) {
  if (copy < 0) return copy;
  if (find_stream(from) && !table_is_ours()) return refuse_copy(copy);
  if (const auto socket = find(from)) {
    put(copy, socket);
  } else {
    forget(copy);
  }
  return copy;
}

int control(int fd, int command, void* argument) {
  const auto socket = find(fd);
  const int done = next::fcntl(fd, command, argument);
  if (!socket || done < 0) return done;
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return keep_copy(fd, done);
  if (command == F_SETFL) {
    socket->set_nonblocking((reinterpret_cast<std::intptr_t>(argument) & O_NONBLOCK) != 0);
  }
  return done;
}

int control_stream(Socket& socket, int fd, unsigned long request, void* argument) {
  const auto stream = socket.stream();
  switch (request) {
    case FIONREAD: {
      if (socket.phase() == Socket::Phase::listening) return fail_with(EINVAL);
      const int bytes = stream ? static_cast<int>(stream->bytes_available()) : 0;
      std::memcpy(argument, &bytes, sizeof bytes);
      return 0;
    }
    case TIOCOUTQ: {  // what was taken is on its way
      const int none = 0;
      std::memcpy(argument, &none, sizeof none);
      return 0;
    }
    case FIONBIO: {
      int on = 0;
      std::memcpy(&on, argument, sizeof on);
      socket.set_nonblocking(on != 0);
      return next::ioctl(fd, request, argument);
    }
    case FIOCLEX:
    case FIONCLEX:
    case FIOASYNC:
      return next::ioctl(fd, request, argument);
    default:  // about interfaces and the like
      return next::ioctl(socket.kernel(), request, argument);
  }
}

void pipe_all() {
  lock_table();
  const auto sockets = all_sockets();
  unlock_table();
  for (const auto& socket : sockets) {
    (void)guarded([&] { return socket->become_pipe() ? 1 : 0; });
  }
}

// Whether the kernel may carry the bytes from now on; nothing else can be done.
bool piped_for(int fd) {
  const auto socket = find_stream(fd);
  if (!socket) return true;
  if (guarded([&] { return socket->become_pipe() ? 1 : 0; }) == 1) return true;
  errno = ENOTCONN;
  return false;
}

}  // namespace

namespace weft::interpose {

bool pipe_passed_descriptors(const msghdr& message) {
  auto& all = const_cast<msghdr&>(message);
  for (cmsghdr* part = CMSG_FIRSTHDR(&all); part; part = CMSG_NXTHDR(&all, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (piped_for(fd)) continue;
      say("a socket can be passed to another process while it is connected, and not else");
      errno = EOPNOTSUPP;
      return false;
    }
  }
  return true;
}

}  // namespace weft::interpose

WEFT_INTERPOSED int close(int fd) {
  forget(fd);
  return next::close(fd);
}

WEFT_INTERPOSED int close_range(unsigned first, unsigned last, int flags) {
  if (!(flags & CLOSE_RANGE_CLOEXEC)) forget_range(first, last);
  return next::close_range(first, last, flags);
}

WEFT_INTERPOSED void closefrom(int first) {
  forget_range(static_cast<unsigned>(first), ~0U);
  next::closefrom(first);
}

WEFT_INTERPOSED int dup(int fd) {
  return keep_copy(fd, next::dup(fd));
}

WEFT_INTERPOSED int dup2(int fd, int to) {
  const int copy = next::dup2(fd, to);
  return fd == to ? copy : keep_copy(fd, copy);
}

WEFT_INTERPOSED int dup3(int fd, int to, int flags) {
  return keep_copy(fd, next::dup3(fd, to, flags));
}

WEFT_INTERPOSED int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return control(fd, command, argument);
}

WEFT_INTERPOSED int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return control(fd, command, argument);
}

WEFT_INTERPOSED int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const auto socket = find_stream(fd);
  if (!socket) return next::ioctl(fd, request, argument);
  return guarded([&] { return control_stream(*socket, fd, request, argument); });
}

// The kernel's own, but for this: who wants edges is told of more where there was some.
WEFT_INTERPOSED int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  if (event && (event->events & EPOLLET)) {
    if (const auto socket = find_stream(fd)) socket->wants_edges();
  }
  return next::epoll_ctl(epoll, operation, fd, event);
}

// The actions may copy a connection to the other program.
WEFT_INTERPOSED int posix_spawn(pid_t* child, const char* path,
                                const posix_spawn_file_actions_t* actions,
                                const posix_spawnattr_t* attributes, char* const arguments[],
                                char* const environment[]) {
  if (actions) pipe_all();
  return next::posix_spawn(child, path, actions, attributes, arguments, environment);
}

WEFT_INTERPOSED int posix_spawnp(pid_t* child, const char* file,
                                 const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, char* const arguments[],
                                 char* const environment[]) {
  if (actions) pipe_all();
  return next::posix_spawnp(child, file, actions, attributes, arguments, environment);
}

// The C library's files read and write past us.
WEFT_INTERPOSED FILE* fdopen(int fd, const char* mode) {
  return piped_for(fd) ? next::fdopen(fd, mode) : nullptr;
}

WEFT_INTERPOSED int vdprintf(int fd, const char* format, va_list arguments) {
  return piped_for(fd) ? next::vdprintf(fd, format, arguments) : -1;
}

WEFT_INTERPOSED int dprintf(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int done = vdprintf(fd, format, arguments);
  va_end(arguments);
  return done;
}

WEFT_INTERPOSED int __close(int fd) {
  return close(fd);
}
WEFT_INTERPOSED int __dup2(int fd, int to) {
  return dup2(fd, to);
}
