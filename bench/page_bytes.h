// Memory of a benchmark that begins with a page.
//
// Where the destination of a copy lies a few bytes behind its source, modulo the page, some
// processors take 20 times as long. The kernel's side often begins with a page as well, and a large
// std::vector 16 bytes behind one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

namespace weft::bench {

class PageBytes {
 public:
  explicit PageBytes(std::size_t bytes, std::uint8_t value = 0)
      : at_(static_cast<std::uint8_t*>(::operator new(bytes, page))) {
    std::fill_n(at_, bytes, value);
  }
  ~PageBytes() { ::operator delete(at_, page); }
  PageBytes(const PageBytes&) = delete;
  PageBytes& operator=(const PageBytes&) = delete;
  [[nodiscard]] std::uint8_t* data() const { return at_; }

 private:
  static constexpr std::align_val_t page{4096};
  std::uint8_t* const at_;
};

}  // namespace weft::bench
