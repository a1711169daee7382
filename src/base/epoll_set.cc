#include "base/epoll_set.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/own_descriptors.h"
#include "base/system_call.h"

namespace weft {
namespace {

// All calls here go straight to the kernel: a preloaded library may replace the functions of the C
// library. Errors are returned as negative values, apart from errno.
int result_of(long returned) {
  return static_cast<int>(returned < 0 ? -errno : returned);
}

}  // namespace

int EpollSet::create() {
  return own_descriptors::moved_high(result_of(system_call(SYS_epoll_create1, EPOLL_CLOEXEC)));
}

int EpollSet::control(int operation, int fd, std::uint32_t events, std::uint64_t token) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  return result_of(system_call(SYS_epoll_ctl, epoll_.get(), operation, fd, &event));
}

int EpollSet::add(int fd, std::uint32_t events, std::uint64_t token) const {
  return control(EPOLL_CTL_ADD, fd, events, token);
}

int EpollSet::change(int fd, std::uint32_t events, std::uint64_t token) const {
  return control(EPOLL_CTL_MOD, fd, events, token);
}

int EpollSet::remove(int fd) const {
  // The event is ignored, but kernels before 2.6.9 refuse a null pointer (epoll_ctl(2)).
  return control(EPOLL_CTL_DEL, fd, 0, 0);
}

// epoll_pwait(2) without a mask is epoll_wait(2), which not all architectures have as a call.
std::span<const epoll_event> EpollSet::wait(std::span<epoll_event> events, int timeout_ms) const {
  // The size of the kernel's set of signals; sigset_t of the C library is larger.
  constexpr std::size_t mask_bytes = 8;
  const int ready =
      result_of(system_call(SYS_epoll_pwait, epoll_.get(), events.data(),
                            static_cast<int>(events.size()), timeout_ms, nullptr, mask_bytes));
  // An interrupted wait is one without events: the caller checks its conditions again in any case.
  return events.first(static_cast<std::size_t>(ready > 0 ? ready : 0));
}

}  // namespace weft
