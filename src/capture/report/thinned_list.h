// A selection of bounded size that is spread evenly over the items: at first all of them, then
// every second, every fourth and so on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::capture {

template <typename T>
class ThinnedList {
 public:
  explicit ThinnedList(std::size_t limit) : limit_(limit) {}

  void add(const T& item) {
    if (seen_++ % stride_ != 0) return;
    if (items_.size() == limit_) {
      thin();
      if ((seen_ - 1) % stride_ != 0) return;
    }
    items_.push_back(item);
  }
  [[nodiscard]] const std::vector<T>& items() const { return items_; }
  [[nodiscard]] std::uint64_t seen() const { return seen_; }

 private:
  void thin() {
    for (std::size_t i = 0; 2 * i < items_.size(); ++i) items_[i] = items_[2 * i];
    items_.resize((items_.size() + 1) / 2);
    stride_ *= 2;
  }

  std::size_t limit_;
  std::vector<T> items_;
  std::uint64_t seen_ = 0;
  std::uint64_t stride_ = 1;
};

}  // namespace weft::capture
