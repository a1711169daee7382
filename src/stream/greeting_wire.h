// The private data that two sides of a stream exchange through rdma_cm. All fields are in network
// order; docs/stream-protocol.md is the specification.
//
//   0  4  "WEFS"
//   4  1  version, 1
//   5  1  type: 1 request, 2 acceptance, 3 refusal
//   6  2  receives for data; in a refusal the reason
//   8  8  address of the ring; a refusal has zeros from here to byte 26
//  16  4  its rkey
//  20  4  its size in bytes
//  24  1  variants: bit 0 write with immediate, bit 1 write and send; an acceptance names one.
//         Bit 7: the ring is in memory that a process of the same host can map
//  25  1  rows of the table behind the ring (stream/ring_map_wire.h)
//  26  1  log2 of the part of the ring to use at first; 0: all of it, and it never grows
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
  by_user = 0,     // the program rejected the connection
  version = 1,     // another version, or another protocol
  malformed = 2,   // a field is out of range
  no_variant = 3,  // the two sides have no variant in common
  unable = 4,      // out of memory or another resource
};
[[nodiscard]] const char* to_string(Reason reason);

inline constexpr std::uint8_t variant_immediate = 1;
inline constexpr std::uint8_t variant_write_and_send = 2;
inline constexpr std::uint8_t shares_memory_bit = 0x80;

struct StreamGreeting {
  static constexpr std::size_t fixed_bytes = 28;

  GreetingType type = GreetingType::request;
  std::uint16_t receives = 0;
  std::uint64_t ring_address = 0;
  std::uint32_t ring_rkey = 0;
  std::uint32_t ring_bytes = 0;
  std::uint8_t variants = 0;
  std::uint8_t rows = 0;
  std::uint8_t part_log2 = 0;  // at most 31
  bool shares_memory = false;
  std::vector<std::byte> private_data;  // 255 bytes at most

  // Of a refusal: the number in the place of `receives`. Unknown reasons survive as values.
  [[nodiscard]] Reason reason() const { return static_cast<Reason>(receives); }
  [[nodiscard]] static StreamGreeting refusal(Reason reason,
                                              std::span<const std::byte> private_data = {});
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  // Returns the greeting, or the reason to refuse its sender. Ignores bytes beyond the private
  // data: transports may append zeros.
  [[nodiscard]] static std::variant<StreamGreeting, Reason> parse(std::span<const std::byte> bytes);
  friend bool operator==(const StreamGreeting&, const StreamGreeting&) = default;
};

}  // namespace weft::stream::detail
