// Which pages of the process have registered memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "check/memory_range.h"

namespace weft::check {

// Each free(3) of the program asks, so that the answer takes no lock and allocates nothing. One
// thread at a time changes it. A page is 4096 bytes, whatever the kernel's pages are.
class RegisteredPages {
 public:
  RegisteredPages() = default;
  RegisteredPages(const RegisteredPages&) = delete;
  RegisteredPages& operator=(const RegisteredPages&) = delete;
  ~RegisteredPages() { clear(); }
  // What is added several times has to be removed as often.
  void add(const MemoryRange& range);
  void remove(const MemoryRange& range);
  // While no other thread asks.
  void clear();
  // Whether a page of the range has registered memory. Thread-safe.
  [[nodiscard]] bool any(const MemoryRange& range) const;

 private:
  // A part is 1 GiB; user memory ends at 256 TiB. Memory behind it is not known.
  static constexpr unsigned page_bits = 12;
  static constexpr unsigned part_bits = 30;
  static constexpr std::size_t pages_per_part = std::size_t{1} << (part_bits - page_bits);
  static constexpr std::uint64_t parts =
      (sizeof(void*) == 8 ? std::uint64_t{1} << 48 : std::uint64_t{1} << 32) >> part_bits;
  // How many regions have memory in a page. At the highest value it stays.
  using Count = std::atomic<std::uint16_t>;
  struct Part {
    std::atomic<std::uint32_t> whole{0};  // regions that have all of it, or for lack of memory
    std::atomic<Count*> pages{nullptr};
  };

  void change(const MemoryRange& range, bool adds);
  static bool change_pages(Part& part, std::size_t first, std::size_t last, bool adds);
  // Of zeros, from the kernel. Null if there is no memory.
  template <typename Element>
  static Element* map_zeros(std::size_t count);

  std::atomic<Part*> parts_{nullptr};
};

}  // namespace weft::check
