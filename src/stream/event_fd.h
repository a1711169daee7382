// A descriptor that is readable while a flag is up.
#pragma once

namespace weft::stream::detail {

// Not thread-safe: its owner has a lock.
class EventFd {
 public:
  EventFd();  // throws Error
  ~EventFd();
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  void set(bool up) noexcept;

 private:
  int fd_;
  bool up_ = false;
};

}  // namespace weft::stream::detail
