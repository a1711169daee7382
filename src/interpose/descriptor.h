// Descriptors of ours, out of the way of the program's.
#pragma once

#include <unistd.h>

#include <utility>

#include "interpose/next.h"

namespace weft::interpose {

// Owns one.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) next::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

// Moves it to a high number, so that programs get the low ones: select(2) knows 1024.
[[nodiscard]] Descriptor out_of_the_way(Descriptor low);
// A second one for the same file, out of the way. Throws Error.
[[nodiscard]] Descriptor copy_of(int fd);
// O_NONBLOCK, for all who have the file.
void set_blocking(int fd, bool blocks);

}  // namespace weft::interpose
