#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace weft {
namespace {

// ISA-L returns with the upper halves of the vector registers in use, and on some processors every
// SSE instruction after that is slow, in the kernel too: it made a half round trip of 4 KiB a
// quarter longer. Clearing them takes a nanosecond.
#if defined(__x86_64__)
const bool has_avx = __builtin_cpu_supports("avx");

__attribute__((target("avx"))) void clear_upper_halves() {
  __builtin_ia32_vzeroupper();
}

void tidy_vector_registers() {
  if (has_avx) clear_upper_halves();
}
#else
void tidy_vector_registers() {}
#endif

}  // namespace

void Crc32c::update(Bytes bytes) {
  // ISA-L takes a 32-bit length and, for historical reasons, a pointer to non-const.
  constexpr std::size_t piece_bytes = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), piece_bytes));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    state_ = crc32_iscsi(data, static_cast<int>(piece.size()), state_);
    bytes = bytes.subspan(piece.size());
  }
  tidy_vector_registers();
}

std::uint32_t crc32c(Bytes bytes) {
  Crc32c crc;
  crc.update(bytes);
  return crc.value();
}

}  // namespace weft
