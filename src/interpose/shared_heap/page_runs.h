// Divides a range of pages into runs that are used or free. It knows nothing of the memory behind
// the pages: their records are in memory of their own, which the caller gives.
//
// It allocates nothing, because it works inside of malloc(3). Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::interpose {

class PageRuns {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;

  // The size of the memory for begin().
  [[nodiscard]] static std::size_t memory_bytes(std::uint32_t pages);
  // All pages are free and clean. `zeroed`: memory of that size that contains zeros, and is used as
  // long as this object.
  void begin(void* zeroed, std::uint32_t pages);

  // Takes a run whose first page is a multiple of `alignment`, a power of two. Returns its first
  // page, or `none`. `pages` is not 0.
  [[nodiscard]] std::uint32_t take(std::uint32_t pages, std::uint32_t alignment);
  // Frees a used run, by its first page. `dirty`: its pages may contain data.
  void give(std::uint32_t first, bool dirty);
  // Changes the length of a used run where it is. False where the pages behind it are not free.
  [[nodiscard]] bool resize(std::uint32_t first, std::uint32_t pages);

  // The first page of the used run that contains the page, or `none`.
  [[nodiscard]] std::uint32_t start_of(std::uint32_t page) const;
  [[nodiscard]] std::uint32_t length(std::uint32_t first) const { return pages_[first].length; }
  // Of a used run: whether it may contain data from before it was taken.
  [[nodiscard]] bool is_dirty(std::uint32_t first) const { return pages_[first].dirty; }
  // Of a used run: how many users keep it from being used again, and whether it is to be freed
  // when there are none. The caller counts.
  [[nodiscard]] std::uint32_t& holds(std::uint32_t first) { return pages_[first].holds; }
  [[nodiscard]] bool& leaves(std::uint32_t first) { return pages_[first].leaves; }
  [[nodiscard]] bool leaves(std::uint32_t first) const { return pages_[first].leaves; }

  [[nodiscard]] std::uint32_t used_pages() const { return used_; }
  // Pages of free runs that may contain data.
  [[nodiscard]] std::uint32_t dirty_pages() const { return dirty_; }
  // Calls `clean(first, pages)` for each free run that may contain data. True: it contains zeros
  // from now on.
  template <typename Clean>
  void clean_free_runs(Clean clean) {
    for (std::uint32_t at = 0; at < count_;) {
      const Page& run = pages_[at];
      const std::uint32_t end = at + run.length;
      if (!run.used && run.dirty && clean(at, run.length)) {
        remove_free(at);
        add_free(at, end - at, false);
      }
      at = end;
    }
  }

 private:
  struct Page {
    std::uint32_t length = 0;    // at the first page of a run
    std::uint32_t start = 0;     // at each page of a used run, and at the last one of a free run
    std::uint32_t previous = 0;  // free runs of about the same length
    std::uint32_t next = 0;
    std::uint32_t holds = 0;
    bool used = false;  // at each page
    bool dirty = false;
    bool leaves = false;
  };
  // A free run of n pages is in the list of bit_width(n) - 1.
  static constexpr std::size_t lists = 32;

  [[nodiscard]] std::uint32_t take_from(std::uint32_t run, std::uint32_t pages,
                                        std::uint32_t alignment);
  void use(std::uint32_t first, std::uint32_t pages, bool dirty);
  void add_free(std::uint32_t first, std::uint32_t pages, bool dirty);
  void link(std::uint32_t first, std::uint32_t pages, bool dirty);
  void remove_free(std::uint32_t first);

  Page* pages_ = nullptr;
  std::uint32_t count_ = 0;
  std::uint32_t used_ = 0;
  std::uint32_t dirty_ = 0;
  std::array<std::uint32_t, lists> free_{};
};

}  // namespace weft::interpose
