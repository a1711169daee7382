// How long this process waits for copies that another one does not end.
//
// A copy that lasts is revoked, and then its thread ends it, is seen to be stopped, or stands still
// for another reason: it waits for a page, or its process breaks the rules. That is waited for, but
// not once for each of the connections to a process: they share what this object has to give.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace weft::device {

// Thread-safe. Times are of sys::now_ns().
class Patience {
 public:
  // Of one wait, whatever there was before. Longer than nearly every copy takes.
  static constexpr std::uint64_t least_ns = 20'000'000;
  // Of the parts of all waits that are longer than that.
  static constexpr std::uint64_t longest_ns = 5'000'000'000;
  // After this time without a wait all of it is there again.
  static constexpr std::uint64_t restored_ns = 60'000'000'000;

  // How long a wait may last that begins now.
  [[nodiscard]] std::uint64_t limit_ns(std::uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    restore(now_ns);
    return least_ns + (longest_ns - spent_ns_);
  }
  // A wait has lasted so long.
  void spend(std::uint64_t waited_ns, std::uint64_t now_ns) {
    if (waited_ns <= least_ns) return;
    const std::lock_guard lock(mutex_);
    restore(now_ns);
    spent_ns_ += std::min(waited_ns - least_ns, longest_ns - spent_ns_);
  }

 private:
  void restore(std::uint64_t now_ns) {
    constexpr std::uint64_t slower = restored_ns / longest_ns;
    const std::uint64_t since_ns = now_ns - std::min(now_ns, last_ns_);
    spent_ns_ -= std::min(spent_ns_, since_ns / slower);
    last_ns_ = std::max(last_ns_, now_ns);
  }

  std::mutex mutex_;
  std::uint64_t spent_ns_ = 0;  // of longest_ns, at last_ns_
  std::uint64_t last_ns_ = 0;
};

}  // namespace weft::device
