// System calls without libc's wrappers, so that libraries which replace those (socket interposers)
// never see the device's own sockets. Errors are returned as -errno.
#include "device/system.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/duration.h"
#include "base/fork_mark.h"
#include "base/kernel_clock.h"
#include "base/own_descriptors.h"
#include "base/own_sockets.h"
#include "base/simulated_kernel.h"
#include "base/system_call.h"
#include "device/system_messages.h"

namespace weft::device::sys {
namespace {

template <typename... Args>
long call(long number, Args... args) {
  const long result = system_call(number, args...);
  return result < 0 ? -errno : result;
}

// The kernel orders a thread's send before another thread's receive of the same bytes.
// ThreadSanitizer knows that for libc functions but not for direct system calls, so it is declared
// here.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
int stream_order = 0;
void note_sending() {
  __tsan_release(&stream_order);
}
void note_received() {
  __tsan_acquire(&stream_order);
}
#else
void note_sending() {}
void note_received() {}
#endif

// A call for a descriptor of a simulation. After its end there is none.
template <typename Call>
auto in_simulation(Call call) -> decltype(call(std::declval<SimulatedKernel&>())) {
  SimulatedKernel* kernel = SimulatedKernel::current();
  if (!kernel) return static_cast<decltype(call(*kernel))>(-EBADF);
  return call(*kernel);
}

std::uint64_t read_clock(clockid_t clock) {
  if (SimulatedKernel* kernel = SimulatedKernel::current()) [[unlikely]]
    return kernel->now_ns();
  return kernel_clock_ns(clock);
}

}  // namespace

int socket(int family, int type, int protocol) {
  if (SimulatedKernel* kernel = SimulatedKernel::current()) [[unlikely]]
    return kernel->socket(family, type);
  const auto made =
      own_descriptors::moved_high(static_cast<int>(call(SYS_socket, family, type, protocol)));
  own_sockets::add(made);
  return made;
}

int socket_pair(int type, int (&ends)[2]) {
  const auto failed = static_cast<int>(
      call(SYS_socketpair, AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, &ends[0]));
  if (failed < 0) return failed;
  for (int& end : ends) {
    end = own_descriptors::moved_high(end);
    own_sockets::add(end);
  }
  return 0;
}

int bind(int fd, const sockaddr* address, socklen_t bytes) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.bind(fd, address); });
  return static_cast<int>(call(SYS_bind, fd, address, bytes));
}

int listen(int fd, int backlog) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.listen(fd, backlog); });
  return static_cast<int>(call(SYS_listen, fd, backlog));
}

// One system call sets the flags as well: between two, a fork() would leak the descriptor to a new
// program.
int accept(int fd, sockaddr_storage* address) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.accept(fd, address); });
  socklen_t bytes = sizeof *address;
  const auto made = own_descriptors::moved_high(
      static_cast<int>(call(SYS_accept4, fd, address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  own_sockets::add(made);
  return made;
}

int connect(int fd, const sockaddr* address, socklen_t bytes) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.connect(fd, address); });
  return static_cast<int>(call(SYS_connect, fd, address, bytes));
}

int shutdown(int fd, int how) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.shutdown(fd, how); });
  return static_cast<int>(call(SYS_shutdown, fd, how));
}

// Never repeated after EINTR: on Linux the descriptor is closed in any case.
int close(int fd) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.close(fd); });
  own_sockets::remove(fd);
  return static_cast<int>(call(SYS_close, fd));
}

int set_option(int fd, int level, int name, int value) {
  return set_option(fd, level, name, &value, sizeof value);
}

int set_option(int fd, int level, int name, const void* value, socklen_t bytes) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation(
        [&](auto& kernel) { return kernel.set_option(fd, level, name, value, bytes); });
  return static_cast<int>(call(SYS_setsockopt, fd, level, name, value, bytes));
}

int get_option(int fd, int level, int name, void* value, socklen_t* bytes) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation(
        [&](auto& kernel) { return kernel.get_option(fd, level, name, value, bytes); });
  return static_cast<int>(call(SYS_getsockopt, fd, level, name, value, bytes));
}

int local_address(int fd, sockaddr_storage* address) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.local_address(fd, address); });
  socklen_t bytes = sizeof *address;
  return static_cast<int>(call(SYS_getsockname, fd, address, &bytes));
}

int peer_address(int fd, sockaddr_storage* address) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.peer_address(fd, address); });
  socklen_t bytes = sizeof *address;
  return static_cast<int>(call(SYS_getpeername, fd, address, &bytes));
}

// MSG_NOSIGNAL: a broken connection must not kill the program by SIGPIPE.
std::ptrdiff_t send(int fd, std::span<const iovec> pieces) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.send(fd, pieces); });
  constexpr int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  note_sending();
  // The usual case of small messages; saves the kernel from copying the list of pieces.
  if (pieces.size() == 1) {
    const iovec& piece = pieces.front();
    return call(SYS_sendto, fd, piece.iov_base, piece.iov_len, flags, nullptr, 0);
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return call(SYS_sendmsg, fd, &message, flags);
}

namespace {

// The usual case when polling; saves the kernel from copying the list of pieces.
long receive_one(int fd, const iovec& piece) {
  return call(SYS_recvfrom, fd, piece.iov_base, piece.iov_len, MSG_DONTWAIT, nullptr, nullptr);
}

long receive_several(int fd, std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return call(SYS_recvmsg, fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
}

}  // namespace

std::ptrdiff_t receive(int fd, std::span<const iovec> pieces) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.receive(fd, pieces); });
  const auto got = pieces.size() == 1 ? receive_one(fd, pieces[0]) : receive_several(fd, pieces);
  note_received();
  return got;
}

std::ptrdiff_t send_message(int fd, const msghdr& message) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.send_message(fd, message); });
  note_sending();
  return call(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

std::ptrdiff_t receive_message(int fd, msghdr& message) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.receive_message(fd, message); });
  const auto got = call(SYS_recvmsg, fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  note_received();
  return got;
}

namespace {

// sendmmsg(2) or recvmmsg(2) does not exist in this sandbox.
std::atomic<bool> without_batches{false};

// Where a call cannot move several datagrams: in a simulation, and in some sandboxes.
template <typename Move>
int move_each(std::span<mmsghdr> messages, Move move) {
  int moved = 0;
  for (mmsghdr& message : messages) {
    const std::ptrdiff_t bytes = move(message.msg_hdr);
    if (bytes < 0) return moved > 0 ? moved : static_cast<int>(bytes);
    message.msg_len = static_cast<unsigned>(bytes);
    ++moved;
  }
  return moved;
}

bool moves_batches(int fd) {
  return !SimulatedKernel::owns(fd) && !without_batches.load(std::memory_order_relaxed);
}

// EPERM may also be a firewall's answer to the first datagram, so it counts for this call only.
bool is_refusal(std::ptrdiff_t result) {
  if (result == -ENOSYS) without_batches = true;
  return result == -ENOSYS || result == -EPERM;
}

}  // namespace

int send_messages(int fd, std::span<mmsghdr> messages) {
  if (moves_batches(fd)) [[likely]] {
    note_sending();
    const auto sent =
        call(SYS_sendmmsg, fd, messages.data(), messages.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!is_refusal(sent)) return static_cast<int>(sent);
  }
  return move_each(messages, [=](msghdr& message) { return send_message(fd, message); });
}

int receive_messages(int fd, std::span<mmsghdr> messages) {
  if (moves_batches(fd)) [[likely]] {
    const auto got = call(SYS_recvmmsg, fd, messages.data(), messages.size(),
                          MSG_DONTWAIT | MSG_CMSG_CLOEXEC, nullptr);
    note_received();
    if (!is_refusal(got)) return static_cast<int>(got);
  }
  return move_each(messages, [=](msghdr& message) { return receive_message(fd, message); });
}

// Looks at one byte without consuming it. An error other than "nothing yet" means a reset.
std::ptrdiff_t peek(int fd, void* at, std::size_t bytes) {
  return call(SYS_recvfrom, fd, at, bytes, MSG_PEEK | MSG_DONTWAIT, nullptr, nullptr);
}

bool peer_closed(int fd) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return in_simulation([&](auto& kernel) { return kernel.peer_closed(fd); });
  char byte = 0;
  const long got =
      call(SYS_recvfrom, fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT, nullptr, nullptr);
  return got == 0 || (got < 0 && got != -EAGAIN && got != -EINTR);
}

std::ptrdiff_t read(int fd, void* at, std::size_t bytes) {
  return call(SYS_read, fd, at, bytes);
}

namespace {

// True once preadv2(2) with RWF_NOWAIT was refused: an eventfd of Linux before 5.8, or a sandbox.
std::atomic<bool> without_nowait{false};

// Makes the descriptor non-blocking for the time of one read. A reader in another thread that comes
// just then gets EAGAIN and tries again: see await_token().
std::ptrdiff_t read_nowait_by_flag(int fd, void* at, std::size_t bytes) {
  static std::mutex flags_mutex;
  const std::lock_guard lock(flags_mutex);
  if (poll_readable(fd, 0) <= 0) return -EAGAIN;
  const long flags = call(SYS_fcntl, fd, F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) != 0) return read(fd, at, bytes);
  call(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK);
  const auto got = read(fd, at, bytes);
  call(SYS_fcntl, fd, F_SETFL, flags);
  return got;
}

}  // namespace

// preadv2(2) with RWF_NOWAIT, because the program controls O_NONBLOCK of event descriptors.
std::ptrdiff_t read_nowait(int fd, void* at, std::size_t bytes) {
  if (!without_nowait.load(std::memory_order_relaxed)) {
    const iovec piece{at, bytes};
    constexpr long no_offset = -1;
    const auto got = call(SYS_preadv2, fd, &piece, 1, no_offset, no_offset, RWF_NOWAIT);
    if (got >= 0 || got == -EAGAIN) return got;
    without_nowait = true;
  }
  return read_nowait_by_flag(fd, at, bytes);
}

std::ptrdiff_t write(int fd, const void* at, std::size_t bytes) {
  return call(SYS_write, fd, at, bytes);
}

int set_nice_value(int value) {
  return static_cast<int>(call(SYS_setpriority, PRIO_PROCESS, 0, value));
}

// As a semaphore each read takes one from the counter, which fits one event per read.
int event_fd(bool semaphore) {
  return own_descriptors::moved_high(
      static_cast<int>(call(SYS_eventfd2, 0, EFD_CLOEXEC | (semaphore ? EFD_SEMAPHORE : 0))));
}

namespace {

// The program waits, so the simulation goes on.
int await_simulated_token(SimulatedKernel& kernel, int fd) {
  std::uint64_t one = 0;
  while (true) {
    const auto got = read_nowait(fd, &one, sizeof one);
    if (got != -EAGAIN) return got < 0 ? static_cast<int>(-got) : 0;
    if (nonblocking(fd)) {
      kernel.looked();
      return EAGAIN;
    }
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = kernel.poll({&entry, 1}, std::nullopt);
    kernel.end_if_killed();
    if (ready < 0) return -ready;
  }
}

}  // namespace

// Asynchronous cancellation is enabled only during the system call, as libc does it for a
// cancellation point.
int await_token(int fd) {
  if (SimulatedKernel* kernel = SimulatedKernel::current()) [[unlikely]]
    return await_simulated_token(*kernel, fd);
  std::uint64_t one = 0;
  int type = 0;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
  auto got = call(SYS_read, fd, &one, sizeof one);
  // The mode may have been read_nowait_by_flag()'s, and not the program's.
  while (got == -EAGAIN && without_nowait.load(std::memory_order_relaxed)) {
    sleep_us(100);
    if (nonblocking(fd)) break;
    got = call(SYS_read, fd, &one, sizeof one);
  }
  pthread_setcanceltype(type, nullptr);
  return got < 0 ? static_cast<int>(-got) : 0;
}

int await_ready(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns) {
  int type = 0;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
  const int ready = poll(entries, until_ns, nullptr);
  pthread_setcanceltype(type, nullptr);
  return ready < 0 ? -ready : 0;
}

// Without a timeout, so that the kernel starts again after a signal handler with SA_RESTART, as for
// read(2): signal(7).
int await_wake(const void* word, std::uint32_t value) {
  int type = 0;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
  const auto woken = call(SYS_futex, word, FUTEX_WAIT, value, nullptr, nullptr, 0);
  pthread_setcanceltype(type, nullptr);
  return woken < 0 ? static_cast<int>(-woken) : 0;
}

bool wake_sleeper(const void* word) {
  return call(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0) > 0;
}

// SIOCGIFMTU works on any socket and needs no privilege.
int interface_mtu(const char* name) {
  const Descriptor fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, name, sizeof request.ifr_name - 1);
  const long failed = call(SYS_ioctl, fd.get(), SIOCGIFMTU, &request);
  return failed < 0 ? static_cast<int>(failed) : request.ifr_mtu;
}

int unacknowledged_bytes(int fd) {
  int bytes = 0;
  const long failed = call(SYS_ioctl, fd, SIOCOUTQ, &bytes);
  return failed < 0 ? static_cast<int>(failed) : bytes;
}

// FIONBIO (ioctl(2)) changes this flag alone, so the others need not be read first.
int set_nonblocking(int fd) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return 0;
  int on = 1;
  return static_cast<int>(call(SYS_ioctl, fd, FIONBIO, &on));
}

bool nonblocking(int fd) {
  if (SimulatedKernel::owns(fd)) [[unlikely]]
    return true;
  const long flags = call(SYS_fcntl, fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

int poll_readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  const timespec limit = timespec_of(std::chrono::milliseconds(timeout_ms));
  return static_cast<int>(
      // 8 is the size of the kernel's signal set.
      call(SYS_ppoll, &entry, 1, timeout_ms < 0 ? nullptr : &limit, nullptr, 8));
}

// The deadline is absolute and the timeout relative, so it is computed here, directly before the
// call.
int poll(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns, const sigset_t* mask) {
  if (SimulatedKernel* kernel = SimulatedKernel::current()) [[unlikely]]
    return kernel->poll(entries, until_ns);
  constexpr std::size_t mask_bytes = 8;
  timespec limit{};
  if (until_ns) {
    const std::uint64_t now = now_ns();
    limit = timespec_of(std::chrono::nanoseconds(*until_ns > now ? *until_ns - now : 0));
  }
  return static_cast<int>(call(SYS_ppoll, entries.data(), entries.size(),
                               until_ns ? &limit : nullptr, mask, mask_bytes));
}

void yield() {
  call(SYS_sched_yield);
}

void sleep_us(unsigned us) {
  const timespec length = timespec_of(std::chrono::microseconds(us));
  call(SYS_nanosleep, &length, nullptr);
}

// The soft limit: it is what open(2) and accept(2) fail by.
std::size_t descriptor_limit() {
  rlimit64 limit{};
  constexpr long own = 0;
  if (call(SYS_prlimit64, own, RLIMIT_NOFILE, nullptr, &limit) < 0) return SIZE_MAX;
  return static_cast<std::size_t>(std::min<std::uint64_t>(limit.rlim_cur, SIZE_MAX));
}

// A system call in the first call of a thread, and of one that has called fork(2) in its child.
int thread_id() {
  struct Known {
    std::uint64_t process = 0;
    int number = 0;
  };
  constinit static thread_local Known known;
  if (const std::uint64_t process = fork_mark(); known.process != process) {
    known = {process, static_cast<int>(call(SYS_gettid))};
  }
  return known.number;
}

// Signal 0 checks for existence only.
bool is_alive(int thread_id) {
  return call(SYS_tgkill, call(SYS_getpid), thread_id, 0) == 0;
}

std::uint64_t now_ns() {
  return read_clock(CLOCK_MONOTONIC);
}

std::uint64_t tick_ns() {
  return read_clock(CLOCK_MONOTONIC_COARSE);
}

}  // namespace weft::device::sys
