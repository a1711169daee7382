// Random numbers for tests: the same numbers for a seed with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace weft::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();
  // In [0, bound); 0 where bound is 0.
  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  // In [least, most].
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + below(most - least + 1);
  }
  bool chance(std::uint64_t one_in) { return below(one_in) == 0; }
  void fill(MutableBytes out);

 private:
  std::uint64_t state_;
};

// The seeds to run a test with: 1 to `count`, or the one that WEFT_SEED names.
[[nodiscard]] std::vector<std::uint64_t> seeds(std::uint64_t count);
// "WEFT_SEED=7", for SCOPED_TRACE; with WEFT_VERBOSE it is also printed at once.
[[nodiscard]] std::string seed_trace(std::uint64_t seed);

// Bytes that identify their position: no two positions within 64 KiB have the same sequence for
// long.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed = 1);

}  // namespace weft::test
