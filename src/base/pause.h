// Tells the processor that a thread looks at memory again and again, so that the other thread of
// the same core gets more of it.
#pragma once

namespace weft {

inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace weft
