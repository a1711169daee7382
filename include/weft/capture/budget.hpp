// A common limit on memory that many small holders share.
#pragma once

#include <cstddef>

namespace weft::capture {

class Budget {
 public:
  explicit Budget(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // False: there is not as much left, and nothing was taken.
  [[nodiscard]] bool take(std::size_t bytes) {
    if (bytes > limit_bytes_ - used_bytes_) return false;
    used_bytes_ += bytes;
    return true;
  }
  // Not more than was taken.
  void give_back(std::size_t bytes) { used_bytes_ -= bytes; }
  [[nodiscard]] std::size_t used_bytes() const { return used_bytes_; }

 private:
  std::size_t limit_bytes_;
  std::size_t used_bytes_ = 0;
};

}  // namespace weft::capture
