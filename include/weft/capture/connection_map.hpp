// Something for each connection that is known, in the order of their numbers. Found at once while
// the traffic stays with one connection. References stay good until their entry is erased.
#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include "weft/capture/traffic.hpp"

namespace weft::capture {

template <typename T>
class ConnectionMap {
 public:
  ConnectionMap() = default;
  ConnectionMap(const ConnectionMap&) = delete;
  ConnectionMap& operator=(const ConnectionMap&) = delete;

  // Made of `arguments` where there is none.
  template <typename... Arguments>
  T& get(ConnectionId id, Arguments&&... arguments) {
    if (T* known = last(id)) return *known;
    return remember(id, entries_.try_emplace(id, std::forward<Arguments>(arguments)...).first);
  }
  // nullptr: there is none.
  [[nodiscard]] T* find(ConnectionId id) {
    if (T* known = last(id)) return known;
    const auto found = entries_.find(id);
    return found == entries_.end() ? nullptr : &remember(id, found);
  }
  [[nodiscard]] const T* find(ConnectionId id) const {
    if (const T* known = last(id)) return known;
    const auto found = entries_.find(id);
    return found == entries_.end() ? nullptr : &found->second;
  }
  void erase(ConnectionId id) {
    if (last_id_ == id) last_ = nullptr;
    entries_.erase(id);
  }
  void clear() {
    last_ = nullptr;
    entries_.clear();
  }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  // Pairs of number and T.
  [[nodiscard]] auto begin() { return entries_.begin(); }
  [[nodiscard]] auto begin() const { return entries_.begin(); }
  [[nodiscard]] auto end() { return entries_.end(); }
  [[nodiscard]] auto end() const { return entries_.end(); }

 private:
  using Entries = std::map<ConnectionId, T>;

  [[nodiscard]] T* last(ConnectionId id) const { return last_id_ == id ? last_ : nullptr; }
  T& remember(ConnectionId id, typename Entries::iterator at) {
    last_id_ = id;
    last_ = &at->second;
    return *last_;
  }

  Entries entries_;
  ConnectionId last_id_ = 0;
  T* last_ = nullptr;  // the entry of last_id_, where it is known
};

}  // namespace weft::capture
