// One inbound DDP segment, between the deframer that finds it and the receiver that places it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::iwarp {

struct Segment {
  bool tagged = false;
  wire::DdpTagged tagged_header;
  wire::DdpUntagged untagged_header;
  wire::RdmapOpcode opcode = wire::RdmapOpcode::write;
  std::uint32_t payload_bytes = 0;
  // The header as it came, for a Terminate that must quote it.
  std::array<std::byte, wire::Terminate::max_ddp_header_bytes> raw_header{};

  [[nodiscard]] std::uint8_t header_bytes() const {
    return static_cast<std::uint8_t>(tagged ? wire::DdpTagged::header_bytes
                                            : wire::DdpUntagged::header_bytes);
  }
  [[nodiscard]] std::uint16_t ulpdu_bytes() const {
    return static_cast<std::uint16_t>(header_bytes() + payload_bytes);
  }
  [[nodiscard]] bool last() const { return tagged ? tagged_header.last : untagged_header.last; }
};

using TerminateRaised = std::optional<wire::TerminateCode>;

// Who takes segments from the deframer.
class SegmentSink {
 public:
  enum class Course : std::uint8_t {
    place,    // ask targets() for memory, then deliver()
    control,  // a message of the protocol itself: wait for all of it, then control()
    refuse,   // broken off: fault() was called by the sink itself
  };

  virtual ~SegmentSink() = default;
  // A header arrived. Nothing is delivered yet; the CRC may still be wrong.
  virtual Course begin(const Segment& segment) = 0;
  // Appends where payload bytes [offset, offset + length) belong. False: refused, see begin().
  virtual bool targets(const Segment& segment, std::uint32_t offset, std::uint32_t length,
                       std::vector<iovec>& out) = 0;
  // All of the segment is placed and its CRC is right. False: refused.
  virtual bool deliver(const Segment& segment) = 0;
  virtual bool control(const Segment& segment, Bytes payload) = 0;
  // The frame itself is wrong; `segment` is null where not even its header is known.
  virtual void fault(wire::TerminateCode code, const Segment* segment) = 0;
};

}  // namespace weft::iwarp
