// A line on standard error that says how far a long file has been read; only on a terminal, and
// only after a while.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft::cli {

class Progress {
 public:
  explicit Progress(bool wanted);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Cheap: looks at the clock now and then.
  void update(std::uint64_t done, std::uint64_t all) {
    constexpr std::uint64_t step = 4 * 1024 * 1024;
    if (!wanted_ || done < next_) return;
    next_ = done + step;
    show(done, all);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void show(std::uint64_t done, std::uint64_t all);

  bool wanted_;
  bool shown_ = false;
  std::uint64_t next_ = 0;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point last_{};
};

}  // namespace weft::cli
