// A peer that was granted some STags cannot compute any other one.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/connect/slots.h"
#include "device/memory/memory.h"
#include "device/raw_end.h"

namespace weft::device {
namespace {

// The length of the shortest linear feedback shift register that gives these bits: the algorithm of
// Berlekamp and Massey, with 64 bits to a word. For n random bits it is n/2, give or take a few. A
// generator whose bits are a linear function of a state of s bits, as the Mersenne twister's are,
// never has more than s, and then every later bit follows from the first 2s.
class ShiftRegister {
 public:
  explicit ShiftRegister(std::size_t most_bits)
      : words_(most_bits / 64 + 2), now_(words_), before_(words_), seen_(words_) {
    now_[0] = before_[0] = 1;
  }

  void add(bool bit) {
    // Bit i of `seen_` is the bit that came i steps ago.
    shift(seen_, 1);
    seen_[0] |= bit ? 1U : 0U;
    ++count_;
    ++since_;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < words_; ++i) sum ^= now_[i] & seen_[i];
    if (__builtin_parityll(sum) == 0) return;  // as predicted
    const std::vector<std::uint64_t> last = now_;
    add_shifted(before_, since_);
    if (2 * length_ >= count_) return;
    length_ = count_ - length_;
    before_ = last;
    since_ = 0;
  }

  [[nodiscard]] std::size_t length() const { return length_; }

 private:
  static void shift(std::vector<std::uint64_t>& bits, unsigned by) {
    std::uint64_t carry = 0;
    for (auto& word : bits) {
      const std::uint64_t next = word >> (64 - by);
      word = word << by | carry;
      carry = next;
    }
  }
  void add_shifted(const std::vector<std::uint64_t>& bits, std::size_t by) {
    for (std::size_t i = by / 64; i < words_; ++i) {
      now_[i] ^= bits[i - by / 64] << by % 64;
      if (by % 64 != 0 && i > by / 64) now_[i] ^= bits[i - by / 64 - 1] >> (64 - by % 64);
    }
  }

  std::size_t words_;
  std::vector<std::uint64_t> now_;     // the register that gives all bits so far
  std::vector<std::uint64_t> before_;  // the one before its length last changed
  std::vector<std::uint64_t> seen_;
  std::size_t count_ = 0;
  std::size_t length_ = 0;
  std::size_t since_ = 0;  // bits since then
};

// More than twice the 19937 bits of a Mersenne twister's state.
constexpr std::size_t enough_bits = 41'000;

template <typename Draw>
std::size_t linear_complexity(Draw draw) {
  ShiftRegister shortest(enough_bits);
  for (std::size_t i = 0; i < enough_bits; ++i) shortest.add((draw() & 1) != 0);
  return shortest.length();
}

// Those of regions come from the same generator; some numbers are rejected there, which would only
// make the attack longer.
TEST(Stags, FollowFromNoOthers) {
  MemoryTable table;
  const std::size_t length = linear_complexity([&] { return table.random_control_stag(); });
  EXPECT_NEAR(static_cast<double>(length), enough_bits / 2.0, 50);
}

// One number gives no hint of the next.
TEST(SlotNumbers, AreDrawnOneByOne) {
  const auto device = make_roce_device();
  Slots slots(*device, [](const auto& greeting) { greeting->cancel(); });
  int neighbours = 0;
  std::uint32_t last = slots.take_number();
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t number = slots.take_number();
    if (number - last + 8 <= 16) ++neighbours;
    last = number;
  }
  EXPECT_LT(neighbours, 30);
}

}  // namespace
}  // namespace weft::device
