#include "device/memory/can_access.h"

#include <unistd.h>

#include <cstdint>

#include "base/fault_handler.h"
#include "base/guarded_memory.h"

namespace weft::device {

// Reads a byte of each page of `memory`, or adds 0 in one step to the word that contains the byte.
bool can_access(const iovec& memory, bool for_writing) {
  // The access below may fault, so the handler must be there before.
  catch_faults();
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = reinterpret_cast<std::uintptr_t>(memory.iov_base);
  char byte = 0;
  std::uint64_t word = 0;
  for (std::uintptr_t at = from; at < from + memory.iov_len; at = (at & ~(page - 1)) + page) {
    // An aligned word never crosses into another page. Adding 0 leaves the memory as it is, also
    // where other threads write to it.
    void* const there = reinterpret_cast<void*>(at & ~(sizeof word - 1));
    const bool done = for_writing ? guarded_atomic(there, {}, word)
                                  : guarded_load(&byte, reinterpret_cast<void*>(at), 1);
    if (!done) return false;
  }
  return true;
}

}  // namespace weft::device
