// How many reads may be under way: what the application asks for, what travels in MPA frames, and
// what the application is told. Acknowledgement takes one read in each direction for the device.
#pragma once

#include <cstdint>

#include "device/queue_pair/queue_pair.h"
#include "iwarp/handshake.h"

namespace weft::cm {

// From the application to the wire.
[[nodiscard]] std::uint16_t to_wire(std::uint16_t depth, bool acknowledge);
// From the wire to an event: without the device's own.
[[nodiscard]] std::uint8_t to_event(std::uint16_t wire, bool acknowledge);

// What a queue pair needs to know of a finished handshake. `asked_ord`: the application's wish.
[[nodiscard]] device::StreamParameters stream_parameters(bool initiator,
                                                         const iwarp::Negotiated& negotiated,
                                                         std::uint16_t asked_ord, bool acknowledge);

}  // namespace weft::cm
