#include "interpose/shared_heap/page_runs.h"

#include <bit>

namespace weft::interpose {
namespace {

// Runs of one list that are tried, because some of them may be too short. Lists of longer runs
// follow, where the first one fits unless its alignment is wrong.
constexpr unsigned most_tried = 64;

std::size_t list_of(std::uint32_t pages) {
  return static_cast<std::size_t>(std::bit_width(pages)) - 1;
}

}  // namespace

std::size_t PageRuns::memory_bytes(std::uint32_t pages) {
  return std::size_t{pages} * sizeof(Page);
}

void PageRuns::begin(void* zeroed, std::uint32_t pages) {
  pages_ = static_cast<Page*>(zeroed);
  count_ = pages;
  free_.fill(none);
  add_free(0, pages, false);
}

std::uint32_t PageRuns::take(std::uint32_t pages, std::uint32_t alignment) {
  for (std::size_t list = list_of(pages); list < lists; ++list) {
    unsigned tried = 0;
    for (std::uint32_t run = free_[list]; run != none && tried < most_tried;
         run = pages_[run].next, ++tried) {
      const std::uint32_t first = take_from(run, pages, alignment);
      if (first != none) return first;
    }
  }
  return none;
}

std::uint32_t PageRuns::take_from(std::uint32_t run, std::uint32_t pages, std::uint32_t alignment) {
  const std::uint32_t end = run + pages_[run].length;
  const std::uint32_t first = (run + alignment - 1) & ~(alignment - 1);
  if (first < run || first > end || end - first < pages) return none;
  const bool dirty = pages_[run].dirty;
  remove_free(run);
  if (first > run) link(run, first - run, dirty);
  if (end > first + pages) link(first + pages, end - first - pages, dirty);
  use(first, pages, dirty);
  return first;
}

void PageRuns::use(std::uint32_t first, std::uint32_t pages, bool dirty) {
  for (std::uint32_t page = first; page < first + pages; ++page) {
    pages_[page].start = first;
    pages_[page].used = true;
  }
  pages_[first].length = pages;
  pages_[first].dirty = dirty;
  pages_[first].holds = 0;
  pages_[first].leaves = false;
  used_ += pages;
}

void PageRuns::give(std::uint32_t first, bool dirty) {
  const std::uint32_t pages = pages_[first].length;
  for (std::uint32_t page = first; page < first + pages; ++page) pages_[page].used = false;
  used_ -= pages;
  add_free(first, pages, dirty);
}

bool PageRuns::resize(std::uint32_t first, std::uint32_t pages) {
  const std::uint32_t before = pages_[first].length;
  const std::uint32_t end = first + before;
  if (pages < before) {
    pages_[first].length = pages;
    use(first + pages, before - pages, false);
    used_ -= before - pages;
    give(first + pages, true);
    return true;
  }
  const std::uint32_t more = pages - before;
  if (more == 0) return true;
  if (end == count_ || pages_[end].used || pages_[end].length < more) return false;
  const std::uint32_t free_end = end + pages_[end].length;
  const bool dirty = pages_[end].dirty;
  remove_free(end);
  if (free_end > end + more) link(end + more, free_end - end - more, dirty);
  for (std::uint32_t page = end; page < end + more; ++page) {
    pages_[page].start = first;
    pages_[page].used = true;
  }
  pages_[first].length = pages;
  pages_[first].dirty = true;
  used_ += more;
  return true;
}

std::uint32_t PageRuns::start_of(std::uint32_t page) const {
  return page < count_ && pages_[page].used ? pages_[page].start : none;
}

// Joins it with its neighbours. Clean and dirty runs stay apart, so that little has to be cleaned.
void PageRuns::add_free(std::uint32_t first, std::uint32_t pages, bool dirty) {
  if (first > 0 && !pages_[first - 1].used) {
    const std::uint32_t before = pages_[first - 1].start;
    if (pages_[before].dirty == dirty) {
      remove_free(before);
      pages += first - before;
      first = before;
    }
  }
  const std::uint32_t end = first + pages;
  if (end < count_ && !pages_[end].used && pages_[end].dirty == dirty) {
    pages += pages_[end].length;
    remove_free(end);
  }
  link(first, pages, dirty);
}

void PageRuns::link(std::uint32_t first, std::uint32_t pages, bool dirty) {
  Page& run = pages_[first];
  std::uint32_t& head = free_[list_of(pages)];
  run.length = pages;
  run.dirty = dirty;
  run.previous = none;
  run.next = head;
  if (head != none) pages_[head].previous = first;
  head = first;
  pages_[first + pages - 1].start = first;
  if (dirty) dirty_ += pages;
}

void PageRuns::remove_free(std::uint32_t first) {
  Page& run = pages_[first];
  if (run.next != none) pages_[run.next].previous = run.previous;
  if (run.previous != none) {
    pages_[run.previous].next = run.next;
  } else {
    free_[list_of(run.length)] = run.next;
  }
  if (run.dirty) dirty_ -= run.length;
}

}  // namespace weft::interpose
