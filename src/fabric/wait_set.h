// One descriptor that is readable while any of several is.
#pragma once

namespace weft::fabric {

class WaitSet {
 public:
  WaitSet();  // throws Error
  ~WaitSet();
  WaitSet(const WaitSet&) = delete;
  WaitSet& operator=(const WaitSet&) = delete;

  // A descriptor that is closed leaves by itself.
  void add(int fd);  // throws Error
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

// Whether a descriptor is readable now.
[[nodiscard]] bool is_readable(int fd);

}  // namespace weft::fabric
