// What fuzz targets share. A target takes any bytes and aborts where a promise is broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/bytes.h"

// The entry that libFuzzer calls, and replay_main.cc.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace weft::fuzz {

inline Bytes input_bytes(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

// The builtins, for clang 14 does not know std::source_location.
inline void require(bool promise, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (promise) return;
  std::fprintf(stderr, "%s:%d: a promise is broken\n", file, line);
  std::abort();
}

// What parses must come back from its own bytes, and these must not change any more.
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
