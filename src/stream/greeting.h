// What two sides of a stream tell each other in the private data of rdma_cm, in network order.
//
//   0  4  "WEFS"
//   4  1  version, 1
//   5  1  type: 1 request, 2 acceptance, 3 refusal
//   6  2  receives for data; in a refusal the reason
//   8  8  address of the ring; 0 in a refusal, as all that follows but the last two
//  16  4  its rkey
//  20  4  its bytes
//  24  1  variants: bit 0 write with immediate, bit 1 write and send; an acceptance names one
//  25  1  rows of the table behind the ring
//  26  1  0
//  27  1  n, bytes of the user's private data
//  28  n  the user's private data
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/stream/options.hpp"

namespace weft::stream::detail {

enum class GreetingType : std::uint8_t { request = 1, acceptance = 2, refusal = 3 };

enum class Reason : std::uint16_t {
  by_user = 0,     // the program said no
  version = 1,     // another version, or another protocol
  malformed = 2,   // sizes that cannot be
  no_variant = 3,  // none that both sides can
  unable = 4,      // out of memory or the like
};
[[nodiscard]] const char* to_string(Reason reason);

inline constexpr std::uint8_t variant_immediate = 1;
inline constexpr std::uint8_t variant_write_and_send = 2;

struct Greeting {
  static constexpr std::size_t fixed_bytes = 28;

  GreetingType type = GreetingType::request;
  std::uint16_t receives = 0;
  std::uint64_t ring_address = 0;
  std::uint32_t ring_rkey = 0;
  std::uint32_t ring_bytes = 0;
  std::uint8_t variants = 0;
  std::uint8_t rows = 0;
  std::vector<std::byte> private_data;

  [[nodiscard]] Reason reason() const { return static_cast<Reason>(receives); }
  [[nodiscard]] static Greeting refusal(Reason reason,
                                        std::span<const std::byte> private_data = {});
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  // The greeting, or why it is none. Bytes behind it are ignored: transports may add some.
  [[nodiscard]] static std::variant<Greeting, Reason> parse(std::span<const std::byte> bytes);
};

// Where the table of mapped buffers stands behind a ring, and what a row has: offset (8 bytes),
// length (8), address (8), rkey (4), 0 (4). A row of length 0 maps nothing.
inline constexpr std::uint32_t row_bytes = 32;
[[nodiscard]] constexpr std::uint64_t table_offset(std::uint32_t ring_bytes) {
  return (std::uint64_t{ring_bytes} + 7) / 8 * 8;
}
[[nodiscard]] constexpr std::uint64_t region_bytes(std::uint32_t ring_bytes, std::uint32_t rows) {
  return table_offset(ring_bytes) + std::uint64_t{rows} * row_bytes;
}

}  // namespace weft::stream::detail
