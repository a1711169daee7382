#include "check/stacks.h"

#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace weft::check {
namespace {

constexpr std::size_t max_frames = 48;

struct Walk {
  std::array<std::uintptr_t, max_frames> addresses;
  std::size_t count = 0;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  if (walk.count == max_frames) return _URC_END_OF_STACK;
  walk.addresses[walk.count++] = _Unwind_GetIP(context);
  return _URC_NO_REASON;
}

}  // namespace

StackId Stacks::take(bool& is_new) {
  Walk walk;
  _Unwind_Backtrace(add_frame, &walk);
  return add({walk.addresses.data(), walk.count}, is_new);
}

StackId Stacks::add(std::span<const std::uintptr_t> addresses) {
  bool is_new = false;
  return add(addresses, is_new);
}

StackId Stacks::add(std::span<const std::uintptr_t> addresses, bool& is_new) {
  constexpr std::size_t multiplier = 16777619;  // of FNV-1
  std::size_t hash = addresses.size();
  for (const std::uintptr_t address : addresses) hash = hash * multiplier + address;
  const std::lock_guard lock(mutex_);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    const Stack& stack = stacks_[known->second];
    if (std::equal(stack.begin(), stack.end(), addresses.begin(), addresses.end())) {
      is_new = false;
      return known->second;
    }
  }
  is_new = true;
  const auto id = static_cast<StackId>(stacks_.size());
  stacks_.emplace_back(addresses.begin(), addresses.end());
  by_hash_.emplace(hash, id);
  return id;
}

// Elements of a deque do not move when it grows at its end, and are never changed.
const Stack& Stacks::get(StackId id) {
  const std::lock_guard lock(mutex_);
  return stacks_[id];
}

// Compares the code at the return address, as debuggers do: the function has no public name.
bool is_in_signal_handler(const Stack& stack) {
#if defined(__x86_64__) && defined(__LP64__)
  // mov $15,%rax; syscall: rt_sigreturn
  constexpr std::array<unsigned char, 9> code{0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0, 0x0F, 0x05};
#elif defined(__aarch64__)
  // mov x8,#139; svc #0
  constexpr std::array<unsigned char, 8> code{0x68, 0x11, 0x80, 0xD2, 0x01, 0, 0, 0xD4};
#else
  constexpr std::array<unsigned char, 0> code{};
#endif
  if (code.empty()) return false;
  return std::any_of(stack.begin(), stack.end(), [&](std::uintptr_t address) {
    return address != 0 &&
           std::memcmp(reinterpret_cast<const void*>(address), code.data(), code.size()) == 0;
  });
}

}  // namespace weft::check
