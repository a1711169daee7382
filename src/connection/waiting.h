// Waiting for descriptors until a deadline, or until somebody requests a stop.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <stop_token>

#include "connection/conditions.h"
#include "weft/deadline.hpp"

namespace weft::connection::detail {

// Something that happens once; its descriptor is readable from then on.
class EventFlag {
 public:
  EventFlag();
  ~EventFlag();
  EventFlag(const EventFlag&) = delete;
  EventFlag& operator=(const EventFlag&) = delete;

  void raise() noexcept;
  [[nodiscard]] bool raised() const { return raised_.load(); }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
  std::atomic<bool> raised_{false};
};

// Readable at a time that can be changed.
class Timer {
 public:
  Timer() = default;
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Makes it where it is not there yet. Throws Error.
  void set(std::chrono::nanoseconds from_now);
  [[nodiscard]] int fd() const { return fd_; }

 private:
  std::mutex making_;
  std::atomic<int> fd_{-1};
};

// One descriptor for several: readable while one of them is.
class DescriptorSet {
 public:
  DescriptorSet();
  ~DescriptorSet();
  DescriptorSet(const DescriptorSet&) = delete;
  DescriptorSet& operator=(const DescriptorSet&) = delete;

  void add(int fd);
  void remove(int fd) noexcept;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

enum class Woken { ready, late, stopped };

// What wakes somebody when a stop is requested.
class StopFlag {
 public:
  explicit StopFlag(std::stop_token stop);
  [[nodiscard]] bool requested() const { return stop_.stop_requested(); }
  // Nothing where no stop is possible.
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

// A thread that waits.
class Waiter {
 public:
  Waiter(Deadline deadline, std::stop_token stop) : deadline_(deadline), stop_(std::move(stop)) {}

  // Until it holds. Goes on after signals. Throws Error where poll(2) fails, and what it throws.
  [[nodiscard]] Woken until(Condition& condition);

 private:
  [[nodiscard]] Woken until_readable(const Descriptors& descriptors);

  Deadline deadline_;
  StopFlag stop_;
};

}  // namespace weft::connection::detail
