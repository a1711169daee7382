// How much an analysis keeps at a time. What exceeds a limit is given up, and said to be missing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::capture {

struct InfinibandLimits {
  // Of requests of one side of a connection that are out of order.
  struct Order {
    std::size_t held_packets = 4096;
    // In packets of the connection. Until what the responder has acknowledged counts as not
    // captured: it may come late where the capture is out of order.
    std::uint64_t patience_packets = 16;
    // The same without an acknowledgement: the requester may repeat it.
    std::uint64_t long_patience_packets = 4096;
  };
  struct Answers {
    std::size_t open_requests = 4096;     // the oldest is given up
    std::size_t early_packets = 1024;     // that wait for their request
    std::uint64_t patience_packets = 64;  // of the connection, until what is missing counts as lost
  };
  struct Connection {
    Order requests{};
    Answers answers{};
  };

  Connection connection{};
  std::size_t held_bytes = 64 * 1024 * 1024;  // of packets that wait, of all connections
  // Until it is given up to join a direction to another: packets of it that wait, directions
  // that wait at a time, and those that they may belong to.
  std::size_t undecided_packets = 256;
  std::size_t undecided_flows = 1024;
  std::size_t alone = 1024;
  // Queue pairs of datagrams that the connection manager has told.
  std::size_t services = 4096;
};

// What became of the packets of InfiniBand.
struct InfinibandCounts {
  std::uint64_t packets = 0;
  std::uint64_t malformed = 0;     // too short for their own headers
  std::uint64_t cut_short = 0;     // by the snap length, so that headers are missing
  std::uint64_t unknown = 0;       // opcodes that do not exist, and reliable datagrams
  std::uint64_t bad_checksum = 0;  // ICRC; not used, unless no packet has a good one
  std::uint64_t management = 0;    // to queue pairs 0 and 1
  std::uint64_t congestion_notifications = 0;
};

}  // namespace weft::capture
