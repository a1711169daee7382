#include "check/registered_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

namespace weft::check {

template <typename Element>
Element* RegisteredPages::map_zeros(std::size_t count) {
  void* const memory = mmap(nullptr, count * sizeof(Element), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Element*>(memory);
}

void RegisteredPages::add(const MemoryRange& range) {
  change(range, true);
}

void RegisteredPages::remove(const MemoryRange& range) {
  change(range, false);
}

void RegisteredPages::change(const MemoryRange& range, bool adds) {
  if (range.bytes == 0) return;
  Part* all = parts_.load(std::memory_order_relaxed);
  if (!all) {
    all = map_zeros<Part>(parts);
    parts_.store(all, std::memory_order_release);
  }
  if (!all) return;
  const std::uint64_t first = range.first >> page_bits;
  const std::uint64_t last = (range.first + range.bytes - 1) >> page_bits;
  for (std::uint64_t page = first; page <= last;) {
    const std::uint64_t number = page / pages_per_part;
    if (number >= parts) return;
    const std::uint64_t end = std::min(last, (number + 1) * pages_per_part - 1);
    Part& part = all[number];
    const bool is_whole = end - page + 1 == pages_per_part;
    if (is_whole || !change_pages(part, page % pages_per_part, end % pages_per_part, adds)) {
      part.whole.fetch_add(adds ? 1U : ~0U, std::memory_order_relaxed);
    }
    page = end + 1;
  }
}

// False if there is no memory for the counts.
bool RegisteredPages::change_pages(Part& part, std::size_t first, std::size_t last, bool adds) {
  constexpr auto most = std::numeric_limits<std::uint16_t>::max();
  Count* pages = part.pages.load(std::memory_order_relaxed);
  if (!pages) {
    pages = map_zeros<Count>(pages_per_part);
    part.pages.store(pages, std::memory_order_release);
  }
  if (!pages) return false;
  for (std::size_t page = first; page <= last; ++page) {
    const std::uint16_t count = pages[page].load(std::memory_order_relaxed);
    if (count == most || (count == 0 && !adds)) continue;
    const auto next = static_cast<std::uint16_t>(adds ? count + 1 : count - 1);
    pages[page].store(next, std::memory_order_relaxed);
  }
  return true;
}

void RegisteredPages::clear() {
  Part* const all = parts_.exchange(nullptr, std::memory_order_relaxed);
  if (!all) return;
  for (std::uint64_t number = 0; number < parts; ++number) {
    Count* const pages = all[number].pages.load(std::memory_order_relaxed);
    if (pages) munmap(static_cast<void*>(pages), pages_per_part * sizeof(Count));
  }
  munmap(static_cast<void*>(all), parts * sizeof(Part));
}

bool RegisteredPages::any(const MemoryRange& range) const {
  const Part* const all = parts_.load(std::memory_order_acquire);
  if (!all || range.bytes == 0) return false;
  const std::uint64_t last = (range.first + range.bytes - 1) >> page_bits;
  for (std::uint64_t page = range.first >> page_bits; page <= last;) {
    const std::uint64_t number = page / pages_per_part;
    if (number >= parts) return false;
    const std::uint64_t end = std::min(last, (number + 1) * pages_per_part - 1);
    const Part& part = all[number];
    if (part.whole.load(std::memory_order_relaxed) != 0) return true;
    const Count* const pages = part.pages.load(std::memory_order_acquire);
    for (; pages && page <= end; ++page) {
      if (pages[page % pages_per_part].load(std::memory_order_relaxed) != 0) return true;
    }
    page = end + 1;
  }
  return false;
}

}  // namespace weft::check
