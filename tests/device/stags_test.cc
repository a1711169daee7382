// A peer that was granted some STags cannot compute any other one.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "device/connect/slots.h"
#include "device/memory/memory.h"
#include "device/memory/memory_window.h"
#include "device/raw_end.h"
#include "support/recording_kernel.h"

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

void expect_unpredictable(std::size_t complexity) {
  EXPECT_NEAR(static_cast<double>(complexity), enough_bits / 2.0, 50);
}

TEST(Stags, FollowFromNoOthers) {
  MemoryTable table;
  expect_unpredictable(linear_complexity([&] { return table.random_control_stag(); }));
}

// Of each, a bit of the 24 that the table chooses.
TEST(Stags, OfRegionsFollowFromNoOthers) {
  const auto device = make_roce_device();
  RawEnd end(*device);
  std::array<std::byte, 8> memory{};
  expect_unpredictable(linear_complexity([&] {
    ibv_mr* region = end.context.register_memory(*end.domain, memory.data(), memory.size(),
                                                 reinterpret_cast<std::uint64_t>(memory.data()),
                                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    const std::uint32_t rkey = region->rkey;
    EXPECT_EQ(end.context.deregister_memory(region), 0);
    return rkey >> 8;
  }));
}

TEST(Stags, OfWindowsFollowFromNoOthers) {
  const auto device = make_roce_device();
  RawEnd end(*device);
  expect_unpredictable(linear_complexity([&] {
    ibv_mw* window = end.context.allocate_window(*end.domain, IBV_MW_TYPE_2);
    const std::uint32_t rkey = window->rkey;
    EXPECT_EQ(end.context.deallocate_window(*MemoryWindow::of(window)), 0);
    return rkey >> 8;
  }));
}

// The table rejects numbers now and then (those of control words, those that are taken), so that a
// seeded generator would pass the tests above: a sequence with gaps is not linear. But its numbers
// would not be those of the kernel.
TEST(Stags, AreWordsOfTheKernelAndNoOnesTwice) {
  const auto kernel = std::make_shared<test::RecordingKernel>();
  ASSERT_TRUE(kernel->enter());
  MemoryTable table;
  ibv_pd domain{};
  for (int i = 0; i < 1000; ++i) {
    Region region;
    MemoryWindow window(&domain, 1, IBV_MW_TYPE_2);
    ASSERT_TRUE(table.add(region));
    ASSERT_TRUE(table.add(window.region()));
    window.take_name();
    for (const std::uint32_t rkey : {region.mr.rkey, window.verbs()->rkey}) {
      EXPECT_TRUE(kernel->take(rkey, 0xFFFFFF00)) << rkey;
    }
    EXPECT_TRUE(kernel->take(table.random_control_stag(), 0x00FFFFFF));
    table.remove(region);
    table.remove(window.region());
  }
  kernel->leave();
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

// Nor does the slot of one process, which is that of its TCP port, of the slot of another one.
TEST(SlotStarts, AreDrawnOneByOne) {
  const auto device = make_roce_device();
  constexpr int processes = 200;
  constexpr std::uint32_t near = 8;
  std::set<std::uint32_t> different;
  int neighbours = 0;
  std::uint32_t last = 0;
  for (int i = 0; i < processes; ++i) {
    Slots slots(*device, [](const auto& greeting) { greeting->cancel(); });
    const std::uint32_t slot = slots.take_number() >> slot::index_bits;
    if ((slot - last + near) % slot::count <= 2 * near) ++neighbours;
    different.insert(slot);
    last = slot;
  }
  // Each of 200 is one of 17 neighbours of 1024 with a probability of 1.7 %.
  EXPECT_LT(neighbours, processes / 5);
  EXPECT_GT(different.size(), processes / 2U);
}

}  // namespace
}  // namespace weft::device
