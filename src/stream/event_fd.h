// EventFd: a descriptor that is readable while a flag is set.
#pragma once

namespace weft::stream::detail {

// Not thread-safe: the owner's lock covers it.
class EventFd {
 public:
  EventFd();  // throws Error
  ~EventFd();
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  void set(bool readable) noexcept;

 private:
  int fd_;
  bool readable_ = false;
};

}  // namespace weft::stream::detail
