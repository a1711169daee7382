// Translates faults into the error codes of a Terminate, by the layer that finds the fault (RFC
// 5040 §4.8, RFC 5041 §7).
#pragma once

#include "iwarp/segment.h"
#include "iwarp/types.h"
#include "wire/terminate.h"

namespace weft::iwarp {

// For the placement of a tagged segment, which DDP checks. DDP has no code for a missing access
// right; it is reported as an invalid STag, as the kernel's siw does.
[[nodiscard]] constexpr wire::TerminateCode tagged_code(Fault fault) {
  switch (fault) {
    case Fault::bounds:
      return wire::terminate::tagged_bounds;
    case Fault::foreign_domain:
      return wire::terminate::tagged_stag_not_of_stream;
    case Fault::wrap:
      return wire::terminate::tagged_wrap;
    default:
      return wire::terminate::tagged_invalid_stag;
  }
}

// For the source of an RDMA Read or the target of an atomic, which RDMAP checks.
[[nodiscard]] constexpr wire::TerminateCode source_code(Fault fault) {
  switch (fault) {
    case Fault::bounds:
      return wire::terminate::rdma_bounds;
    case Fault::access:
      return wire::terminate::rdma_access;
    case Fault::foreign_domain:
      return wire::terminate::rdma_stag_not_of_stream;
    case Fault::wrap:
      return wire::terminate::rdma_wrap;
    default:
      return wire::terminate::rdma_invalid_stag;
  }
}

// Makes a Terminate that quotes the header of the segment at fault, where there is one.
[[nodiscard]] inline wire::Terminate quote(wire::TerminateCode code, const Segment* segment) {
  wire::Terminate message{.code = code};
  if (!segment) return message;
  message.ddp_segment_bytes = segment->ulpdu_bytes();
  message.ddp_header_bytes = segment->header_bytes();
  message.ddp_header = segment->raw_header;
  return message;
}

}  // namespace weft::iwarp
