// Stores to a peer's memory that this process has mapped, each made only while the memory is
// granted.
//
// A look at the grant and the stores behind it form one restartable sequence (rseq(2)): when the
// kernel takes the processor from the thread within it, for another thread, a signal, SIGSTOP or a
// debugger, the thread does not continue there but returns `interrupted`, and looks again. So a
// thread that is stopped has no store under way, for however long it is stopped. This is what
// await_copy() (device/local/remote_copy.h) relies on.
//
// The callers announce the access around these calls: see MappedAccess.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// What must be so for a store. The assembly in checked_store.cc knows the layout.
struct StoreCheck {
  const void* open = nullptr;  // 32 bits, not 0
  const void* stag = nullptr;  // 32 bits, equal to the lower half of `stag_value`
  std::uint64_t stag_value = 0;
  const void* generation = nullptr;  // 64 bits
  std::uint64_t generation_value = 0;
};

enum class Stored : int {
  done = 0,
  withdrawn = 1,
  interrupted = 2,
  fault = 3,  // memory cannot be accessed: only where faults are caught, see guarded_memory.h
};

// Whether this thread can make the calls below: x86-64, with a kernel and a C library that have
// rseq(2).
[[nodiscard]] bool can_store_checked();

// Whether the processor has registers of 32 bytes (AVX).
[[nodiscard]] bool has_wide_registers();
// Stores in ascending order, each store aligned, so that the last byte becomes visible last.
// `from` is memory that does not fault, or of which may_load_directly() has been asked. `wide`
// demands has_wide_registers(). After each result but `done` a part may be stored.
[[nodiscard]] Stored checked_store(const StoreCheck& check, void* to, const void* from,
                                   std::size_t bytes, bool wide = has_wide_registers());
// Processor atomics at a multiple of 8. Nothing is changed unless the result is `done`.
[[nodiscard]] Stored checked_fetch_add(const StoreCheck& check, void* at,
                                       std::uint64_t& operand_then_original);
[[nodiscard]] Stored checked_compare_swap(const StoreCheck& check, void* at,
                                          std::uint64_t& expected_then_original,
                                          std::uint64_t desired);

}  // namespace weft
