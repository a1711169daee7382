// The functions that this library replaces, as the C library or the next preloaded library has
// them.
#pragma once

#include <dlfcn.h>
#include <poll.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace weft::interpose::next {

template <typename Signature>
class Function;

// Looks the function up at its first call. Has no destructor: programs call until their very end.
template <typename Result, typename... Arguments>
class Function<Result(Arguments...)> {
 public:
  constexpr explicit Function(const char* name) : name_(name) {}
  Result operator()(Arguments... arguments) const {
    auto* found = found_.load(std::memory_order_relaxed);
    if (!found) found = find();
    return found(arguments...);
  }
  // Now instead of at the first call. Where the C library comes before this one, there is none, and
  // the function is never called here.
  void look_up() const {
    found_.store(reinterpret_cast<Pointer>(dlsym(RTLD_NEXT, name_)), std::memory_order_relaxed);
  }

 private:
  using Pointer = Result (*)(Arguments...);
  Pointer find() const {
    look_up();
    auto* const found = found_.load(std::memory_order_relaxed);
    if (!found) std::abort();  // cannot be: the C library has them all
    return found;
  }

  const char* name_;
  mutable std::atomic<Pointer> found_{nullptr};
};

inline constinit Function<int(int, int, int)> socket{"socket"};
inline constinit Function<int(int, const sockaddr*, socklen_t)> bind{"bind"};
inline constinit Function<int(int, int)> listen{"listen"};
inline constinit Function<int(int, sockaddr*, socklen_t*, int)> accept4{"accept4"};
inline constinit Function<int(int, const sockaddr*, socklen_t)> connect{"connect"};
inline constinit Function<int(int, int)> shutdown{"shutdown"};
inline constinit Function<int(int, sockaddr*, socklen_t*)> getsockname{"getsockname"};
inline constinit Function<int(int, sockaddr*, socklen_t*)> getpeername{"getpeername"};
inline constinit Function<int(int, int, int, const void*, socklen_t)> setsockopt{"setsockopt"};
inline constinit Function<int(int, int, int, void*, socklen_t*)> getsockopt{"getsockopt"};
inline constinit Function<ssize_t(int, void*, size_t)> read{"read"};
inline constinit Function<ssize_t(int, const iovec*, int)> readv{"readv"};
inline constinit Function<ssize_t(int, const iovec*, int, off_t, int)> preadv2{"preadv2"};
inline constinit Function<ssize_t(int, void*, size_t, int)> recv{"recv"};
inline constinit Function<ssize_t(int, void*, size_t, int, sockaddr*, socklen_t*)> recvfrom{
    "recvfrom"};
inline constinit Function<ssize_t(int, msghdr*, int)> recvmsg{"recvmsg"};
inline constinit Function<int(int, mmsghdr*, unsigned, int, timespec*)> recvmmsg{"recvmmsg"};
inline constinit Function<ssize_t(int, const void*, size_t)> write{"write"};
inline constinit Function<ssize_t(int, const iovec*, int)> writev{"writev"};
inline constinit Function<ssize_t(int, const iovec*, int, off_t, int)> pwritev2{"pwritev2"};
inline constinit Function<ssize_t(int, const void*, size_t, int)> send{"send"};
inline constinit Function<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)>
    sendto{"sendto"};
inline constinit Function<ssize_t(int, const msghdr*, int)> sendmsg{"sendmsg"};
inline constinit Function<int(int, mmsghdr*, unsigned, int)> sendmmsg{"sendmmsg"};
inline constinit Function<ssize_t(int, int, off64_t*, size_t)> sendfile64{"sendfile64"};
inline constinit Function<ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned)> splice{"splice"};
inline constinit Function<int(int)> close{"close"};
inline constinit Function<int(unsigned, unsigned, int)> close_range{"close_range"};
inline constinit Function<void(int)> closefrom{"closefrom"};
inline constinit Function<int(int)> dup{"dup"};
inline constinit Function<int(int, int)> dup2{"dup2"};
inline constinit Function<int(int, int, int)> dup3{"dup3"};
inline constinit Function<int(int, int, void*)> fcntl{"fcntl64"};
inline constinit Function<int(int, unsigned long, void*)> ioctl{"ioctl"};
inline constinit Function<FILE*(int, const char*)> fdopen{"fdopen"};
inline constinit Function<int(FILE*)> fclose{"fclose"};
inline constinit Function<int(int, const char*, va_list)> vdprintf{"vdprintf"};
inline constinit Function<int(int, int, int, epoll_event*)> epoll_ctl{"epoll_ctl"};
inline constinit Function<int(int, fd_set*, fd_set*, fd_set*, timeval*)> select{"select"};
inline constinit Function<int(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*)>
    pselect{"pselect"};
using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                  char* const*, char* const*);
inline constinit Function<Spawn> posix_spawn{"posix_spawn"};
inline constinit Function<Spawn> posix_spawnp{"posix_spawnp"};
inline constinit Function<int(const char*, char* const*, char* const*)> execve{"execve"};
inline constinit Function<int(const char*, char* const*, char* const*)> execvpe{"execvpe"};
inline constinit Function<int(int, char* const*, char* const*)> fexecve{"fexecve"};
inline constinit Function<void(int)> exit_at_once{"_exit"};
inline constinit Function<int(pollfd*, nfds_t, int)> poll{"poll"};
inline constinit Function<int(pollfd*, nfds_t, const timespec*, const sigset_t*)> ppoll{"ppoll"};
inline constinit Function<int(int, epoll_event*, int, int)> epoll_wait{"epoll_wait"};
inline constinit Function<int(int, epoll_event*, int, int, const sigset_t*)> epoll_pwait{
    "epoll_pwait"};
inline constinit Function<int(int, epoll_event*, int, const timespec*, const sigset_t*)>
    epoll_pwait2{"epoll_pwait2"};

}  // namespace weft::interpose::next
