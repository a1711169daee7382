// What the child of fork(2) may look at. Only the thread that forked exists there; another thread
// of the parent may have been changing a container at that moment, which then is half changed for
// ever.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <mutex>

namespace weft {

// In the child: calls `walk`, unless another thread held the mutex of the container at the fork.
// Then the container is left alone, and descriptors that only it knows stay open in the child.
template <typename Walk>
void walk_after_fork(std::mutex& mutex, Walk walk) {
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (lock.owns_lock()) walk();
}

// An array that grows at its end and whose elements never move, so that the child can walk it
// whatever another thread was doing. Otherwise its user locks.
template <typename Element>
class StableArray {
 public:
  [[nodiscard]] std::size_t size() const { return size_.load(std::memory_order_acquire); }

  Element& operator[](std::size_t index) const {
    const Place place = place_of(index);
    return parts_[place.part].load(std::memory_order_acquire)[place.index];
  }

  // Adds a default element at the end.
  void grow() {
    const std::size_t index = size();
    const Place place = place_of(index);
    if (place.index == 0) {
      owners_[place.part] = std::make_unique<Element[]>(first_part << place.part);
      parts_[place.part].store(owners_[place.part].get(), std::memory_order_release);
    }
    size_.store(index + 1, std::memory_order_release);
  }

 private:
  // Each part is twice as large as the one before.
  static constexpr std::size_t first_part = 64;
  static constexpr std::size_t most_parts = 32;
  struct Place {
    std::size_t part;
    std::size_t index;
  };

  static constexpr Place place_of(std::size_t index) {
    const std::size_t scaled = index / first_part + 1;
    const auto part = static_cast<std::size_t>(std::bit_width(scaled)) - 1;
    return {part, index - first_part * ((std::size_t{1} << part) - 1)};
  }

  std::array<std::unique_ptr<Element[]>, most_parts> owners_;
  std::array<std::atomic<Element*>, most_parts> parts_{};
  std::atomic<std::size_t> size_{0};
};

}  // namespace weft
