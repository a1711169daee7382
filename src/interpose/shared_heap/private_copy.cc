#include "interpose/shared_heap/private_copy.h"

#include <csignal>
#include <cstdint>

#include "interpose/shared_heap/raw_calls.h"

namespace weft::interpose {
namespace {

constexpr unsigned long move_to = MREMAP_MAYMOVE | MREMAP_FIXED;

// Copies `bytes` bytes from `at` to `copy`, and moves the copy to `at`, without a use of the stack
// in between. Returns what mremap(2) returns.
#if defined(__x86_64__) && defined(__LP64__)
#define WEFT_PRIVATE_COPY 1
std::uint64_t copy_and_move(void* at, void* copy, std::size_t bytes) {
  std::uint64_t result = SYS_mremap;
  void* to = copy;
  const void* from = at;
  std::size_t count = bytes;
  register std::uint64_t flags asm("r10") = move_to;
  register void* target asm("r8") = at;
  asm volatile(
      "rep movsb\n\t"
      "movq %[copy], %%rdi\n\t"
      "movq %[bytes], %%rsi\n\t"
      "syscall"
      : "+&a"(result), "+&D"(to), "+&S"(from), "+&c"(count)
      : [copy] "r"(copy), [bytes] "d"(bytes), "r"(flags), "r"(target)
      : "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
#define WEFT_PRIVATE_COPY 1
std::uint64_t copy_and_move(void* at, void* copy, std::size_t bytes) {
  register std::uint64_t result asm("x0") = reinterpret_cast<std::uint64_t>(copy);
  register std::size_t old_bytes asm("x1") = bytes;
  register std::size_t new_bytes asm("x2") = bytes;
  register std::uint64_t flags asm("x3") = move_to;
  register void* target asm("x4") = at;
  register std::uint64_t number asm("x8") = SYS_mremap;
  const void* from = at;
  void* to = copy;
  std::size_t left = bytes;
  std::uint64_t word = 0;
  asm volatile(
      "1: ldr %[word], [%[from]], #8\n\t"
      "str %[word], [%[to]], #8\n\t"
      "subs %[left], %[left], #8\n\t"
      "b.ne 1b\n\t"
      "svc #0"
      : "+r"(result), [from] "+&r"(from), [to] "+&r"(to), [left] "+&r"(left), [word] "+&r"(word)
      : "r"(old_bytes), "r"(new_bytes), "r"(flags), "r"(target), "r"(number)
      : "cc", "memory");
  return result;
}
#else
std::uint64_t copy_and_move(void* /*at*/, void* /*copy*/, std::size_t /*bytes*/) {
  return UINT64_MAX;
}
#endif

// A handler would run on the same stack. The kernel's set of signals has 64 bits.
std::uint64_t set_blocked_signals(std::uint64_t wanted) {
  std::uint64_t before = 0;
  (void)::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &wanted, &before, sizeof before);
  return before;
}

}  // namespace

bool can_replace_by_private() {
#if defined(WEFT_PRIVATE_COPY)
  return true;
#else
  return false;
#endif
}

bool replace_by_private(void* at, std::size_t bytes) {
  if (!can_replace_by_private()) return false;
  void* const copy =
      raw::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  const std::uint64_t blocked = set_blocked_signals(UINT64_MAX);
  const std::uint64_t result = copy_and_move(at, copy, bytes);
  (void)set_blocked_signals(blocked);
  if (result == reinterpret_cast<std::uintptr_t>(at)) return true;
  raw::munmap(copy, bytes);
  return false;
}

}  // namespace weft::interpose
