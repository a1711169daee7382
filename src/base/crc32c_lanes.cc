#include "base/crc32c_lanes.h"

#if defined(__x86_64__) && defined(__LP64__)

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstring>

// The functions below run only where usable() has been asked.
#define WEFT_LANES [[gnu::target("avx2,vpclmulqdq,pclmul,sse4.2")]]

namespace weft::crc32c_lanes {
namespace {

// A polynomial modulo that of the CRC has its bits in reverse order, as the state: the highest one
// is that of x^0.
using Polynomial = std::uint32_t;

constexpr Polynomial times_x(Polynomial a) {
  return a >> 1 ^ ((a & 1) != 0 ? 0x82F63B78 : 0);
}

constexpr Polynomial power_of_x(int exponent) {
  Polynomial power = 0x80000000;
  for (; exponent > 0; --exponent) power = times_x(power);
  return power;
}

// Multiply the two halves of each 16 bytes, to move them by `bytes` bytes: see Crc32cFold.
constexpr std::array<std::uint64_t, 2> factors_of(std::size_t bytes) {
  const int bits = static_cast<int>(8 * bytes);
  return {std::uint64_t{power_of_x(bits + 63)} << 32, std::uint64_t{power_of_x(bits - 1)} << 32};
}

constexpr Polynomial product(Polynomial a, Polynomial b) {
  Polynomial sum = 0;
  for (; a != 0; a <<= 1, b = times_x(b)) sum ^= (a & 0x80000000) != 0 ? b : 0;
  return sum;
}

// skips[i]: what multiply() needs to append 2^i words of zeros to a message, x^(64 * 2^i - 33).
constexpr auto skips = [] {
  std::array<Polynomial, 32> all{power_of_x(64 - 33)};
  for (std::size_t i = 1; i < all.size(); ++i) {
    all[i] = product(product(all[i - 1], all[i - 1]), power_of_x(33));
  }
  return all;
}();

// A block consists of four vectors for the folded lane and five words for each of the others. Both
// take about 16 cycles of a Zen 3.
constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::size_t folded_bytes = 4 * sizeof(__m256i);
constexpr std::size_t words = 5;
constexpr std::size_t block_bytes = folded_bytes + 3 * words * word_bytes;

// a * b * x^33: the product of two reversed numbers of 32 bits is moved by one, and the instruction
// multiplies by x^32.
WEFT_LANES inline Polynomial multiply(Polynomial a, Polynomial b) {
  const __m128i wide = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(a)),
                                            _mm_cvtsi32_si128(static_cast<int>(b)), 0);
  return static_cast<Polynomial>(
      _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(wide))));
}

// `count`: not 0.
WEFT_LANES Polynomial skip_of(std::size_t count) {
  Polynomial skip = skips[static_cast<std::size_t>(__builtin_ctzll(count))];
  for (std::size_t rest = count & (count - 1); rest != 0; rest &= rest - 1) {
    skip = multiply(skip, skips[static_cast<std::size_t>(__builtin_ctzll(rest))]);
  }
  return skip;
}

WEFT_LANES inline std::uint64_t add_word(std::uint64_t state, const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return _mm_crc32_u64(state, word);
}

WEFT_LANES inline std::uint64_t add_five_words(std::uint64_t state, const std::byte* at) {
  static_assert(words == 5);
  state = add_word(state, at);
  state = add_word(state, at + word_bytes);
  state = add_word(state, at + 2 * word_bytes);
  state = add_word(state, at + 3 * word_bytes);
  return add_word(state, at + 4 * word_bytes);
}

WEFT_LANES inline __m256i vector_at(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// Moves a vector to the next block, which is at `next`. See Crc32cFold for the factors.
WEFT_LANES inline __m256i folded_into(__m256i vector, __m256i factors, const std::byte* next) {
  const __m256i low = _mm256_clmulepi64_epi128(vector, factors, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(vector, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), vector_at(next));
}

WEFT_LANES inline __m256i doubled(const std::array<std::uint64_t, 2>& factors) {
  const auto low = static_cast<long long>(factors[0]);
  const auto high = static_cast<long long>(factors[1]);
  return _mm256_set_epi64x(high, low, high, low);
}

WEFT_LANES inline std::uint64_t state_of(const std::array<std::byte, folded_bytes>& folded) {
  std::uint64_t state = 0;
  for (std::size_t i = 0; i < folded.size(); i += word_bytes) {
    state = add_word(state, folded.data() + i);
  }
  return state;
}

// The folded lane. Its vectors are as if they were the last block of a message.
class Fold {
 public:
  // A state is the same as if it were added to the first four bytes, and were 0.
  WEFT_LANES Fold(std::uint32_t state, const std::byte* block)
      : first_(vector_at(block)),
        second_(vector_at(block + 32)),
        third_(vector_at(block + 64)),
        fourth_(vector_at(block + 96)) {
    const __m128i added = _mm_cvtsi32_si128(static_cast<int>(state));
    first_ = _mm256_xor_si256(first_, _mm256_zextsi128_si256(added));
  }

  WEFT_LANES explicit Fold(const Crc32cLanes& lanes)
      : first_(vector_at(lanes.folded.data())),
        second_(vector_at(lanes.folded.data() + 32)),
        third_(vector_at(lanes.folded.data() + 64)),
        fourth_(vector_at(lanes.folded.data() + 96)) {}

  WEFT_LANES void add(const std::byte* block) {
    constexpr auto factors = factors_of(folded_bytes);
    add(block, doubled(factors));
  }

  WEFT_LANES void add(const std::byte* block, __m256i factors) {
    first_ = folded_into(first_, factors, block);
    second_ = folded_into(second_, factors, block + 32);
    third_ = folded_into(third_, factors, block + 64);
    fourth_ = folded_into(fourth_, factors, block + 96);
  }

  WEFT_LANES void store(std::byte* folded) const {
    for (const __m256i& vector : {first_, second_, third_, fourth_}) {
      std::memcpy(folded, &vector, sizeof vector);
      folded += sizeof vector;
    }
  }

  [[nodiscard]] WEFT_LANES std::uint64_t state() const {
    std::array<std::byte, folded_bytes> folded;
    store(folded.data());
    return state_of(folded);
  }

 private:
  __m256i first_;
  __m256i second_;
  __m256i third_;
  __m256i fourth_;
};

}  // namespace

bool usable() {
  static const bool answer = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
                             __builtin_cpu_supports("vpclmulqdq") &&
                             __builtin_cpu_supports("sse4.2");
  return answer;
}

// The lanes lie one behind the other.
WEFT_LANES std::uint32_t update(std::uint32_t state, Bytes& bytes) {
  const std::size_t blocks = bytes.size() / block_bytes;
  const std::size_t lane_bytes = blocks * words * word_bytes;
  const std::byte* folded = bytes.data();
  const std::byte* lane = folded + blocks * folded_bytes;
  bytes = bytes.subspan(blocks * block_bytes);
  Fold fold(state, folded);
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  for (std::size_t left = blocks;;) {
    first = add_five_words(first, lane);
    second = add_five_words(second, lane + lane_bytes);
    third = add_five_words(third, lane + 2 * lane_bytes);
    if (--left == 0) break;
    lane += words * word_bytes;
    folded += folded_bytes;
    fold.add(folded);
  }
  const Polynomial skip = skip_of(blocks * words);
  std::uint64_t whole = fold.state();
  for (const std::uint64_t next : {first, second, third}) {
    whole = multiply(static_cast<Polynomial>(whole), skip) ^ next;
  }
  return static_cast<std::uint32_t>(whole);
}

}  // namespace weft::crc32c_lanes

namespace weft {
namespace {

constexpr std::size_t lane_step_bytes = 4 * crc32c_lanes::word_bytes;
static_assert(Crc32cLanes::folded_bytes / crc32c_lanes::folded_bytes ==
              Crc32cLanes::lane_bytes / lane_step_bytes);
static_assert(Crc32cLanes::block_bytes == Crc32cLanes::folded_bytes + 4 * Crc32cLanes::lane_bytes);
static_assert(offsetof(Crc32cLanes, lanes) == 128 && offsetof(Crc32cLanes, step) == 160 &&
              offsetof(Crc32cLanes, jump) == 176 && offsetof(Crc32cLanes, lane_jump) == 192);

// What multiply() needs to append zeros to a message.
constexpr crc32c_lanes::Polynomial skip_bytes(std::size_t bytes) {
  return crc32c_lanes::power_of_x(static_cast<int>(8 * bytes) - 33);
}

constexpr auto step_factors = crc32c_lanes::factors_of(crc32c_lanes::folded_bytes);
constexpr auto jump_factors = crc32c_lanes::factors_of(
    Crc32cLanes::block_bytes - Crc32cLanes::folded_bytes + crc32c_lanes::folded_bytes);
constexpr auto lane_jump_factor = skip_bytes(Crc32cLanes::block_bytes - Crc32cLanes::lane_bytes);

WEFT_LANES inline std::uint64_t add_four_words(std::uint64_t state, const std::byte* at) {
  for (std::size_t i = 0; i < lane_step_bytes; i += crc32c_lanes::word_bytes) {
    state = crc32c_lanes::add_word(state, at + i);
  }
  return state;
}

}  // namespace

Crc32cLanes::Crc32cLanes() : step(step_factors), jump(jump_factors), lane_jump(lane_jump_factor) {}

// As weft_guarded_copy_lanes, without the copy.
WEFT_LANES void Crc32cLanes::add(const std::byte* block) {
  using crc32c_lanes::Polynomial;
  crc32c_lanes::Fold fold(*this);
  auto [first, second, third, fourth] = lanes;
  for (auto* lane : {&first, &second, &third, &fourth}) {
    *lane = crc32c_lanes::multiply(static_cast<Polynomial>(*lane), lane_jump_factor);
  }
  __m256i factors = crc32c_lanes::doubled(jump);
  const std::byte* at = block + folded_bytes;
  const std::byte* const end = at;
  for (; block != end; block += crc32c_lanes::folded_bytes, at += lane_step_bytes) {
    fold.add(block, factors);
    factors = crc32c_lanes::doubled(step);
    first = add_four_words(first, at);
    second = add_four_words(second, at + lane_bytes);
    third = add_four_words(third, at + 2 * lane_bytes);
    fourth = add_four_words(fourth, at + 3 * lane_bytes);
  }
  fold.store(folded.data());
  lanes = {first, second, third, fourth};
}

WEFT_LANES std::uint32_t Crc32cLanes::state(std::uint32_t before, std::size_t blocks) const {
  using crc32c_lanes::Polynomial;
  std::uint64_t whole = crc32c_lanes::state_of(folded);
  for (const std::uint64_t lane : lanes) {
    constexpr Polynomial behind_lane = skip_bytes(lane_bytes);
    whole = crc32c_lanes::multiply(static_cast<Polynomial>(whole), behind_lane) ^ lane;
  }
  // All lanes began with 0, and a checksum is linear.
  const Polynomial skip = crc32c_lanes::skip_of(blocks * block_bytes / crc32c_lanes::word_bytes);
  return static_cast<std::uint32_t>(whole) ^ crc32c_lanes::multiply(before, skip);
}

}  // namespace weft

#else

namespace weft::crc32c_lanes {

bool usable() {
  return false;
}

std::uint32_t update(std::uint32_t state, Bytes& /*bytes*/) {
  return state;
}

}  // namespace weft::crc32c_lanes

namespace weft {

Crc32cLanes::Crc32cLanes() : step{}, jump{}, lane_jump(0) {}

void Crc32cLanes::add(const std::byte* /*block*/) {}

std::uint32_t Crc32cLanes::state(std::uint32_t before, std::size_t /*blocks*/) const {
  return before;
}

}  // namespace weft
#endif
