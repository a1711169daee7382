// Owns a file descriptor and closes it.
#pragma once

#include <utility>

#include "base/own_descriptors.h"

namespace weft {

// Closes by a bare system call, so that a library which replaces close(2) never sees descriptors
// that belong to Weft alone.
struct CloseBySystemCall {
  void operator()(int fd) const noexcept;
};

// Move-only. `Closer` is called with a valid descriptor, once. As long as a descriptor is in such
// an object, it is in the account of Weft's own ones.
template <typename Closer>
class OwnedDescriptor {
 public:
  OwnedDescriptor() = default;
  explicit OwnedDescriptor(int fd) : fd_(fd) { own_descriptors::add(fd); }
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  ~OwnedDescriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  // The caller owns the descriptor from now on; -1 if there is none.
  [[nodiscard]] int release() {
    own_descriptors::remove(fd_);
    return std::exchange(fd_, -1);
  }
  void reset(int fd = -1) {
    if (fd_ >= 0) {
      own_descriptors::remove(fd_);
      Closer{}(fd_);
    }
    fd_ = fd;
    own_descriptors::add(fd);
  }

 private:
  int fd_ = -1;
};

using Descriptor = OwnedDescriptor<CloseBySystemCall>;

}  // namespace weft
