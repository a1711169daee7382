// Helpers of the fuzz targets. A target accepts any bytes and aborts if the code under test breaks
// a promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/bytes.h"

// The entry point of a target. libFuzzer and replay_main.cc call it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace weft::fuzz {

inline Bytes input_bytes(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

// Aborts with the place of the call unless `promise` holds. Clang 14 has no std::source_location,
// so this uses the builtins.
inline void require(bool promise, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (promise) return;
  std::fprintf(stderr, "%s:%d: a promise is broken\n", file, line);
  std::abort();
}

// Requires that a parsed value survives emit() and parse(), and that its bytes do not change again.
// They may differ from the input once, in reserved bits.
template <typename Value>
void require_stable(const Value& value, std::size_t size) {
  std::vector<std::byte> first(size);
  value.emit(first);
  const auto again = Value::parse(first);
  require(again.ok());
  require(*again == value);
  std::vector<std::byte> second(size);
  again->emit(second);
  require(first == second);
}

template <typename Value>
void require_stable_parse(Bytes bytes) {
  if (const auto value = Value::parse(bytes)) require_stable(*value, Value::header_bytes);
}

}  // namespace weft::fuzz
