// A service query asks another Weft for the queue pair behind a port of rdma_cm's UDP space; the
// reply has the same layout. InfiniBand calls this service ID resolution (InfiniBand Architecture
// Specification, volume 1, §12.11). Each is one datagram, to the UDP port of that number. Only Weft
// uses this format.
//
//   0  8  "WeftUD", 0, version 1
//   8  1  kind
//   9  1  status
//  10  1  n, bytes of private data
//  11  1  0, ignored
//  12  4  identification
//  16  4  QPN
//  20  4  queue key
//  24  n  private data
//
// All in network order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

struct ServiceQuery {
  static constexpr std::size_t header_bytes = 24;
  // rdma_cm leaves this many of the 216 bytes of InfiniBand.
  static constexpr std::size_t max_private_data_bytes = 180;
  static constexpr std::size_t max_bytes = header_bytes + max_private_data_bytes;

  enum class Kind : std::uint8_t { request = 1, reply = 2 };
  // The numbers of InfiniBand (§12.11.2.1). Programs see them in RDMA_CM_EVENT_UNREACHABLE.
  enum class Status : std::uint8_t { valid = 0, unsupported = 1, rejected = 2 };

  Kind kind = Kind::request;
  Status status = Status::valid;
  std::uint32_t identification = 0;  // chosen by the request and repeated by its reply
  std::uint32_t queue_pair = 0;      // in a valid reply
  std::uint32_t queue_key = 0;
  Bytes private_data{};  // borrowed from the bytes that were parsed, or from the caller of emit()

  [[nodiscard]] std::size_t size() const { return header_bytes + private_data.size(); }
  // Fails with bad_key for another kind of datagram or another version, with truncated for one that
  // is cut. Unknown kinds and statuses survive as values.
  [[nodiscard]] static Result<ServiceQuery, WireError> parse(Bytes bytes);
  // Writes size() bytes.
  void emit(MutableBytes out) const;
};

}  // namespace weft::wire
