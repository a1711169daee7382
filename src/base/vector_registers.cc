#include "base/vector_registers.h"

namespace weft {

// On some processors every SSE instruction after ISA-L's is slow, in the kernel too: it made a half
// round trip of 4 KiB a quarter longer. Clearing the upper halves takes a nanosecond.
#if defined(__x86_64__)
namespace {

const bool has_avx = __builtin_cpu_supports("avx");

__attribute__((target("avx"))) void clear_upper_halves() {
  __builtin_ia32_vzeroupper();
}

}  // namespace

void tidy_vector_registers() {
  if (has_avx) clear_upper_halves();
}
#else
void tidy_vector_registers() {}
#endif

}  // namespace weft
