// Objects that several owners share, each of them once, in a list that can be indexed. Adding and
// removing take the same time however many there are.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft {

// Not thread-safe. A removed object's place is taken by the last one, so the order is that of
// adding only until something is removed.
template <class T>
class SharedSet {
 public:
  // False: it is there already.
  bool add(std::shared_ptr<T> object) {
    // First, because it may throw, and the two members must agree.
    if (objects_.size() == objects_.capacity()) objects_.reserve(2 * objects_.size() + 1);
    if (!places_.try_emplace(object.get(), objects_.size()).second) return false;
    objects_.push_back(std::move(object));
    return true;
  }

  // Returns the set's reference, so that the caller decides when the object may be destroyed. Null
  // if it is not there.
  std::shared_ptr<T> remove(const T* object) {
    const auto found = places_.find(object);
    if (found == places_.end()) return nullptr;
    const std::size_t place = found->second;
    places_.erase(found);
    std::shared_ptr<T> removed = std::move(objects_[place]);
    if (place + 1 != objects_.size()) {
      objects_[place] = std::move(objects_.back());
      places_[objects_[place].get()] = place;
    }
    objects_.pop_back();
    return removed;
  }

  [[nodiscard]] bool empty() const { return objects_.empty(); }
  [[nodiscard]] std::size_t size() const { return objects_.size(); }
  [[nodiscard]] const std::shared_ptr<T>& operator[](std::size_t place) const {
    return objects_[place];
  }
  [[nodiscard]] auto begin() const { return objects_.begin(); }
  [[nodiscard]] auto end() const { return objects_.end(); }
  [[nodiscard]] const std::vector<std::shared_ptr<T>>& objects() const { return objects_; }

 private:
  std::vector<std::shared_ptr<T>> objects_;
  std::unordered_map<const T*, std::size_t> places_;
};

}  // namespace weft
