// A memory limit that many small holders share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace weft::capture {

class Budget {
 public:
  // A limit above the size of the address space is lowered to that size.
  explicit Budget(std::uint64_t limit_bytes)
      : limit_bytes_(static_cast<std::size_t>(
            std::min<std::uint64_t>(limit_bytes, std::numeric_limits<std::size_t>::max()))) {}

  // Reserves `bytes`. Returns false and reserves nothing if less than that is left.
  [[nodiscard]] bool take(std::size_t bytes) {
    if (bytes > limit_bytes_ - used_bytes_) return false;
    used_bytes_ += bytes;
    return true;
  }
  // Returns `bytes` to the budget; the caller must have reserved them before.
  void give_back(std::size_t bytes) { used_bytes_ -= bytes; }
  // Returns how many bytes are reserved now.
  [[nodiscard]] std::size_t used_bytes() const { return used_bytes_; }

 private:
  std::size_t limit_bytes_;
  std::size_t used_bytes_ = 0;
};

}  // namespace weft::capture
