#include "base/own_sockets.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::own_sockets {
namespace {

constexpr std::size_t bits = 64;
// Linux allows this many descriptors by default (fs.nr_open in proc(5)).
constexpr std::size_t most = 1 << 20;

// A bit for each number. No lock, which the child could find held for ever.
constinit std::array<std::atomic<std::uint64_t>, most / bits> open_numbers{};
// All words from here on are zero, so that the child reads few of them.
constinit std::atomic<std::size_t> used_words{0};

bool is_number(int fd) {
  return fd >= 0 && static_cast<std::size_t>(fd) < most;
}

}  // namespace

void add(int fd) {
  if (!is_number(fd)) return;
  const auto number = static_cast<std::size_t>(fd);
  open_numbers[number / bits] |= std::uint64_t{1} << number % bits;
  std::size_t used = used_words;
  while (used <= number / bits && !used_words.compare_exchange_weak(used, number / bits + 1)) {
  }
}

void remove(int fd) {
  if (!is_number(fd)) return;
  const auto number = static_cast<std::size_t>(fd);
  const std::uint64_t mask = std::uint64_t{1} << number % bits;
  auto& word = open_numbers[number / bits];
  if (word & mask) word &= ~mask;
}

void close_after_fork() {
  for (std::size_t index = 0; index < used_words; ++index) {
    std::uint64_t left = open_numbers[index].exchange(0);
    for (; left != 0; left &= left - 1) {
      ::syscall(SYS_close, static_cast<int>(index * bits) + std::countr_zero(left));
    }
  }
}

}  // namespace weft::own_sockets
