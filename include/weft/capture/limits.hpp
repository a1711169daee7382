// How much an analysis holds at a time. What exceeds a limit is dropped and reported as missing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::capture {

struct InfinibandLimits {
  // Requests of one side of a connection that arrived out of order.
  struct Order {
    std::size_t held_packets = 4096;
    // Timeout for a missing packet that the responder has acknowledged, counted in packets of the
    // connection. It may come late where the capture is out of order; after this it counts as not
    // captured.
    std::uint64_t patience_packets = 1024;
    // The same without an acknowledgement: longer, because the requester may repeat the packet.
    std::uint64_t long_patience_packets = 4096;
  };
  struct Answers {
    // Requests without a full response; above it the oldest is dropped.
    std::size_t open_requests = 4096;
    std::size_t early_packets = 1024;  // responses that wait for their request
    // How many packets of the connection a response may come late: before its request, and after
    // the requester must have it.
    std::uint64_t late_packets = 4096;
  };
  struct Connection {
    Order requests{};
    Answers answers{};
  };

  Connection connection{};
  std::size_t held_bytes = 64 * 1024 * 1024;  // waiting packets of all connections
  // Limits on directions that are not joined to another one yet: packets that wait in one
  // direction, directions that wait, and connections that lack their second direction. Above them
  // the direction becomes a separate connection.
  std::size_t undecided_packets = 1024;
  std::size_t undecided_flows = 1024;
  std::size_t alone = 1024;
  // Datagram queue pairs that connection manager messages (SIDR) have named.
  std::size_t services = 4096;
};

// What happened to the packets of InfiniBand.
struct InfinibandCounts {
  std::uint64_t packets = 0;
  std::uint64_t malformed = 0;     // shorter than their own headers
  std::uint64_t cut_short = 0;     // cut by the snap length within a header
  std::uint64_t unknown = 0;       // unknown opcodes, and reliable datagrams
  std::uint64_t bad_checksum = 0;  // wrong ICRC; ignored, unless no packet had a correct one before
  std::uint64_t management = 0;    // sent to queue pairs 0 and 1
  std::uint64_t copies = 0;        // packets that the capture has twice; only the first counts
  std::uint64_t not_roce = 0;      // UDP to port 4791 that is something else
  std::uint64_t congestion_notifications = 0;
  // Reads and atomics that were closed without their whole response because a limit was reached.
  std::uint64_t dropped_requests = 0;
};

}  // namespace weft::capture
