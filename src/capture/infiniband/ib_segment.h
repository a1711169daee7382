// A packet of the InfiniBand transport with checked headers, and a copy of it for packets that
// wait.
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
  Bytes payload;                         // without padding; valid during the call only
  std::uint64_t payload_wire_bytes = 0;  // more than payload.size() if the snap length cut it

  [[nodiscard]] std::uint32_t psn() const { return headers.bth.psn; }
  [[nodiscard]] wire::IbOperation operation() const { return headers.bth.opcode.operation; }
  [[nodiscard]] std::uint64_t missing_bytes() const { return payload_wire_bytes - payload.size(); }
  [[nodiscard]] bool may_have_payload() const {
    const auto kind = operation();
    return kind != wire::IbOperation::read_request && kind != wire::IbOperation::acknowledge &&
           kind != wire::IbOperation::atomic_acknowledge &&
           kind != wire::IbOperation::compare_swap && kind != wire::IbOperation::fetch_add;
  }
  // Returns whether a responder sent it: acknowledgements and Read responses.
  [[nodiscard]] bool is_answer() const {
    return operation() >= wire::IbOperation::read_response_first &&
           operation() <= wire::IbOperation::atomic_acknowledge;
  }
};

// Returns whether a Read request is one for the rest of `whole`: a requester that lacks packets of
// a response asks for them by a request of their PSN (§9.4.4).
[[nodiscard]] inline bool asks_for_rest(const IbSegment& segment, const wire::Reth& whole) {
  const wire::Reth& rest = segment.headers.reth;
  return segment.operation() == wire::IbOperation::read_request && rest.key == whole.key &&
         rest.address > whole.address &&
         rest.address + rest.length_bytes == whole.address + whole.length_bytes;
}

// Checks §9.2.1 and §9.4: payload and padding are a multiple of 4 bytes, and only some opcodes have
// a payload.
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

// A copy of a packet that owns its payload.
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
