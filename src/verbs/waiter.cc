#include "verbs/waiter.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "provider/shared.h"
#include "weft/error.hpp"

namespace weft::verbs::detail {

EventFlag::EventFlag() {
  if (!event_.valid()) throw Error(errno, "cannot make an event descriptor");
}

// May run in a stop callback on any thread.
void EventFlag::raise() noexcept {
  if (!raised_.exchange(true)) event_.signal();
}

// Reads the descriptor before it resets `raised_`: a raise() in between writes nothing, and its
// state is read by the caller after this. Reads also if nothing is raised, because the write of an
// earlier raise() may be late.
void EventFlag::lower() noexcept {
  event_.drain();
  raised_ = false;
}

void Timer::set(std::chrono::nanoseconds from_now) {
  if (fd_ < 0) {
    // Two threads may set a timer for the first time at once.
    const std::lock_guard lock(making_);
    if (!made_) made_.emplace();
    if (!made_->valid()) {
      made_.reset();
      throw Error(errno, "cannot make a timer");
    }
    fd_ = made_->get();
  }
  made_->set(steady_now() + std::max(from_now, std::chrono::nanoseconds(0)));
}

// A nested epoll(7) descriptor lets an executor watch several descriptors as one.
DescriptorSet::DescriptorSet() {
  if (!set_.valid()) throw Error(errno, "cannot make a descriptor to wait for others");
}

void DescriptorSet::add(int fd) {
  constexpr std::uint64_t no_token = 0;
  const int result = set_.add(fd, EPOLLIN, no_token);
  if (result < 0) throw Error(-result, "cannot watch a descriptor");
}

void DescriptorSet::remove(int fd) noexcept {
  set_.remove(fd);
}

void check_woken(Woken woken, const std::string& what, const std::string& peer) {
  if (woken == Woken::ready) return;
  throw Error(woken == Woken::timed_out ? ETIMEDOUT : ECANCELED, "cannot " + what,
              {.object = peer.empty() ? "" : "connection", .peer = peer});
}

// Creates a descriptor only if a stop is possible: most waits need none.
StopFlag::StopFlag(std::stop_token stop) : stop_(std::move(stop)) {
  if (!stop_.stop_possible()) return;
  flag_.emplace();
  callback_.emplace(stop_, Raise{&*flag_});
}

// Tests the condition before the first wait, so a passed deadline still takes what is ready.
Woken Waiter::until(Condition& condition) {
  while (!condition.holds()) {
    const Woken woken = until_readable(condition.descriptors());
    if (woken != Woken::ready) return woken;
  }
  return Woken::ready;
}

// Checks the stop before and after the wait: a stop request has priority over readable descriptors,
// and the deadline has the lowest priority, so that a passed deadline still finds what is ready.
Woken Waiter::until_readable(const Descriptors& descriptors) {
  std::array<pollfd, Descriptors::most + 1> entries;
  std::size_t count = 0;
  for (const int fd : descriptors.all()) entries[count++] = {fd, POLLIN, 0};
  if (const auto fd = stop_.fd()) entries[count++] = {*fd, POLLIN, 0};
  while (true) {
    if (stop_.requested()) return Woken::stopped;
    const int ready = provider::wait(std::span(entries).first(count), deadline_.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) throw Error(errno, "cannot wait for an event");
    if (stop_.requested()) return Woken::stopped;
    if (ready > 0) return Woken::ready;
    if (deadline_.passed()) return Woken::timed_out;
  }
}

}  // namespace weft::verbs::detail
