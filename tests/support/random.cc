#include "support/random.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace weft::test {

// splitmix64
std::uint64_t Random::next() {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

void Random::fill(MutableBytes out) {
  for (auto& byte : out) byte = static_cast<std::byte>(next());
}

std::vector<std::uint64_t> seeds(std::uint64_t count) {
  if (const char* chosen = std::getenv("WEFT_SEED")) return {std::strtoull(chosen, nullptr, 0)};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 1);
  return all;
}

std::string seed_trace(std::uint64_t seed) {
  std::string text = "WEFT_SEED=" + std::to_string(seed);
  if (std::getenv("WEFT_VERBOSE")) std::fprintf(stderr, "%s\n", text.c_str());
  return text;
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> made(bytes);
  Random(seed).fill(made);
  return made;
}

}  // namespace weft::test
