#include "base/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>

namespace weft {
namespace {

using Mark = std::atomic<std::uint64_t>;

constinit Mark last{0};  // a child goes on from its parent's

// madvise(2): the page is zero in a child. Null where the kernel does not know that.
Mark* make_place() {
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (madvise(at, bytes, MADV_WIPEONFORK) == 0) return new (at) Mark(0);
  munmap(at, bytes);
  return nullptr;
}

}  // namespace

std::uint64_t fork_mark() {
  static Mark* const place = make_place();
  if (!place) return static_cast<std::uint64_t>(getpid());
  std::uint64_t mark = place->load(std::memory_order_relaxed);
  if (mark != 0) return mark;
  const std::uint64_t made = ++last;
  return place->compare_exchange_strong(mark, made) ? made : mark;
}

}  // namespace weft
