// A packet of the InfiniBand transport whose headers were checked, and a copy of one that waits.
#pragma once

#include <cstdint>
#include <optional>
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
  [[nodiscard]] bool may_have_payload() const {
    const auto kind = operation();
    return kind != wire::IbOperation::read_request && kind != wire::IbOperation::acknowledge &&
           kind != wire::IbOperation::atomic_acknowledge &&
           kind != wire::IbOperation::compare_swap && kind != wire::IbOperation::fetch_add;
  }
  // Sent by a responder: acknowledgements, and what was read.
  [[nodiscard]] bool is_answer() const {
    return operation() >= wire::IbOperation::read_response_first &&
           operation() <= wire::IbOperation::atomic_acknowledge;
  }
};

// §9.2.1, §9.4: whole words with the pad, and a payload only where the opcode has one.
[[nodiscard]] inline std::optional<Violation> broken_form(const IbSegment& segment) {
  constexpr std::uint64_t word_bytes = 4;
  const std::uint64_t bytes = segment.payload_wire_bytes;
  const std::uint64_t padded = bytes + segment.headers.bth.pad_bytes;
  if (bytes > 0 && !segment.may_have_payload()) {
    return Violation{Violation::Kind::wrong_length, bytes, 0};
  }
  if (padded % word_bytes == 0) return {};
  return Violation{Violation::Kind::wrong_length, padded,
                   (padded + word_bytes - 1) / word_bytes * word_bytes};
}

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
