#include "base/crc32c.h"

#if defined(WEFT_ISAL)
#include <isa-l/crc.h>

#include <algorithm>

#include "base/vector_registers.h"
#else
#include "base/crc_table.h"
#endif

namespace weft {

#if defined(WEFT_ISAL)
void Crc32c::update(Bytes bytes) {
  // ISA-L takes a 32-bit length and, for historical reasons, a pointer to non-const.
  constexpr std::size_t piece_bytes = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), piece_bytes));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    // Unlike crc32_gzip_refl(), this function does not invert: value() does.
    state_ = crc32_iscsi(data, static_cast<int>(piece.size()), state_);
    bytes = bytes.subspan(piece.size());
  }
  tidy_vector_registers();
}
#else
void Crc32c::update(Bytes bytes) {
  // The polynomial 0x1EDC6F41 (Castagnoli) with its bits in reverse order.
  static constexpr CrcTable table(0x82F63B78);
  state_ = table.update(state_, bytes);
}
#endif

std::uint32_t crc32c(Bytes bytes) {
  Crc32c crc;
  crc.update(bytes);
  return crc.value();
}

}  // namespace weft
