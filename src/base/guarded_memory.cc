#include "base/guarded_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/crc32c_state.h"
#include "base/guarded_code.h"
#include "base/guarded_crc.h"
#include "base/system_call.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__)
extern "C" {
void __tsan_read_range(void* at, unsigned long bytes);
void __tsan_write_range(void* at, unsigned long bytes);
}
#endif

namespace weft {
namespace {

// The generations for which this thread knows its state.
struct ThreadState {
  std::uint32_t caught = 0;  // plain accesses are safe
  std::uint32_t uncaught = 0;
};

// constinit: an access needs no check whether the variable is initialized.
constinit thread_local ThreadState state;

[[nodiscard]] bool check_state(std::uint32_t generation) {
  // The kernel is asked once in each generation.
  if (state.uncaught == generation) return false;
  const bool caught = ask_fault_state() == FaultState::caught;
  (caught ? state.caught : state.uncaught) = generation;
  return caught;
}

// Whether this thread knows that its faults are caught.
[[nodiscard]] inline bool is_caught() {
  // Before a handler is installed, both are 0. Relaxed: a thread that sees a new generation late
  // only checks later.
  return state.caught == fault_generation.load(std::memory_order_relaxed);
}

// The same, after asking the kernel in a new generation.
[[nodiscard]] bool is_caught_after_all() {
  return is_caught() || check_state(fault_generation.load(std::memory_order_relaxed));
}

// Sanitizers do not see what assembly accesses.
inline void show_sanitizers([[maybe_unused]] void* to, [[maybe_unused]] const void* from,
                            [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  if (__asan_region_is_poisoned(to, bytes) != nullptr ||
      __asan_region_is_poisoned(const_cast<void*>(from), bytes) != nullptr) {
    std::memcpy(to, from, bytes);  // reports it
  }
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_read_range(const_cast<void*>(from), bytes);
  __tsan_write_range(to, bytes);
#endif
}

inline void show_sanitizers_a_load([[maybe_unused]] const void* from,
                                   [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  if (void* const poisoned = __asan_region_is_poisoned(const_cast<void*>(from), bytes)) {
    [[maybe_unused]] const auto reported = *static_cast<const volatile std::byte*>(poisoned);
  }
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_read_range(const_cast<void*>(from), bytes);
#endif
}

bool plain_copy(void* to, const void* from, std::size_t bytes) {
  show_sanitizers(to, from, bytes);
#if defined(WEFT_GUARDED_CODE)
  return weft_guarded_copy(to, from, bytes);
#else
  std::memcpy(to, from, bytes);
  return true;
#endif
}

// A way to copy whole blocks and to add them to the state of a checksum. False: after a fault.
struct SummingCopy {
  bool (*copy)(std::byte* to, const std::byte* from, std::size_t bytes,
               std::uint32_t& crc) = nullptr;
  std::size_t block_bytes = 1;
  // Of fewer bytes a copy and their CRC take less.
  std::size_t least_bytes = 0;
};

#if defined(WEFT_GUARDED_FOLD)
bool copy_folding(std::byte* to, const std::byte* from, std::size_t bytes, std::uint32_t& crc) {
  Crc32cFold fold(crc);
  if (!weft_guarded_copy_fold_avx512(to, from, bytes, &fold)) return false;
  crc = fold.state();
  return true;
}

// The checksum is one block behind the copy, and reads what that has stored: memory of the
// application is read once.
bool copy_in_lanes(std::byte* to, const std::byte* from, std::size_t bytes, std::uint32_t& crc) {
  constexpr std::size_t block = Crc32cLanes::block_bytes;
  Crc32cLanes lanes;
  if (!weft_guarded_copy(to, from, block)) return false;
  const std::size_t rest = bytes - block;
  if (rest > 0 && !weft_guarded_copy_lanes(to + block, from + block, rest, to, &lanes)) {
    return false;
  }
  lanes.add(to + rest);
  crc = lanes.state(crc, bytes / block);
  return true;
}

// With a null pointer where the processor has none of the instructions.
SummingCopy fastest_summing_copy() {
  if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f")) {
    return {copy_folding, Crc32cFold::block_bytes, 1024};
  }
  if (crc32c_lanes::usable()) return {copy_in_lanes, Crc32cLanes::block_bytes, 4096};
  return {};
}
#else
SummingCopy fastest_summing_copy() {
  return {};
}
#endif

const SummingCopy summing_copy = fastest_summing_copy();

// Copies as many whole blocks as there are. Returns how many bytes that were; nothing is copied
// where this thread or processor needs another way.
[[nodiscard]] bool copy_summing(std::byte* to, const std::byte* from, std::size_t bytes,
                                std::uint32_t& crc, std::size_t& copied) {
  const bool sums = summing_copy.copy && bytes >= summing_copy.least_bytes && is_caught();
  copied = sums ? bytes - bytes % summing_copy.block_bytes : 0;
  if (copied == 0) return true;
  show_sanitizers(to, from, copied);
  return summing_copy.copy(to, from, copied, crc);
}

// The application's memory is the local side of `call`: the kernel accesses that as in read(2) and
// write(2), of whatever kind the memory is. Where a sandbox refuses the call there is no
// protection.
bool kernel_copy(long call, void* guarded, void* own, std::size_t bytes) {
  const iovec here{guarded, bytes};
  const iovec there{own, bytes};
  // A process needs no permission for its own memory.
  const long done = system_call(call, ::getpid(), &here, 1UL, &there, 1UL, 0UL);
  if (done == static_cast<long>(bytes)) return true;
  // A part was copied, or nothing: the rest cannot be accessed.
  if (done >= 0 || errno == EFAULT) return false;
  return call == SYS_process_vm_readv ? plain_copy(guarded, own, bytes)
                                      : plain_copy(own, guarded, bytes);
}

// Not inlined, so that the functions that are used all the time save no registers.
[[gnu::noinline]] bool load_slowly(void* to, const void* from, std::size_t bytes) {
  if (is_caught_after_all()) return plain_copy(to, from, bytes);
  return kernel_copy(SYS_process_vm_writev, const_cast<void*>(from), to, bytes);
}

[[gnu::noinline]] bool store_slowly(void* to, const void* from, std::size_t bytes) {
  if (is_caught_after_all()) return plain_copy(to, from, bytes);
  return kernel_copy(SYS_process_vm_readv, to, const_cast<void*>(from), bytes);
}

// The kernel adds 0 to a word there, which fails where it cannot be written to.
bool is_writable(void* at) {
  int unused = 0;
  const int add_nothing = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0);
  const long woken =
      system_call(SYS_futex, &unused, FUTEX_WAKE_OP_PRIVATE, 0, 0UL, at, add_nothing);
  return woken >= 0 || errno != EFAULT;
}

bool plain_atomic(void* at, const GuardedAtomic& atomic, std::uint64_t& original) {
#if defined(WEFT_GUARDED_CODE)
  switch (atomic.operation) {
    case AtomicOperation::fetch_add:
      original = atomic.operand;
      return weft_guarded_fetch_add(at, &original);
    case AtomicOperation::exchange:
      original = atomic.operand;
      return weft_guarded_exchange(at, &original);
    case AtomicOperation::compare_exchange:
      original = atomic.expected;
      return weft_guarded_compare_exchange(at, &original, atomic.operand);
  }
  return false;
#else
  std::atomic_ref<std::uint64_t> word(*static_cast<std::uint64_t*>(at));
  switch (atomic.operation) {
    case AtomicOperation::fetch_add:
      original = word.fetch_add(atomic.operand);
      break;
    case AtomicOperation::exchange:
      original = word.exchange(atomic.operand);
      break;
    case AtomicOperation::compare_exchange:
      original = atomic.expected;
      word.compare_exchange_strong(original, atomic.operand);
      break;
  }
  return true;
#endif
}

}  // namespace

bool guarded_load(void* to, const void* from, std::size_t bytes) {
  return is_caught() ? plain_copy(to, from, bytes) : load_slowly(to, from, bytes);
}

bool guarded_store(void* to, const void* from, std::size_t bytes) {
  return is_caught() ? plain_copy(to, from, bytes) : store_slowly(to, from, bytes);
}

bool may_load_directly([[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes) {
#if defined(WEFT_CHECKED_STORE)
  if (!is_caught_after_all()) return false;
  show_sanitizers_a_load(from, bytes);
  return true;
#else
  return false;
#endif
}

bool guarded_load(void* to, const void* from, std::size_t bytes, std::uint32_t& crc_state) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  std::size_t copied = 0;
  if (!copy_summing(target, source, bytes, crc_state, copied)) return false;
  if (!guarded_load(target + copied, source + copied, bytes - copied)) return false;
  crc_state = update_crc32c(crc_state, {target + copied, bytes - copied});
  return true;
}

bool guarded_atomic(void* at, const GuardedAtomic& atomic, std::uint64_t& original) {
  // Without the handler, a word that is unmapped between the check and the access is not protected.
  if (!is_caught_after_all() && !is_writable(at)) return false;
  return plain_atomic(at, atomic, original);
}

}  // namespace weft
