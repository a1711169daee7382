// Sockets over RDMA (rsocket(7)) are not built yet. So no descriptor is one: making one fails with
// ENOSYS, and whatever is called on a descriptor says EBADF, as it would for any other that is
// none. rpoll and rselect take ordinary descriptors as well, and programs use them so.
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/select.h>

#include <cerrno>

#include "dropin/export.h"

namespace {

int not_built() {
  errno = ENOSYS;
  return -1;
}

int no_rsocket() {
  errno = EBADF;
  return -1;
}

}  // namespace

WEFT_EXPORT int rsocket(int, int, int) {
  return not_built();
}
WEFT_EXPORT int rbind(int, const sockaddr*, socklen_t) {
  return no_rsocket();
}
WEFT_EXPORT int rlisten(int, int) {
  return no_rsocket();
}
WEFT_EXPORT int raccept(int, sockaddr*, socklen_t*) {
  return no_rsocket();
}
WEFT_EXPORT int rconnect(int, const sockaddr*, socklen_t) {
  return no_rsocket();
}
WEFT_EXPORT int rshutdown(int, int) {
  return no_rsocket();
}
WEFT_EXPORT int rclose(int) {
  return no_rsocket();
}

WEFT_EXPORT ssize_t rrecv(int, void*, size_t, int) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rrecvmsg(int, msghdr*, int) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rsend(int, const void*, size_t, int) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rsendmsg(int, const msghdr*, int) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rread(int, void*, size_t) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rreadv(int, const iovec*, int) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rwrite(int, const void*, size_t) {
  return no_rsocket();
}
WEFT_EXPORT ssize_t rwritev(int, const iovec*, int) {
  return no_rsocket();
}

WEFT_EXPORT int rpoll(pollfd* fds, nfds_t count, int timeout_ms) {
  return poll(fds, count, timeout_ms);
}

WEFT_EXPORT int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                        timeval* timeout) {
  return select(count, readable, writable, exceptional, timeout);
}

WEFT_EXPORT int rgetpeername(int, sockaddr*, socklen_t*) {
  return no_rsocket();
}
WEFT_EXPORT int rgetsockname(int, sockaddr*, socklen_t*) {
  return no_rsocket();
}
WEFT_EXPORT int rsetsockopt(int, int, int, const void*, socklen_t) {
  return no_rsocket();
}
WEFT_EXPORT int rgetsockopt(int, int, int, void*, socklen_t*) {
  return no_rsocket();
}
WEFT_EXPORT int rfcntl(int, int, ...) {
  return no_rsocket();
}

WEFT_EXPORT off_t riomap(int, void*, size_t, int, int, off_t) {
  return no_rsocket();
}
WEFT_EXPORT int riounmap(int, void*, size_t) {
  return no_rsocket();
}
WEFT_EXPORT size_t riowrite(int, const void*, size_t, off_t, int) {
  return static_cast<size_t>(no_rsocket());
}
