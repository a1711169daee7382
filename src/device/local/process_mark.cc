#include "device/local/process_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "base/kernel_random.h"

namespace weft::device {
namespace {

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// A place that programs, heaps, stacks and libraries do not use on 64-bit systems, drawn from 2^32
// pages. The kernel takes another one if it cannot give this.
void* random_place(std::uint64_t number) {
  if constexpr (sizeof(void*) < 8) return nullptr;
  constexpr std::uint64_t first = 0x2000'0000'0000;
  constexpr std::uint64_t range = 0x1000'0000'0000;
  const std::uint64_t offset = number % range / page_bytes() * page_bytes();
  return reinterpret_cast<void*>(first + offset);
}

}  // namespace

ProcessMark::~ProcessMark() {
  if (at_) munmap(at_, page_bytes());
}

bool ProcessMark::make() {
  if (at_) return true;
  const auto draw = [] { return (std::uint64_t{random_word()} << 32) | random_word(); };
  void* made = mmap(random_place(draw()), page_bytes(), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return false;
  at_ = static_cast<std::uint64_t*>(made);
  // A number that cannot be guessed, at an address that cannot be guessed: another program is not
  // mistaken for this one.
  *at_ = draw();
  return true;
}

ProcessMark::Name ProcessMark::name() const {
  return {.address = reinterpret_cast<std::uint64_t>(at_), .number = at_ ? *at_ : 0};
}

}  // namespace weft::device
