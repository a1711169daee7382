// A map from connection id to T, ordered by id. It caches the last entry, so lookups cost nothing
// while the traffic stays with one connection. A reference stays valid until its entry is erased.
#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include "weft/capture/traffic.hpp"

namespace weft::capture {

template <typename T>
class ConnectionMap {
 public:
  // Creates an empty map.
  ConnectionMap() = default;
  ConnectionMap(const ConnectionMap&) = delete;
  ConnectionMap& operator=(const ConnectionMap&) = delete;

  // Returns the entry of `id`; constructs it from `arguments` if there is none.
  template <typename... Arguments>
  T& get(ConnectionId id, Arguments&&... arguments) {
    if (T* known = last(id)) return *known;
    return remember(id, entries_.try_emplace(id, std::forward<Arguments>(arguments)...).first);
  }
  // Returns nullptr if there is no entry.
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
  // Removes the entry of `id`, if there is one. References and iterators to it become invalid.
  void erase(ConnectionId id) {
    if (last_id_ == id) last_ = nullptr;
    entries_.erase(id);
  }
  // Removes all entries. All references and iterators to them become invalid.
  void clear() {
    last_ = nullptr;
    entries_.clear();
  }
  // Returns the number of entries.
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  // Returns the first position of an iteration over pairs of id and T. An iterator is valid until
  // its entry is erased.
  [[nodiscard]] auto begin() { return entries_.begin(); }
  [[nodiscard]] auto begin() const { return entries_.begin(); }
  // Returns the position after the last entry.
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
  T* last_ = nullptr;  // the entry of last_id_, or nullptr
};

}  // namespace weft::capture
