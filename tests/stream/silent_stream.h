// A client of TCP that requests a stream, and says nothing more.
#pragma once

#include <cstdint>

#include "stream/greeting_wire.h"
#include "support/silent_peer.h"

namespace weft::test {

inline Descriptor silent_stream(std::uint16_t port) {
  stream::detail::StreamGreeting greeting;
  greeting.receives = 4;
  greeting.ring_address = 4096;
  greeting.ring_bytes = 1000;
  greeting.variants = stream::detail::variant_immediate | stream::detail::variant_write_and_send;
  greeting.part_log2 = 31;
  return silent_peer(port, greeting.to_bytes());
}

}  // namespace weft::test
