// Replacements of the functions for descriptors of any kind: close, duplicate, flags; and of those
// that let stdio or another process use a descriptor without calling this library.
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/own_descriptors.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/kernel_connection.h"
#include "interpose/kernel_transfer.h"
#include "interpose/process.h"
#include "interpose/table.h"

using namespace weft::interpose;
namespace own_descriptors = weft::own_descriptors;

namespace {

// A child of vfork(2) duplicates descriptors for the program that it will execute. The handlers of
// fork(2), which hand connections to the kernel, have not run, so this fails.
int refuse_copy(int copy) {
  print_notice(
      "a connection can be passed to another program by fork and exec or by posix_spawn, but not "
      "by vfork or clone");
  next::close(copy);
  return fail_with(EOPNOTSUPP);
}

// A socket of which there will be several descriptors: its file must not be replaced afterwards.
// False with errno. A child of vfork(2) shares the memory of its parent, but no descriptors.
bool keep_file(int fd) {
  const auto socket = find(fd);
  if (!socket || !owns_table()) return true;
  return guarded([&] {
           socket->open_visible();
           return 1;
         }) == 1;
}

// Commands that do not depend on the file: open_visible() keeps what they set.
bool concerns_flags_only(int command, void* argument) {
  if (command == F_SETFL) return (reinterpret_cast<std::intptr_t>(argument) & O_ASYNC) == 0;
  return command == F_GETFD || command == F_SETFD || command == F_GETFL;
}

// Enters a duplicate of `from` in the table, or removes a stale entry for its number.
int register_copy(int from, int copy) {
  if (copy < 0) return copy;
  if (const auto stream = find_stream(from); stream && !owns_table()) {
    return stream->pass_to_program(copy) ? copy : refuse_copy(copy);
  }
  if (StreamSet* const set = StreamSet::of(from); set && owns_table()) set->leave_all(false);
  forget_set(copy);
  let_key_go(from);
  const auto socket = find(from);
  if (!socket) {
    forget(copy);
    return copy;
  }
  put(copy, socket);
  // The files of stdio that exist from the start have these numbers: see fdopen() below.
  if (copy <= STDERR_FILENO) (void)relay_for_kernel(copy);
  return copy;
}

// The kernel's call comes first: what fails there must not change the socket. The visible socket is
// a real file, so its flags are the kernel's to keep.
int fcntl_any(int fd, int command, void* argument) {
  const auto socket = find(fd);
  if (socket && !concerns_flags_only(command, argument)) {
    if (!keep_file(fd)) return -1;
    socket->leave_set();
  }
  const bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  if (copies) let_key_go(fd);
  const int done = next::fcntl(fd, command, argument);
  if (!socket || done < 0) return done;
  if (copies) return register_copy(fd, done);
  if (command == F_SETFL) {
    socket->set_nonblocking((reinterpret_cast<std::intptr_t>(argument) & O_NONBLOCK) != 0);
  }
  return done;
}

int ioctl_stream(Socket& socket, int fd, unsigned long request, void* argument) {
  const auto stream = socket.stream();
  const bool counts = request == FIONREAD || request == TIOCOUTQ || request == SIOCOUTQNSD;
  if (counts && socket.phase() == Socket::Phase::listening) return fail_with(EINVAL);
  if ((counts || request == FIONBIO) && !argument) return fail_with(EFAULT);
  switch (request) {
    case FIONREAD: {
      const int bytes = stream ? static_cast<int>(stream->bytes_available()) : 0;
      std::memcpy(argument, &bytes, sizeof bytes);
      return 0;
    }
    case SIOCOUTQNSD:
    case TIOCOUTQ: {  // all bytes that were taken are on their way
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
    case FIOASYNC:
      socket.open_visible();
      socket.leave_set();
      return next::ioctl(fd, request, argument);
    case FIOCLEX:
    case FIONCLEX:
      return next::ioctl(fd, request, argument);
    default:  // requests about interfaces and the like
      return next::ioctl(socket.kernel_fd(), request, argument);
  }
}

// Calls `close_part` for each part of a range of numbers that has no descriptor of Weft's in it:
// the program does not know of those. Returns the first result that is not 0.
template <typename ClosePart>
int for_parts_without_own(unsigned first, unsigned last, ClosePart close_part) {
  while (true) {
    const int own = own_descriptors::first_in(first, last);
    if (own < 0) return close_part(first, last);
    const auto number = static_cast<unsigned>(own);
    const int failed = number > first ? close_part(first, number - 1) : 0;
    if (failed != 0 || number == last) return failed;
    first = number + 1;
  }
}

// Like closefrom(3), it also works where the kernel has no close_range(2), or a sandbox refuses it.
int close_all(unsigned first, unsigned last) {
  if (last == ~0U) {
    next::closefrom(static_cast<int>(first));
  } else if (next::close_range(first, last, 0) != 0) {
    for (unsigned fd = first; fd <= last; ++fd) next::close(static_cast<int>(fd));
  }
  return 0;
}

// The program closes the number.
void end_entry(int fd) {
  const InCall work;
  note_end_of_kernel_connection(fd);
  forget(fd);
  forget_set(fd);
}

// A descriptor of Weft's must not become one of the program's. The child of vfork(2) has copies of
// its own, which end with execve(2). False with EBUSY.
bool may_replace(int fd) {
  if (!own_descriptors::owns(fd) || !owns_table()) return true;
  print_notice("a file cannot be moved to the number " + std::to_string(fd) +
               ", which a descriptor of Weft has: use a lower number");
  errno = EBUSY;
  return false;
}

}  // namespace

// The entry is removed before the kernel closes the number: afterwards another thread may get the
// same number for a new file.
// Programs that close each number in turn get EBADF for what is Weft's, as for what is not open.
WEFT_INTERPOSED int close(int fd) {
  if (own_descriptors::owns(fd)) return fail_with(EBADF);
  end_entry(fd);
  return next::close(fd);
}

WEFT_INTERPOSED int close_range(unsigned first, unsigned last, int flags) {
  // With CLOSE_RANGE_CLOEXEC the descriptors stay open until execve(2) (close_range(2)).
  if (first > last || (flags & CLOSE_RANGE_CLOEXEC) != 0) {
    return next::close_range(first, last, flags);
  }
  forget_range(first, last);
  StreamSet::for_each_in(first, last, forget_set);
  return for_parts_without_own(first, last, [flags](unsigned from, unsigned to) {
    return next::close_range(from, to, flags);
  });
}

WEFT_INTERPOSED void closefrom(int least) {
  const auto first = static_cast<unsigned>(std::max(least, 0));
  forget_range(first, ~0U);
  StreamSet::for_each_in(first, ~0U, forget_set);
  (void)for_parts_without_own(first, ~0U, close_all);
}

WEFT_INTERPOSED int dup(int fd) {
  return keep_file(fd) ? register_copy(fd, next::dup(fd)) : -1;
}

WEFT_INTERPOSED int dup2(int fd, int to) {
  // dup2(2) with two equal numbers closes nothing and makes no copy.
  if (fd == to) return next::dup2(fd, to);
  return may_replace(to) && keep_file(fd) ? register_copy(fd, next::dup2(fd, to)) : -1;
}

WEFT_INTERPOSED int dup3(int fd, int to, int flags) {
  return may_replace(to) && keep_file(fd) ? register_copy(fd, next::dup3(fd, to, flags)) : -1;
}

WEFT_INTERPOSED int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl_any(fd, command, argument);
}

WEFT_INTERPOSED int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl_any(fd, command, argument);
}

WEFT_INTERPOSED int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const auto socket = find_stream(fd);
  if (!socket) return next::ioctl(fd, request, argument);
  return guarded([&] { return ioctl_stream(*socket, fd, request, argument); });
}

namespace {

// An epoll set cannot wait exclusively for another one, as the program's descriptor of a listener
// may be (ListenerFile). It is a hint only: each thread that is woken accepts what it finds.
epoll_event without_exclusive(const epoll_event& event) {
  epoll_event plain = event;
  plain.events &= ~static_cast<std::uint32_t>(EPOLLEXCLUSIVE);
  return plain;
}

// The kernel carries the call out. Remembers that an epoll set has the socket, and that a waiter
// uses edges. It needs an event for each arrival, which the visible socket has to repeat while it
// stays readable.
int change_in_kernel(int epoll, int operation, int fd, epoll_event* event) {
  // What is left to be noted of a descriptor that an epoll set has.
  constexpr std::uint32_t noted_each_time = EPOLLET | EPOLLEXCLUSIVE;
  if (!event || operation == EPOLL_CTL_DEL ||
      (is_in_epoll_set(fd) && (event->events & noted_each_time) == 0)) {
    return next::epoll_ctl(epoll, operation, fd, event);
  }
  if (const auto socket = find_stream(fd)) {
    const auto note = [&] {
      socket->note_epoll_set();
      note_epoll_set(fd, *socket);
      if (event->events & EPOLLET) socket->use_edges();
      return 0;
    };
    if (guarded(note) != 0) return -1;
    if (socket->phase() == Socket::Phase::listening && (event->events & EPOLLEXCLUSIVE)) {
      epoll_event plain = without_exclusive(*event);
      return next::epoll_ctl(epoll, operation, fd, &plain);
    }
  }
  return next::epoll_ctl(epoll, operation, fd, event);
}

}  // namespace

// An epoll set that is in another one, or whose socket is in a second one, is the kernel's.
WEFT_INTERPOSED int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  const InCall work;
  const bool changes = operation != EPOLL_CTL_DEL && event;
  if (changes && (event->events & (EPOLLIN | EPOLLRDNORM))) let_key_go(fd);
  if (changes && (event->events & EPOLLRDHUP)) {
    if (const auto socket = find_stream(fd)) socket->want_end();
  }
  if (StreamSet* const set = StreamSet::of(epoll)) {
    if (const auto error = set->change(operation, fd, event)) {
      return *error == 0 ? 0 : fail_with(*error);
    }
  }
  if (StreamSet* const inner = StreamSet::of(fd)) inner->leave_all(false);
  if (operation == EPOLL_CTL_ADD && is_in_epoll_set(fd)) {
    if (const auto socket = find_stream(fd)) socket->leave_set();
  }
  const int done = change_in_kernel(epoll, operation, fd, event);
  if (done != 0 || operation == EPOLL_CTL_DEL || !is_in_epoll_set(fd)) return done;
  (void)guarded([&] {
    if (const auto socket = find_stream(fd)) StreamSet::note_added(epoll, fd, socket, *event);
    return 0;
  });
  return done;
}

// stdio reads and writes by internal functions that cannot be replaced.
WEFT_INTERPOSED FILE* fdopen(int fd, const char* mode) {
  return relay_for_kernel(fd) ? next::fdopen(fd, mode) : nullptr;
}

// The C library closes the descriptor by an internal function, too.
WEFT_INTERPOSED int fclose(FILE* file) {
  const int kept = errno;
  const int fd = fileno(file);  // -1 with errno if it has none
  errno = kept;
  end_entry(fd);
  return next::fclose(file);
}

WEFT_INTERPOSED int vdprintf(int fd, const char* format, va_list arguments) {
  return relay_for_kernel(fd) ? next::vdprintf(fd, format, arguments) : -1;
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
