// A packet of the InfiniBand transport whose headers were checked, and a copy of one that waits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "weft/capture/traffic.hpp"
#include "wire/ib_transport.h"

namespace weft::capture {

struct IbSegment {
  Stamp stamp;
  wire::IbHeaders headers;
  Bytes payload;                         // without the pad; valid during the call only
  std::uint64_t payload_wire_bytes = 0;  // more than payload.size() where the snap length cut

  [[nodiscard]] std::uint32_t psn() const { return headers.bth.psn; }
  [[nodiscard]] wire::IbOperation operation() const { return headers.bth.opcode.operation; }
  [[nodiscard]] std::uint64_t missing_bytes() const { return payload_wire_bytes - payload.size(); }
  // Sent by a responder: acknowledgements, and what was read.
  [[nodiscard]] bool is_answer() const {
    return operation() >= wire::IbOperation::read_response_first &&
           operation() <= wire::IbOperation::atomic_acknowledge;
  }
};

// Owns its payload.
class HeldIbSegment {
 public:
  explicit HeldIbSegment(const IbSegment& segment)
      : segment_(segment), payload_(segment.payload.begin(), segment.payload.end()) {
    segment_.payload = {};
  }
  [[nodiscard]] IbSegment get() const {
    IbSegment segment = segment_;
    segment.payload = payload_;
    return segment;
  }
  [[nodiscard]] std::size_t bytes() const { return sizeof *this + payload_.size(); }

 private:
  IbSegment segment_;
  std::vector<std::byte> payload_;
};

}  // namespace weft::capture
