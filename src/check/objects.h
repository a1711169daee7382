// The verbs objects of the program: where each was made and destroyed, and what uses what.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/stacks.h"

namespace weft::check {

enum class Kind : std::uint8_t {
  context,
  domain,
  thread_domain,
  region,
  window,
  channel,
  completion_queue,
  shared_receive_queue,
  queue_pair,
  address_handle,
  event_channel,
  id,
};

[[nodiscard]] std::string_view name_of(Kind kind);

struct Object {
  Kind kind = Kind::context;
  const void* handle = nullptr;
  std::uint64_t number = 0;  // what the program sees, or a count of this kind
  std::string maker{};       // the function that made it
  StackId made = 0;
  StackId destroyed = 0;
  std::string destroyer{};
  bool inherited = false;  // made by the parent of this process
  bool implied = false;    // made and destroyed by a function for another object
  std::vector<const void*> uses{};
  std::uint64_t addition = 0;  // among all objects, from 1 on
};

// "queue pair 0x2a0001"
[[nodiscard]] std::string to_string(const Object& object);

// Not thread-safe, but for additions().
class Objects {
 public:
  // With number 0 the object is numbered.
  void add(Object object);
  // Null if it is not live; null if it was never destroyed.
  [[nodiscard]] const Object* find(const void* handle) const;
  [[nodiscard]] const Object* find_destroyed(const void* handle) const;
  // By a call that began after `additions` objects were added. The device has destroyed the object
  // already, so that another thread may have a new one at its address: that one is left alone.
  void destroy(const void* handle, StackId stack, const std::string& destroyer,
               std::uint64_t additions);
  // The device has freed the memory of objects that were destroyed: what is there from now on is
  // something else.
  void forget(const void* memory, std::size_t bytes);
  // How many objects were added so far.
  [[nodiscard]] std::uint64_t additions() const { return additions_; }
  // From now on the object uses this other one only; null: none.
  void set_used(const void* handle, const void* used);
  // In the child of a fork(2): all objects are the parent's.
  void inherit();
  [[nodiscard]] std::vector<Object> users_of(const void* handle) const;
  [[nodiscard]] std::vector<Object> live() const;

 private:
  std::unordered_map<const void*, Object> live_;
  std::map<std::uintptr_t, Object> destroyed_;  // by the address
  std::deque<const void*> order_;               // of destroyed_, the oldest first
  std::unordered_map<Kind, std::uint64_t> counts_;
  std::atomic<std::uint64_t> additions_{0};
};

}  // namespace weft::check
