// Names for the addresses of a stack, from the debug information or the symbol tables of the
// loaded files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check/stacks.h"

namespace weft::check {

struct Frame {
  std::string function{};  // empty: unknown
  std::string file{};      // empty: no debug information
  int line = 0;
  std::string module{};       // the program or library
  std::uintptr_t offset = 0;  // of the address in it
};

// The frames of the program, the innermost first: functions of Weft's own libraries at the top, and
// those of the C library that called main() at the end, are left out. An address has several frames
// where functions were inlined. Slow, and thread-safe.
[[nodiscard]] std::vector<Frame> frames_of(const Stack& stack);

// Whether the innermost frame, or the one that has called the C library there, is of Weft's own
// libraries.
[[nodiscard]] bool is_from_weft(const Stack& stack);

// "function at file:line", as far as it is known.
[[nodiscard]] std::string to_string(const Frame& frame);

}  // namespace weft::check
