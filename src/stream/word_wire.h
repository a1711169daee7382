// The 32-bit word with the kind and the length of a message of the stream. It travels as the
// immediate of a write, or as the bytes of the small send behind the write, in network order.
// docs/stream-protocol.md is the specification.
//
// Bits 31..28 of a word are 1xxx for an update, else the kind; the rest is the value of the kind.
// An update has: bits 30..29 acknowledged updates, 28..21 returned receives, 20..0 returned bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace weft::stream::detail {

enum class Kind : std::uint8_t {
  data = 0,   // the value is the number of bytes in the ring
  end = 1,    // no more data follows
  map = 2,    // the value is the row of the table of mapped buffers that has changed
  grow = 3,   // the value is the number of bytes of the ring that are used from now on
  place = 4,  // from now on data come without messages, through shared memory
  wake = 5,   // the value is one of Wake: the counters in shared memory have changed
};
enum class Wake : std::uint8_t {
  bytes = 0,  // the receiver of the message waits for bytes
  room = 1,   // it waits for room in the ring of the other side
};

inline constexpr std::uint32_t max_word_value = (1U << 28) - 1;
inline constexpr std::uint32_t max_returned_bytes = (1U << 21) - 1;
inline constexpr std::uint32_t max_returned_receives = (1U << 8) - 1;

// An update returns ring space and receives to the sender of the data. One that returns neither
// only acknowledges updates.
struct Update {
  std::uint32_t bytes = 0;
  std::uint32_t receives = 0;
  std::uint32_t acknowledged = 0;  // updates of the other side
  friend bool operator==(const Update&, const Update&) = default;
};

// `value` is at most max_word_value, and the counts of an update are at most theirs (acknowledged:
// 3).
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
  return word & max_word_value;
}
[[nodiscard]] constexpr Update update_of(std::uint32_t word) {
  return {word & max_returned_bytes, word >> 21 & max_returned_receives, word >> 29 & 3};
}

// The word as the bytes of a send.
inline constexpr std::uint32_t word_bytes = sizeof(std::uint32_t);

[[nodiscard]] constexpr std::array<std::byte, word_bytes> word_to_bytes(std::uint32_t word) {
  std::array<std::byte, word_bytes> bytes{};
  store_be(bytes.data(), word);
  return bytes;
}
[[nodiscard]] constexpr std::uint32_t word_from_bytes(
    std::span<const std::byte, word_bytes> bytes) {
  return load_be<std::uint32_t>(bytes.data());
}

}  // namespace weft::stream::detail
