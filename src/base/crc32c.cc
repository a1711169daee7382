#include "base/crc32c.h"

#include "base/crc32c_state.h"

#if defined(WEFT_ISAL)
#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c_lanes.h"
#include "base/vector_registers.h"
#else
#include "base/crc_table.h"
#endif

namespace weft {

#if defined(WEFT_ISAL)
namespace {

// Up to here one instruction after the other is faster than ISA-L's call with its parallel lanes.
constexpr std::size_t short_bytes = 256;

#if defined(__x86_64__)
bool has_instruction() {
  return __builtin_cpu_supports("sse4.2") != 0;
}

// With AVX-512, ISA-L folds twice as much by one instruction, and is as fast.
bool uses_lanes() {
  return crc32c_lanes::usable() && __builtin_cpu_supports("avx512f") == 0;
}

[[gnu::target("sse4.2")]] std::uint32_t update_short(std::uint32_t state, Bytes bytes) {
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  std::uint64_t wide = state;
  for (; end - at >= 8; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  state = static_cast<std::uint32_t>(wide);
  for (; at != end; ++at) {
    state = __builtin_ia32_crc32qi(state, std::to_integer<unsigned char>(*at));
  }
  return state;
}
#else
constexpr bool has_instruction() {
  return false;
}

constexpr bool uses_lanes() {
  return false;
}

std::uint32_t update_short(std::uint32_t state, Bytes /*bytes*/) {
  return state;
}
#endif

}  // namespace

std::uint32_t update_crc32c(std::uint32_t state, Bytes bytes) {
  if (bytes.size() >= crc32c_lanes::least_bytes && uses_lanes()) {
    state = crc32c_lanes::update(state, bytes);
  }
  if (bytes.size() <= short_bytes && has_instruction()) return update_short(state, bytes);
  // ISA-L takes a 32-bit length and, for historical reasons, a pointer to non-const.
  constexpr std::size_t piece_bytes = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), piece_bytes));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    // Unlike crc32_gzip_refl(), this function does not invert: value() does.
    state = crc32_iscsi(data, static_cast<int>(piece.size()), state);
    bytes = bytes.subspan(piece.size());
  }
  tidy_vector_registers();
  return state;
}
#else
std::uint32_t update_crc32c(std::uint32_t state, Bytes bytes) {
  // The polynomial 0x1EDC6F41 (Castagnoli) with its bits in reverse order.
  static constexpr CrcTable table(0x82F63B78);
  return table.update(state, bytes);
}
#endif

void Crc32c::update(Bytes bytes) {
  state_ = update_crc32c(state_, bytes);
}

Crc32cFold::Crc32cFold(std::uint32_t state) {
  for (std::size_t i = 0; i < sizeof state; ++i) {
    block[i] = static_cast<std::byte>(state >> (8 * i));
  }
}

std::uint32_t Crc32cFold::state() const {
  return update_crc32c(0, block);
}

std::uint32_t crc32c(Bytes bytes) {
  Crc32c crc;
  crc.update(bytes);
  return crc.value();
}

}  // namespace weft
