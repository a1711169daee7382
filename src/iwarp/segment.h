// One inbound DDP segment, as the deframer passes it to the connection.
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
  // The header as it was received, for a Terminate that must quote it (RFC 5040 §4.8).
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

// The error code of the Terminate that a fault deserves; empty where there is none.
using TerminateRaised = std::optional<wire::TerminateCode>;

// Receives segments from the deframer. For each segment begin() comes first; then, for a message
// with placement, targets() for every part of the payload and deliver() once, or for a control
// message control() once. A segment refused by any of them is the last.
//
// A short message in one segment, with a correct CRC, is offered to take_send() or take_write()
// first, which do all of that in one step where nothing is special about it. Where they return
// false, begin() follows, as for any other segment.
class SegmentSink {
 public:
  enum class Course : std::uint8_t {
    place,    // call targets() for memory, then deliver()
    control,  // a message of the protocol itself: collect it whole, then call control()
    refuse,   // the sink has ended the stream: stop
  };

  virtual ~SegmentSink() = default;
  // A plain Send (RFC 5040 §5.3) with this MSN. `payload` is valid during the call.
  virtual bool take_send(std::uint32_t msn, Bytes payload) = 0;
  // An RDMA Write (RFC 5040 §5.1).
  virtual bool take_write(std::uint32_t stag, std::uint64_t offset, Bytes payload) = 0;
  // A header has arrived. For a large segment its CRC is not checked yet.
  virtual Course begin(const Segment& segment) = 0;
  // Appends the memory for payload bytes [offset, offset + length). False: refused.
  virtual bool targets(const Segment& segment, std::uint32_t offset, std::uint32_t length,
                       std::vector<iovec>& out) = 0;
  // Memory that targets() named for the segment cannot be accessed: it was unmapped, or made
  // read-only. False: refused.
  virtual bool lost(const Segment& segment) = 0;
  // The payload is placed whole and its CRC is correct. False: refused.
  virtual bool deliver(const Segment& segment) = 0;
  // `payload` is valid during the call. False: refused.
  virtual bool control(const Segment& segment, Bytes payload) = 0;
  // The FPDU or DDP header is malformed. `segment` is null where its header is not known.
  virtual void fault(wire::TerminateCode code, const Segment* segment) = 0;
};

}  // namespace weft::iwarp
