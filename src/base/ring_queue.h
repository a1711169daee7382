// RingQueue: a queue of which most have no items, or a few for a moment. It takes no memory before
// the first item, where std::deque takes about 600 bytes at once, and gives large memory back when
// it is empty.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

namespace weft {

// Not thread-safe. Items must be movable: their addresses change when the queue grows. An empty
// queue keeps `kept_bytes`, so that one which is filled and emptied again and again does not
// allocate each time.
template <typename T, std::size_t kept_bytes = 512>
class RingQueue {
 public:
  RingQueue() = default;
  ~RingQueue() { clear(); }
  RingQueue(const RingQueue&) = delete;
  RingQueue& operator=(const RingQueue&) = delete;

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t size() const { return count_; }
  // Of memory that is allocated now. For tests.
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  // The item behind `index` others, from the oldest one.
  [[nodiscard]] T& operator[](std::size_t index) { return *place(index); }
  [[nodiscard]] const T& operator[](std::size_t index) const { return *place(index); }
  [[nodiscard]] T& front() { return (*this)[0]; }
  [[nodiscard]] const T& front() const { return (*this)[0]; }

  template <typename... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    if (count_ == capacity_) grow();
    T* const made = std::construct_at(place(count_), std::forward<Arguments>(arguments)...);
    ++count_;
    return *made;
  }
  void push_back(T item) { emplace_back(std::move(item)); }

  void pop_front() {
    std::destroy_at(place(0));
    first_ = (first_ + 1) & (capacity_ - 1);
    if (--count_ == 0) shrink();
  }
  void pop_back() {
    std::destroy_at(place(count_ - 1));
    if (--count_ == 0) shrink();
  }
  // Removes an item amid others. Takes as long as there are items behind it.
  void erase(std::size_t index) {
    for (; index + 1 < count_; ++index) (*this)[index] = std::move((*this)[index + 1]);
    pop_back();
  }
  void clear() {
    while (count_ > 0) pop_back();
    release();
  }

 private:
  static constexpr std::size_t first_bytes = 64;

  [[nodiscard]] T* place(std::size_t index) const {
    return items_ + ((first_ + index) & (capacity_ - 1));
  }

  void grow() {
    constexpr std::size_t least = std::bit_floor(std::max<std::size_t>(first_bytes / sizeof(T), 1));
    const std::size_t capacity = std::max(2 * capacity_, least);
    T* const items = std::allocator<T>().allocate(capacity);
    for (std::size_t i = 0; i < count_; ++i) {
      std::construct_at(items + i, std::move(*place(i)));
      std::destroy_at(place(i));
    }
    const std::size_t count = count_;
    release();
    items_ = items;
    capacity_ = capacity;
    count_ = count;
  }
  void shrink() {
    if (capacity_ * sizeof(T) > kept_bytes) release();
  }
  // Gives the memory back, whose items are destroyed.
  void release() {
    if (items_) std::allocator<T>().deallocate(items_, capacity_);
    items_ = nullptr;
    capacity_ = first_ = count_ = 0;
  }

  T* items_ = nullptr;
  std::size_t capacity_ = 0;  // a power of two, or 0
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace weft
