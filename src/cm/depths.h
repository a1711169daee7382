// Converts read depths (IRD and ORD) between the application and MPA frames. The device needs one
// read in each direction for itself (see iwarp/proofs.h), so the depth in a frame is one larger
// than the application's. That is so without acknowledgement, too: a Weft peer holds Sends that
// find no receive, and only a proof shows that it has room for more (see iwarp/peer_window.h).
#pragma once

#include <cstdint>

#include "device/queue_pair/queue_pair.h"
#include "iwarp/handshake.h"

namespace weft::cm {

// From the application to an MPA frame.
[[nodiscard]] std::uint16_t to_wire(std::uint16_t depth);
// From an MPA frame to an event, without the device's own read.
[[nodiscard]] std::uint8_t to_event(std::uint16_t wire);

// The result of a finished handshake, for the queue pair. `requested_ord`: what the application
// passed.
[[nodiscard]] device::StreamParameters stream_parameters(bool initiator,
                                                         const iwarp::Negotiated& negotiated,
                                                         std::uint16_t requested_ord,
                                                         bool acknowledge);

}  // namespace weft::cm
