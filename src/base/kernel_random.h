// Unpredictable numbers, for names that a stranger must not guess: STags, queue pair numbers, PSNs.
// They come from the kernel's generator, getrandom(2). A seeded generator of the standard library
// is no substitute: its state follows from its own output.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weft {

// Fills `out`. Never fails: where getrandom(2) is refused (a seccomp filter, a kernel before 3.17)
// it reads /dev/urandom, and where that is missing too it expands the 128 bits that the kernel
// gave this process at exec (AT_RANDOM, getauxval(3)) with ChaCha20.
void fill_random(MutableBytes out);

// One number of 32 bits, for a caller that needs one now and then.
[[nodiscard]] std::uint32_t random_word();

// Hands out numbers from blocks, so that one system call serves many of them. Not thread-safe. Two
// processes after fork() must not both go on with one object: they would give the same numbers.
class KernelRandom {
 public:
  [[nodiscard]] std::uint32_t next();
  // Uniform in [0, bound); `bound` is not 0.
  [[nodiscard]] std::uint32_t below(std::uint32_t bound);

 private:
  static constexpr std::size_t block_words = 64;  // getrandom(2) is not interrupted up to 256 bytes
  std::array<std::uint32_t, block_words> block_{};
  std::size_t left_ = 0;
};

}  // namespace weft
