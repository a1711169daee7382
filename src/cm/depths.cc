#include "cm/depths.h"

#include <algorithm>

#include "device/limits.h"
#include "wire/control_word.h"
#include "wire/mpa.h"

namespace weft::cm {

// The unary plus turns the limit into an int, the type of the sum, because std::min() takes two
// values of one type.
std::uint16_t to_wire(std::uint16_t depth) {
  return static_cast<std::uint16_t>(std::min(depth + 1, +device::limits::max_wire_read_depth));
}

std::uint8_t to_event(std::uint16_t wire) {
  if (wire == wire::MpaEnhanced::no_negotiation) return 0;
  return static_cast<std::uint8_t>(std::clamp(wire - 1, 0, +device::limits::max_read_depth));
}

device::StreamParameters stream_parameters(bool initiator, const iwarp::Negotiated& negotiated,
                                           std::uint16_t requested_ord, bool acknowledge) {
  // Where nothing was negotiated, the applications have agreed on depths by other means, and
  // nothing is known of a read beyond them.
  const std::uint16_t wire_ord = negotiated.ird_ord_negotiated ? negotiated.ord : requested_ord;
  device::StreamParameters parameters{
      .initiator = initiator,
      .crc = negotiated.crc,
      .send_markers = negotiated.send_markers,
      .acknowledge = acknowledge && wire_ord > 0,
      .ird = negotiated.ird,
      .wire_ord = wire_ord,
      .rtr = negotiated.rtr,
      .peer = {.send_immediate = negotiated.weft, .names_queues = negotiated.extended}};
  if (negotiated.words) {
    parameters.peer.control_stag = parameters.control_stag = wire::agreed_control_stag;
    parameters.peer.hold_bytes = wire::agreed_hold_bytes;
  }
  // A peer that is not Weft may allow no extra read. Then the device shares the application's.
  const int spare = parameters.acknowledge ? 1 : 0;
  const int share = std::min<int>(requested_ord, wire_ord - spare);
  // A program that asks for reads gets one where the peer allows any, even if the device needs it
  // at the same time.
  const int least = requested_ord > 0 && wire_ord > 0 ? 1 : 0;
  parameters.ord = static_cast<std::uint16_t>(std::max(share, least));
  return parameters;
}

}  // namespace weft::cm
