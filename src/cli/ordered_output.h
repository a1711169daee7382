// Prints what several threads have to print, part by part in their order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace weft::cli {

class OrderedOutput {
 public:
  using Write = std::function<void(std::string_view)>;
  // A part that waits for its turn keeps this much, and then waits.
  static constexpr std::size_t most_kept_bytes = 16 * 1024 * 1024;

  explicit OrderedOutput(Write write) : write_(std::move(write)) {}

  // One part, numbered from 0. Parts are made in the order of their numbers, none is left out, and
  // each is used by one thread only.
  class Part {
   public:
    // `all` must outlive this object.
    Part(OrderedOutput& all, std::uint64_t number) : all_(all), number_(number) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    // Waits until the parts before have ended, and ends this one.
    ~Part();

    // Prints the text, or keeps it until the parts before have ended.
    void write(std::string_view text);
    // Waits until the parts before have ended, and prints what was kept.
    void wait_for_turn();

   private:
    OrderedOutput& all_;
    std::uint64_t number_;
    std::string kept_;
    bool has_turn_ = false;
  };

 private:
  Write write_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::uint64_t turn_ = 0;  // the part that may print
};

}  // namespace weft::cli
