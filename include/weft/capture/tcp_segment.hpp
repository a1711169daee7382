// One TCP segment as the layers below decoded it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/bytes.hpp"
#include "weft/capture/host_address.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/wire/values.hpp"

namespace weft::capture {

struct TcpSegment {
  Stamp stamp;
  HostAddress source;
  HostAddress destination;
  wire::TcpHeader header;
  Bytes payload;               // the captured part
  std::size_t wire_bytes = 0;  // size of the payload on the wire; more if the snap length cut it
  std::uint8_t hop_limit = 0;  // hop limit of IPv6, time to live of IPv4; 0: unknown
};

// Receives segments, in the order of the capture. Spans are valid during the call only.
class TcpSegments {
 public:
  virtual ~TcpSegments() = default;
  // Called once for each segment. `segment` is valid during the call only.
  virtual void on_segment(const TcpSegment& segment) = 0;
  // The capture has ended: nothing more will come for segments that wait.
  virtual void finish() {}
};

}  // namespace weft::capture
