// Values of headers as captures show them. The capture library parses them; programs that use it
// read their fields. parse() and emit() belong to the library and are not exported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "weft/bytes.hpp"

namespace weft {

template <typename T, typename E>
class Result;

namespace wire {

enum class WireError : std::uint8_t;

// --- TCP (RFC 9293 §3.1)

namespace tcp_flag {
inline constexpr std::uint8_t fin = 0x01;
inline constexpr std::uint8_t syn = 0x02;
inline constexpr std::uint8_t rst = 0x04;
inline constexpr std::uint8_t psh = 0x08;
inline constexpr std::uint8_t ack = 0x10;
inline constexpr std::uint8_t urg = 0x20;
inline constexpr std::uint8_t ece = 0x40;
inline constexpr std::uint8_t cwr = 0x80;
}  // namespace tcp_flag

struct TcpHeader {
  static constexpr std::size_t min_header_bytes = 20;

  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint32_t sequence = 0;
  std::uint32_t acknowledgement = 0;
  std::uint8_t flags = 0;
  std::uint16_t window = 0;  // as on the wire: not scaled
  std::uint16_t checksum = 0;
  std::uint16_t urgent = 0;
  std::optional<std::uint16_t> mss_bytes;
  std::optional<std::uint8_t> window_scale;
  std::uint8_t other_options_bytes = 0;  // a multiple of 4; their content is not kept

  // Whether the header has this flag, one of the constants above.
  [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  // Bytes of the header with its options.
  [[nodiscard]] std::size_t size() const;
  // Does not check the checksum: with offload, a capture has none.
  [[nodiscard]] static Result<TcpHeader, WireError> parse(Bytes bytes);
  // Writes size() bytes, with no-operations for the other options, and the value of `checksum` as
  // it is. The checksum of a segment also covers its payload and a pseudo header (RFC 9293 §3.1),
  // so it is stored into the emitted bytes when those are known.
  void emit(MutableBytes out) const;
  bool operator==(const TcpHeader&) const = default;
};

// --- RDMAP (RFC 5040)

// Payload of an RDMA Read Request (RFC 5040 §4.4).
struct ReadRequest {
  static constexpr std::size_t header_bytes = 28;

  std::uint32_t sink_stag = 0;
  std::uint64_t sink_offset = 0;
  std::uint32_t size_bytes = 0;
  std::uint32_t source_stag = 0;
  std::uint64_t source_offset = 0;

  // RFC 5040 §4.4; fails with `truncated` for too few bytes.
  [[nodiscard]] static Result<ReadRequest, WireError> parse(Bytes bytes);
  // Writes as many bytes as parse() needs.
  void emit(MutableBytes out) const;
  bool operator==(const ReadRequest&) const = default;
};

// --- RPC-over-RDMA version 1 (RFC 8166)

class RpcRdmaView;  // a whole header

// A piece of memory that the peer may read or write (RFC 8166 §3.4.1).
struct RdmaSegment {
  static constexpr std::size_t header_bytes = 16;

  std::uint32_t handle = 0;  // rkey or STag
  std::uint32_t length = 0;
  std::uint64_t offset = 0;  // virtual address or tagged offset

  // RFC 8166 §4.1; fails with `truncated` for too few bytes.
  [[nodiscard]] static Result<RdmaSegment, WireError> parse(Bytes bytes);
  // Writes as many bytes as parse() needs.
  void emit(MutableBytes out) const;
  bool operator==(const RdmaSegment&) const = default;
};

// A segment of a read chunk. Segments with the same position are one chunk; position 0 is the
// Position-Zero Read Chunk, a whole call (RFC 8166 §3.4.4, §3.5.3).
struct ReadSegment {
  static constexpr std::size_t header_bytes = 4 + RdmaSegment::header_bytes;

  std::uint32_t position = 0;  // in the XDR stream of the whole message
  RdmaSegment target;

  // RFC 8166 §4.1; fails with `truncated` for too few bytes.
  [[nodiscard]] static Result<ReadSegment, WireError> parse(Bytes bytes);
  // Writes as many bytes as parse() needs.
  void emit(MutableBytes out) const;
  bool operator==(const ReadSegment&) const = default;
};

// parse() rejects values outside this list as bad_value (RFC 8166 §4.2).
enum class RpcRdmaProcedure : std::uint32_t {
  msg = 0,    // an RPC message follows, perhaps reduced by chunks
  nomsg = 1,  // the RPC message is in a chunk
  msgp = 2,   // obsolete: as msg, with padding
  done = 3,   // obsolete: the reply's chunks were read
  error = 4,
};

enum class RpcRdmaErrorCode : std::uint32_t {
  version = 1,  // followed by the lowest and the highest version
  chunk = 2,
};

struct RpcRdmaError {
  RpcRdmaErrorCode code = RpcRdmaErrorCode::chunk;
  std::uint32_t version_low = 0;  // of code `version` only
  std::uint32_t version_high = 0;

  bool operator==(const RpcRdmaError&) const = default;
};

// --- ONC RPC version 2 (RFC 5531)

// Values outside this list survive as values.
enum class AuthFlavor : std::uint32_t {
  none = 0,
  sys = 1,
  shorthand = 2,
  dh = 3,
  gss = 6,
  tls = 7,  // RFC 9289
};

// The outcome in a reply: both unions of RFC 5531 §9 in one list.
enum class RpcStatus : std::uint8_t {
  success,
  program_unavailable,
  program_mismatch,
  procedure_unavailable,
  garbage_arguments,
  system_error,
  rpc_mismatch,  // from here on denied: no verifier
  auth_error,
};

}  // namespace wire
}  // namespace weft
