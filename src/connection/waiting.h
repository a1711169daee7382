// Waiting for descriptors until a deadline, or until somebody requests a stop.
#pragma once

#include <atomic>
#include <initializer_list>
#include <optional>
#include <stop_token>

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

enum class Woken { ready, late, stopped };

class Waiter {
 public:
  Waiter(Deadline deadline, std::stop_token stop);
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Until one of them is readable. Goes on after signals. Throws Error where poll(2) fails.
  [[nodiscard]] Woken wait(std::initializer_list<int> fds);
  // The same, but not for longer than that many milliseconds: then also `ready`.
  [[nodiscard]] Woken wait_briefly(int fd, int milliseconds);

 private:
  struct Wake {
    int fd;
    void operator()() const noexcept;
  };
  [[nodiscard]] Woken wait_for(std::initializer_list<int> fds, int milliseconds);

  Deadline deadline_;
  std::stop_token stop_;
  int wake_ = -1;
  std::optional<std::stop_callback<Wake>> callback_;
};

}  // namespace weft::connection::detail
