// Packets from an interface, by libpcap.
#pragma once

#include <memory>
#include <string>

#include "capture/packet_source.h"

namespace weft::capture {

// Needs the right to capture (CAP_NET_RAW). `filter`: a libpcap expression, empty for everything.
// Throws std::runtime_error saying what failed and what would help.
[[nodiscard]] std::unique_ptr<PacketSource> capture_live(const std::string& interface,
                                                         const std::string& filter);

}  // namespace weft::capture
