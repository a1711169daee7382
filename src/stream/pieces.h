// Pieces: a list of memory areas, copied to or from a ring as one sequence of bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace weft::stream::detail {

// Keeps a position, which each copy advances. A const Byte makes it a source.
template <typename Byte>
class Pieces {
 public:
  using Piece = std::span<Byte>;
  // The list and the memory must outlive this.
  explicit Pieces(std::span<const Piece> pieces) : pieces_(pieces) {}

  [[nodiscard]] std::size_t size_bytes() const {
    std::size_t bytes = 0;
    for (const Piece& piece : pieces_) bytes += piece.size();
    return bytes;
  }
  // Copies the next ring.size() bytes between the pieces and `ring`. The pieces must have as many
  // left.
  void copy(std::span<std::conditional_t<std::is_const_v<Byte>, std::byte, const std::byte>> ring) {
    while (!ring.empty()) {
      const Piece rest = pieces_[index_].subspan(offset_);
      const std::size_t bytes = std::min(rest.size(), ring.size());
      if constexpr (std::is_const_v<Byte>) {
        std::copy_n(rest.begin(), bytes, ring.begin());
      } else {
        std::copy_n(ring.begin(), bytes, rest.begin());
      }
      ring = ring.subspan(bytes);
      offset_ += bytes;
      if (offset_ == pieces_[index_].size()) {
        ++index_;
        offset_ = 0;
      }
    }
  }

 private:
  std::span<const Piece> pieces_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
};

using Gather = Pieces<const std::byte>;
using Scatter = Pieces<std::byte>;

}  // namespace weft::stream::detail
