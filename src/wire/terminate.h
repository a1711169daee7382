// The RDMAP Terminate message: RFC 5040 §4.8, with the error codes of RFC 5040, 5041, 5044, 6581.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/rdmap.h"

namespace weft::wire {

// Layer, error type and error code as one value, so that the code of a rule is one word.
struct TerminateCode {
  std::uint8_t layer = 0;  // 0 RDMA, 1 DDP, 2 LLP (MPA)
  std::uint8_t type = 0;   // 4 bits
  std::uint8_t code = 0;

  bool operator==(const TerminateCode&) const = default;
};

[[nodiscard]] std::string describe(TerminateCode code);

namespace terminate {
// RDMAP, remote protection (RFC 5040 §4.8)
inline constexpr TerminateCode rdma_invalid_stag{0, 1, 0};
inline constexpr TerminateCode rdma_bounds{0, 1, 1};
inline constexpr TerminateCode rdma_access{0, 1, 2};
inline constexpr TerminateCode rdma_stag_not_of_stream{0, 1, 3};
inline constexpr TerminateCode rdma_wrap{0, 1, 4};
inline constexpr TerminateCode rdma_cannot_invalidate{0, 1, 9};
// RDMAP, remote operation
inline constexpr TerminateCode rdma_version{0, 2, 5};
inline constexpr TerminateCode rdma_unexpected_opcode{0, 2, 6};
inline constexpr TerminateCode rdma_stream_catastrophic{0, 2, 7};
inline constexpr TerminateCode rdma_global_catastrophic{0, 2, 8};
inline constexpr TerminateCode rdma_unspecified{0, 2, 0xFF};
// DDP, tagged buffer (RFC 5041 §7)
inline constexpr TerminateCode tagged_invalid_stag{1, 1, 0};
inline constexpr TerminateCode tagged_bounds{1, 1, 1};
inline constexpr TerminateCode tagged_stag_not_of_stream{1, 1, 2};
inline constexpr TerminateCode tagged_wrap{1, 1, 3};
inline constexpr TerminateCode tagged_version{1, 1, 4};
// DDP, untagged buffer
inline constexpr TerminateCode untagged_invalid_queue{1, 2, 1};
inline constexpr TerminateCode untagged_no_buffer{1, 2, 2};
inline constexpr TerminateCode untagged_msn_range{1, 2, 3};
inline constexpr TerminateCode untagged_invalid_offset{1, 2, 4};
inline constexpr TerminateCode untagged_too_long{1, 2, 5};
inline constexpr TerminateCode untagged_version{1, 2, 6};
// MPA (RFC 5044 §8, RFC 6581 §7)
inline constexpr TerminateCode mpa_connection_lost{2, 0, 1};
inline constexpr TerminateCode mpa_crc{2, 0, 2};
inline constexpr TerminateCode mpa_marker{2, 0, 3};
inline constexpr TerminateCode mpa_bad_frame{2, 0, 4};
inline constexpr TerminateCode mpa_local_catastrophic{2, 0, 5};
inline constexpr TerminateCode mpa_insufficient_ird{2, 0, 6};
inline constexpr TerminateCode mpa_no_matching_rtr{2, 0, 7};
}  // namespace terminate

// The payload of a Terminate message. It has the headers of the segment at fault, as far as they
// are known: `ddp_header_bytes` is 0, 14 (tagged) or 18 (untagged), and on the wire the length of
// the segment comes before the header if there is one. Only Read Requests have an RDMAP header.
struct Terminate {
  static constexpr std::size_t fixed_bytes = 4;
  static constexpr std::size_t max_ddp_header_bytes = 18;
  static constexpr std::size_t max_bytes =
      fixed_bytes + 2 + max_ddp_header_bytes + ReadRequest::header_bytes;

  TerminateCode code{};
  std::uint16_t ddp_segment_bytes = 0;
  std::uint8_t ddp_header_bytes = 0;
  std::array<std::byte, max_ddp_header_bytes> ddp_header{};
  bool has_read_request = false;
  ReadRequest read_request{};

  [[nodiscard]] std::size_t size() const;
  // Accepts a message that is cut off after a whole part, and the bit order of the software iWARP
  // of Linux. The first byte of the DDP header shows whether it has 14 or 18 bytes.
  [[nodiscard]] static Result<Terminate, WireError> parse(Bytes bytes);
  // Writes size() bytes.
  void emit(MutableBytes out) const;
  bool operator==(const Terminate&) const = default;
};

}  // namespace weft::wire
