// System calls for the device's own descriptors. They call the kernel directly, because a preloaded
// library may replace socket(), read() or close() for the program and must not see the device's
// calls. All return the kernel's result, or -errno.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/descriptor.h"

namespace weft::device::sys {

int socket(int family, int type, int protocol);
// A connected pair of Unix sockets, non-blocking. 0 or -errno.
int socket_pair(int type, int (&ends)[2]);
int bind(int fd, const sockaddr* address, socklen_t bytes);
int listen(int fd, int backlog);
int accept(int fd, sockaddr_storage* address);  // non-blocking, close-on-exec
int connect(int fd, const sockaddr* address, socklen_t bytes);
int shutdown(int fd, int how);
int close(int fd);
int set_option(int fd, int level, int name, int value);
int set_option(int fd, int level, int name, const void* value, socklen_t bytes);
int get_option(int fd, int level, int name, void* value, socklen_t* bytes);
int local_address(int fd, sockaddr_storage* address);
int peer_address(int fd, sockaddr_storage* address);
std::ptrdiff_t send(int fd, std::span<const iovec> pieces);     // never blocks, no SIGPIPE
std::ptrdiff_t receive(int fd, std::span<const iovec> pieces);  // never blocks
// For datagrams, with addresses and ancillary data; they never block.
std::ptrdiff_t send_message(int fd, const msghdr& message);
std::ptrdiff_t receive_message(int fd, msghdr& message);
// Copies the next bytes and leaves them in the socket; never blocks.
std::ptrdiff_t peek(int fd, void* at, std::size_t bytes);
bool peer_closed(int fd);  // true at the end of the stream or after a reset; consumes nothing
std::ptrdiff_t read(int fd, void* at, std::size_t bytes);
// Never blocks, whatever the mode of the descriptor: -EAGAIN if there is nothing to read.
std::ptrdiff_t read_nowait(int fd, void* at, std::size_t bytes);
std::ptrdiff_t write(int fd, const void* at, std::size_t bytes);
// Gives the calling thread this nice value, and no other thread (setpriority(2)). 0 or -errno.
int set_nice_value(int value);
int event_fd(bool semaphore);  // blocking, close-on-exec
// Takes one token from an eventfd(2) in semaphore mode; blocks unless it is non-blocking. 0, EAGAIN
// or EINTR. The thread may be cancelled here (pthread_cancel(3)), so no caller up to the C function
// may hold anything with a destructor.
int await_token(int fd);
// As poll() without a mask. The thread may be cancelled as in await_token(). 0 when an entry is
// ready or the time has passed, or EINTR.
int await_ready(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns);
// Sleeps while `word`, a std::uint32_t in shared memory, is `value`, until wake_sleeper() in any
// process. 0, EAGAIN where it is another value, or EINTR where read(2) would end so. The thread may
// be cancelled as in await_token().
int await_wake(const void* word, std::uint32_t value);
// True if a thread slept on the word.
bool wake_sleeper(const void* word);
int interface_mtu(const char* name);
// The bytes that the peer's TCP has not acknowledged, or -errno: tcp(7), SIOCOUTQ.
int unacknowledged_bytes(int fd);
int set_nonblocking(int fd);
bool nonblocking(int fd);
int poll_readable(int fd, int timeout_ms);
// ppoll(2) until `until_ns` on the clock of now_ns(), or without limit.
int poll(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns, const sigset_t* mask);
void yield();
void sleep_us(unsigned us);
std::size_t descriptor_limit();  // the soft RLIMIT_NOFILE
int thread_id();
bool is_alive(int thread_id);  // a thread of this process

// CLOCK_MONOTONIC in ns.
std::uint64_t now_ns();
// The same as of the kernel's last tick, some milliseconds ago at most. Costs a quarter of it.
std::uint64_t tick_ns();

using weft::Descriptor;

}  // namespace weft::device::sys
