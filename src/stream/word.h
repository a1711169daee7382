// The 32 bits that say what a message of the stream is: the immediate of a write, or the bytes of
// the small send behind it. docs/stream-protocol.md has the format.
#pragma once

#include <cstdint>

namespace weft::stream::detail {

enum class Kind : std::uint8_t {
  data = 0,  // so many bytes follow in the ring
  end = 1,   // no more bytes will come
  map = 2,   // that row of the table of mapped buffers has changed
};

inline constexpr std::uint32_t most_value = (1U << 28) - 1;
inline constexpr std::uint32_t most_returned_bytes = (1U << 21) - 1;
inline constexpr std::uint32_t most_returned_receives = (1U << 8) - 1;

// What an update gives back. One that gives back neither bytes nor receives only acknowledges.
struct Update {
  std::uint32_t bytes = 0;
  std::uint32_t receives = 0;
  std::uint32_t acknowledged = 0;  // updates of the other side
  friend bool operator==(const Update&, const Update&) = default;
};

[[nodiscard]] constexpr std::uint32_t encode(Kind kind, std::uint32_t value) {
  return static_cast<std::uint32_t>(kind) << 28 | value;
}
[[nodiscard]] constexpr std::uint32_t encode(const Update& update) {
  return 1U << 31 | update.acknowledged << 29 | update.receives << 21 | update.bytes;
}

[[nodiscard]] constexpr bool is_update(std::uint32_t word) {
  return word >> 31;
}
// Unknown kinds survive as values.
[[nodiscard]] constexpr Kind kind_of(std::uint32_t word) {
  return static_cast<Kind>(word >> 28 & 7);
}
[[nodiscard]] constexpr std::uint32_t value_of(std::uint32_t word) {
  return word & most_value;
}
[[nodiscard]] constexpr Update update_of(std::uint32_t word) {
  return {word & most_returned_bytes, word >> 21 & most_returned_receives, word >> 29 & 3};
}

}  // namespace weft::stream::detail
