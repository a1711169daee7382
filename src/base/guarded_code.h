// The instructions of guarded_memory.h and checked_store.h, which fault_handler.cc recognises. Only
// these three files and their test include this one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/crc32c_lanes.h"
#include "base/crc32c_state.h"

#if defined(__x86_64__) && defined(__LP64__) || defined(__aarch64__)
#define WEFT_GUARDED_CODE 1
#if defined(__x86_64__)
#define WEFT_GUARDED_FOLD 1
#endif

#if defined(__x86_64__) && defined(__LP64__) && __has_include(<sys/rseq.h>)
#define WEFT_CHECKED_STORE 1
#endif

extern "C" {

// True; or false after a fault, from weft_guarded_fault.
bool weft_guarded_copy(void* to, const void* from, std::size_t bytes);
#if defined(WEFT_GUARDED_FOLD)
// `bytes`: a multiple of the block of a fold, and not 0. Only where the processor has VPCLMULQDQ
// and AVX-512.
bool weft_guarded_copy_fold_avx512(void* to, const void* from, std::size_t bytes,
                                   weft::Crc32cFold* fold);
// `bytes`: a multiple of the block of `lanes`, and not 0. Adds as many bytes at `summed` to the
// lanes. They may be those that were copied a block before. Only where crc32c_lanes::usable().
bool weft_guarded_copy_lanes(void* to, const void* from, std::size_t bytes, const void* summed,
                             weft::Crc32cLanes* lanes);
#endif
bool weft_guarded_fetch_add(void* at, std::uint64_t* operand_then_original);
bool weft_guarded_exchange(void* at, std::uint64_t* operand_then_original);
bool weft_guarded_compare_exchange(void* at, std::uint64_t* expected_then_original,
                                   std::uint64_t desired);

// The code of the functions above is [weft_guarded_begin, weft_guarded_fault). None of them changes
// the stack, so that a fault anywhere in them continues at weft_guarded_fault, which returns 0.
extern const char weft_guarded_begin[];
extern const char weft_guarded_fault[];
#if defined(WEFT_CHECKED_STORE)
// Where the kernel lets a thread continue that a signal interrupts within a checked store, and
// where the store returns Stored::fault.
extern const char weft_checked_interrupted[];
extern const char weft_checked_fault[];
extern const char weft_checked_interrupted_wide[];  // with registers of 32 bytes in use
extern const char weft_checked_fault_wide[];
#endif
}
#endif

namespace weft {

enum class FaultState : std::uint8_t { caught, uncaught };

// Changes when the state of a thread may have changed. 0: no handler is installed, and no thread
// asks. A variable, since each access reads it.
extern constinit std::atomic<std::uint32_t> fault_generation;
// Asks the kernel about the calling thread.
[[nodiscard]] FaultState ask_fault_state();

}  // namespace weft
