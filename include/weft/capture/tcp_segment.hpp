// One TCP segment as the layers below found it.
#pragma once

#include <cstddef>

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
  Bytes payload;               // what was captured of it
  std::size_t wire_bytes = 0;  // of the payload on the wire; more where the snap length cut it
};

// Who takes them. They come in the order of the capture; spans are valid during the call only.
class TcpSegments {
 public:
  virtual ~TcpSegments() = default;
  virtual void on_segment(const TcpSegment& segment) = 0;
  // The capture is at its end: whatever waits for something waits in vain.
  virtual void finish() {}
};

}  // namespace weft::capture
