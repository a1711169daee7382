// A set of descriptors of this process.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft {

// A bit for each number. Thread-safe without a lock, which the child of fork(2) could find held for
// ever, and which a signal handler must not take. All bytes zero is the empty set.
class DescriptorBits {
 public:
  // Numbers beyond the most that Linux allows by default (fs.nr_open in proc(5)) are never in it.
  void set(int fd) {
    if (!is_number(fd)) return;
    const auto number = static_cast<std::size_t>(fd);
    words_[number / bits] |= std::uint64_t{1} << number % bits;
    std::size_t used = used_words_;
    while (used <= number / bits && !used_words_.compare_exchange_weak(used, number / bits + 1)) {
    }
  }

  void reset(int fd) {
    if (!is_number(fd)) return;
    const auto number = static_cast<std::size_t>(fd);
    const std::uint64_t mask = std::uint64_t{1} << number % bits;
    auto& word = words_[number / bits];
    if (word & mask) word &= ~mask;
  }

  [[nodiscard]] bool test(int fd) const {
    if (!is_number(fd)) return false;
    const auto number = static_cast<std::size_t>(fd);
    return (words_[number / bits] >> number % bits & 1) != 0;
  }

  // The least of `first` to `last` that is in the set; -1 if there is none.
  [[nodiscard]] int first_in(std::size_t first, std::size_t last) const {
    const std::size_t end = std::min(last, most - 1) + 1;
    for (std::size_t number = first; number < std::min(end, used_words_ * bits);) {
      const std::uint64_t left = words_[number / bits] >> number % bits;
      if (left == 0) {
        number += bits - number % bits;
        continue;
      }
      number += static_cast<std::size_t>(std::countr_zero(left));
      return number < end ? static_cast<int>(number) : -1;
    }
    return -1;
  }

  // Empties the set and calls `take` with each number that was in it.
  template <typename Take>
  void take_all(Take take) {
    for (std::size_t index = 0; index < used_words_; ++index) {
      for (std::uint64_t left = words_[index].exchange(0); left != 0; left &= left - 1) {
        take(static_cast<int>(index * bits) + std::countr_zero(left));
      }
    }
  }

 private:
  static constexpr std::size_t bits = 64;
  static constexpr std::size_t most = 1 << 20;

  static bool is_number(int fd) { return fd >= 0 && static_cast<std::size_t>(fd) < most; }

  // All words from here on are zero, so that few of them are read.
  std::atomic<std::size_t> used_words_{0};
  std::array<std::atomic<std::uint64_t>, most / bits> words_{};
};

}  // namespace weft
