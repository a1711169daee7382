// Waiting for descriptors until a deadline or a stop request.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "base/epoll_set.h"
#include "base/event_fd.h"
#include "base/timer_fd.h"
#include "verbs/conditions.h"
#include "weft/deadline.hpp"

namespace weft::verbs::detail {

// An event whose descriptor is readable from raise() to lower(). Most events happen once and are
// never lowered. May be called from any thread.
class EventFlag {
 public:
  EventFlag();  // throws Error
  EventFlag(const EventFlag&) = delete;
  EventFlag& operator=(const EventFlag&) = delete;

  void raise() noexcept;
  // Must be called before the state is read that raise() announces, so that no event is lost.
  void lower() noexcept;
  [[nodiscard]] bool raised() const { return raised_.load(); }
  [[nodiscard]] int fd() const { return event_.get(); }

 private:
  EventFd event_;
  std::atomic<bool> raised_{false};
};

// A timer with a descriptor that is readable once the time has come.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Sets the time relative to now; creates the descriptor on the first call. Thread-safe. Throws
  // Error.
  void set(std::chrono::nanoseconds from_now);
  [[nodiscard]] int fd() const { return fd_; }

 private:
  std::mutex making_;
  std::optional<TimerFd> made_;
  std::atomic<int> fd_{-1};  // of made_
};

// An epoll(7) descriptor that is readable while one of its members is.
class DescriptorSet {
 public:
  DescriptorSet();  // throws Error
  DescriptorSet(const DescriptorSet&) = delete;
  DescriptorSet& operator=(const DescriptorSet&) = delete;

  void add(int fd);
  void remove(int fd) noexcept;
  [[nodiscard]] int fd() const { return set_.get(); }

 private:
  EpollSet set_;
};

enum class Woken { ready, timed_out, stopped };

// Throws Error(ETIMEDOUT) or Error(ECANCELED) if a wait did not end with Woken::ready. `what` names
// the operation, as in "connect to 192.0.2.1", and `peer` is for ErrorDetail.
void check_woken(Woken woken, const std::string& what, const std::string& peer = {});

// Makes a stop request visible to poll(2). Costs nothing if the token cannot request a stop.
class StopFlag {
 public:
  explicit StopFlag(std::stop_token stop);
  [[nodiscard]] bool requested() const { return stop_.stop_requested(); }
  // Nothing if no stop is possible.
  [[nodiscard]] std::optional<int> fd() const {
    return flag_ ? std::optional(flag_->fd()) : std::nullopt;
  }

 private:
  struct Raise {
    EventFlag* flag;
    void operator()() const noexcept { flag->raise(); }
  };

  std::stop_token stop_;
  std::optional<EventFlag> flag_;
  std::optional<std::stop_callback<Raise>> callback_;
};

// Lets a thread wait for conditions.
class Waiter {
 public:
  Waiter(Deadline deadline, std::stop_token stop) : deadline_(deadline), stop_(std::move(stop)) {}

  // Blocks until the condition holds. Continues after signals. Throws Error if poll(2) fails, and
  // the exceptions of the condition.
  [[nodiscard]] Woken until(Condition& condition);

 private:
  [[nodiscard]] Woken until_readable(const Descriptors& descriptors);

  Deadline deadline_;
  StopFlag stop_;
};

}  // namespace weft::verbs::detail
