// How one Weft asks another for the queue pair behind a port of rdma_cm's UDP space, and is told:
// what InfiniBand calls service ID resolution (InfiniBand Architecture Specification, volume 1,
// §12.11), in one datagram each way to the UDP port of that number. Only Weft speaks this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

struct ServiceQuery {
  static constexpr std::size_t header_bytes = 24;
  // As much as rdma_cm leaves of InfiniBand's 216.
  static constexpr std::size_t max_private_data_bytes = 180;
  static constexpr std::size_t max_bytes = header_bytes + max_private_data_bytes;

  enum class Kind : std::uint8_t { request = 1, reply = 2 };
  // InfiniBand's numbers (§12.11.2.1): programs see them in RDMA_CM_EVENT_UNREACHABLE.
  enum class Status : std::uint8_t { valid = 0, unsupported = 1, rejected = 2 };

  Kind kind = Kind::request;
  Status status = Status::valid;
  std::uint32_t identification = 0;  // of the request, and so of its reply
  std::uint32_t queue_pair = 0;      // in a valid reply
  std::uint32_t queue_key = 0;
  Bytes private_data{};  // of the bytes that were parsed

  [[nodiscard]] std::size_t size() const { return header_bytes + private_data.size(); }
  // Fails with bad_key for what is none, with truncated for a short one.
  [[nodiscard]] static Result<ServiceQuery, WireError> parse(Bytes bytes);
  // Writes size() bytes.
  void emit(MutableBytes out) const;
};

}  // namespace weft::wire
