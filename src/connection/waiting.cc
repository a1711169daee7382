#include "connection/waiting.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "weft/error.hpp"

namespace weft::connection::detail {

EventFlag::EventFlag() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) throw Error(errno, "cannot make an event descriptor");
}

EventFlag::~EventFlag() {
  close(fd_);
}

void EventFlag::raise() noexcept {
  if (raised_.exchange(true)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
}

Waiter::Waiter(Deadline deadline, std::stop_token stop)
    : deadline_(deadline), stop_(std::move(stop)) {
  if (!stop_.stop_possible()) return;
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw Error(errno, "cannot wait so that it can be stopped");
  callback_.emplace(stop_, Wake{wake_});
}

Waiter::~Waiter() {
  callback_.reset();
  if (wake_ >= 0) close(wake_);
}

void Waiter::Wake::operator()() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(fd, &one, sizeof one);
}

Woken Waiter::wait(std::initializer_list<int> fds) {
  return wait_for(fds, -1);
}

Woken Waiter::wait_briefly(int fd, int milliseconds) {
  return wait_for({fd}, milliseconds);
}

Woken Waiter::wait_for(std::initializer_list<int> fds, int milliseconds) {
  std::array<pollfd, 4> entries;
  std::size_t count = 0;
  for (const int fd : fds) entries[count++] = {fd, POLLIN, 0};
  if (wake_ >= 0) entries[count++] = {wake_, POLLIN, 0};
  while (true) {
    if (stop_.stop_requested()) return Woken::stopped;
    const int left = deadline_.poll_timeout_ms();
    const bool brief = milliseconds >= 0 && (left < 0 || milliseconds < left);
    const int ready = poll(entries.data(), count, brief ? milliseconds : left);
    if (ready < 0 && errno != EINTR) throw Error(errno, "cannot wait for an event");
    if (stop_.stop_requested()) return Woken::stopped;
    if (ready > 0 || (ready == 0 && brief)) return Woken::ready;
    if (deadline_.passed()) return Woken::late;
  }
}

}  // namespace weft::connection::detail
