// Shows on standard error how far a long file has been read. Only on a terminal, and only if
// reading takes longer than a moment.
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

  // Cheap: reads the clock only once for every 4 MiB. `all`: the size of the input, 0 if unknown.
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
