// RDMAP, Remote Direct Memory Access Protocol: RFC 5040 §4, with the extensions of RFC 7306.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "base/result.h"
#include "weft/wire/values.hpp"
#include "wire/error.h"
#include "wire/field.h"

namespace weft::wire {

inline constexpr std::uint8_t rdmap_version = 1;

// Values outside this list survive as values: RFC 5040 §4.1, RFC 7306 §4.
enum class RdmapOpcode : std::uint8_t {
  write = 0,
  read_request = 1,
  read_response = 2,
  send = 3,
  send_invalidate = 4,
  send_solicited = 5,
  send_solicited_invalidate = 6,
  terminate = 7,
  immediate_data = 8,
  immediate_data_solicited = 9,
  atomic_request = 10,
  atomic_response = 11,
};

[[nodiscard]] const char* describe(RdmapOpcode opcode);

// The queue that an untagged message of this opcode travels on (RFC 5040 §4.1, RFC 7306 §4).
namespace queue {
inline constexpr std::uint32_t send = 0;
inline constexpr std::uint32_t request = 1;
inline constexpr std::uint32_t terminate = 2;
inline constexpr std::uint32_t atomic_response = 3;
}  // namespace queue

// The control byte: two bits of version, two reserved, four of opcode.
[[nodiscard]] constexpr std::uint8_t rdmap_control(RdmapOpcode opcode) {
  return static_cast<std::uint8_t>(rdmap_version << 6 | (static_cast<unsigned>(opcode) & 0x0F));
}
[[nodiscard]] constexpr RdmapOpcode rdmap_opcode(std::uint8_t control) {
  return static_cast<RdmapOpcode>(control & 0x0F);
}
[[nodiscard]] constexpr std::uint8_t rdmap_version_of(std::uint8_t control) {
  return static_cast<std::uint8_t>(control >> 6);
}

// RFC 7306 §5.2.1. Unknown codes survive as values.
enum class AtomicOpcode : std::uint8_t { fetch_add = 0, compare_swap = 2 };

struct AtomicRequest {
  static constexpr std::size_t header_bytes = 52;

  AtomicOpcode opcode = AtomicOpcode::fetch_add;
  std::uint32_t request_id = 0;
  std::uint32_t stag = 0;
  std::uint64_t tagged_offset = 0;
  std::uint64_t add_or_swap = 0;
  std::uint64_t add_or_swap_mask = 0;
  std::uint64_t compare = 0;
  std::uint64_t compare_mask = 0;

  [[nodiscard]] static Result<AtomicRequest, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const AtomicRequest&) const = default;
};

// RFC 7306 §5.2.2
struct AtomicResponse {
  static constexpr std::size_t header_bytes = 12;

  std::uint32_t request_id = 0;
  std::uint64_t original_value = 0;

  [[nodiscard]] static Result<AtomicResponse, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const AtomicResponse&) const = default;
};

// RFC 7306 §6.2 leaves the eight bytes opaque. Weft writes the four bytes of the application as
// they are (they are in network order already) and a tag, which is zero except in messages that
// concern those behind them. Only Weft devices that have announced it in their hellos send these.
struct ImmediateData {
  static constexpr std::size_t header_bytes = 8;
  // The data is the immediate of the next Send.
  static constexpr std::uint32_t announces_immediate = 1;
  // The data is the number of a shared receive queue, to which all requests belong from here on:
  // of extended reliable connections (XRC), whose InfiniBand packets have the number each.
  static constexpr std::uint32_t names_queue = 2;

  std::uint32_t data_be = 0;  // kept in network order: copied, never swapped
  std::uint32_t tag = 0;

  [[nodiscard]] static Result<ImmediateData, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const ImmediateData&) const = default;
};

// The number that an application gave as immediate data, from the first four bytes of a message; it
// went out in network order.
[[nodiscard]] inline std::uint32_t immediate_number(Bytes message) {
  return load_be<std::uint32_t>(message.data());
}

// The reverse.
[[nodiscard]] inline std::uint32_t immediate_of_number(std::uint32_t number) {
  std::array<std::byte, sizeof number> bytes{};
  store_be(bytes.data(), number);
  std::uint32_t data_be = 0;
  std::memcpy(&data_be, bytes.data(), sizeof data_be);
  return data_be;
}

// The number in `data_be` of a message that names a queue.
[[nodiscard]] inline std::uint32_t number_of_immediate(std::uint32_t data_be) {
  std::array<std::byte, sizeof data_be> bytes{};
  std::memcpy(bytes.data(), &data_be, sizeof data_be);
  return load_be<std::uint32_t>(bytes.data());
}

// --- Inline, for the data path -------------------------------------------------------------------

namespace field::read_request {
inline constexpr Field32 sink_stag{0};
inline constexpr Field64 sink_offset{sink_stag.end()};
inline constexpr Field32 size_bytes{sink_offset.end()};
inline constexpr Field32 source_stag{size_bytes.end()};
inline constexpr Field64 source_offset{source_stag.end()};
static_assert(source_offset.end() == ReadRequest::header_bytes);
}  // namespace field::read_request

inline Result<ReadRequest, WireError> ReadRequest::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::read_request;
  const std::byte* header = bytes.data();
  return ReadRequest{.sink_stag = at::sink_stag.load(header),
                     .sink_offset = at::sink_offset.load(header),
                     .size_bytes = at::size_bytes.load(header),
                     .source_stag = at::source_stag.load(header),
                     .source_offset = at::source_offset.load(header)};
}

inline void ReadRequest::emit(MutableBytes out) const {
  namespace at = field::read_request;
  std::byte* header = out.data();
  at::sink_stag.store(header, sink_stag);
  at::sink_offset.store(header, sink_offset);
  at::size_bytes.store(header, size_bytes);
  at::source_stag.store(header, source_stag);
  at::source_offset.store(header, source_offset);
}

}  // namespace weft::wire
