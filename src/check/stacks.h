// Call stacks of the program. Equal ones are stored once, so that a request needs only a number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "check/inside.h"

namespace weft::check {

// 0 stands for no stack.
using StackId = std::uint32_t;

// Return addresses, the innermost first.
using Stack = std::vector<std::uintptr_t>;

// Thread-safe.
class Stacks {
 public:
  // The stack of the calling thread. `is_new`: it is the first one like this.
  [[nodiscard]] StackId take(bool& is_new);
  // Another one, which a signal handler has taken.
  [[nodiscard]] StackId add(std::span<const std::uintptr_t> addresses);
  // The stack stays valid as long as this object.
  [[nodiscard]] const Stack& get(StackId id);
  // Around fork(2), so that the child finds complete lists.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  [[nodiscard]] StackId add(std::span<const std::uintptr_t> addresses, bool& is_new);

  InsideMutex mutex_;
  std::deque<Stack> stacks_{1};  // the first one is empty: StackId 0
  std::unordered_multimap<std::size_t, StackId> by_hash_;
};

// Whether the stack contains the frame from which the kernel's signal handlers return.
[[nodiscard]] bool is_in_signal_handler(const Stack& stack);

}  // namespace weft::check
