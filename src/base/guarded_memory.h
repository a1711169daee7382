// Accesses memory of the application, which may be unmapped or made read-only at any time although
// it is registered. Such an access fails instead of ending the process.
//
// Where the process catches SIGSEGV and SIGBUS with our handler (see fault_handler.h), these
// functions are ordinary loads and stores: the handler recognises their instructions, and continues
// where they return false. Otherwise the kernel copies, which is slower: see fault_handler.h.
//
// Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Copy `bytes` bytes between buffers that do not overlap. guarded_load() reads from memory of the
// application, guarded_store() writes to it. False: that memory cannot be accessed; a part of the
// bytes may be copied. Eight bytes at an address that is a multiple of eight are copied at once.
[[nodiscard]] bool guarded_load(void* to, const void* from, std::size_t bytes);
[[nodiscard]] bool guarded_store(void* to, const void* from, std::size_t bytes);

// Whether this thread may read the memory of the application by other instructions that the handler
// recognises (checked_store.h), which they end where it cannot be accessed. To be asked before each
// access.
[[nodiscard]] bool may_load_directly(const void* from, std::size_t bytes);

enum class AtomicOperation : std::uint8_t { fetch_add, exchange, compare_exchange };

struct GuardedAtomic {
  AtomicOperation operation = AtomicOperation::fetch_add;
  std::uint64_t operand = 0;   // to add, or to store
  std::uint64_t expected = 0;  // compare_exchange: stores only where this is found
};

// Executes the operation at `at`, a multiple of 8, in one step with respect to all threads.
// `original`: the value before it. False: `at` cannot be written to.
[[nodiscard]] bool guarded_atomic(void* at, const GuardedAtomic& atomic, std::uint64_t& original);

}  // namespace weft
