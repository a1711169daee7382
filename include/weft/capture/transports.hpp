// The transports, each as an object of its own: segments or packets go in, traffic comes out.
// Analysis puts a PacketDecoder in front of both, and an OperationTracker behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/capture/connection.hpp"
#include "weft/capture/ib_packet.hpp"
#include "weft/capture/limits.hpp"
#include "weft/capture/tcp_flows.hpp"
#include "weft/capture/tcp_segment.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// TCP, and in it MPA, DDP and RDMAP. Connections are added to `connections`; it and `sink` must
// outlive the object.
class WEFT_API IwarpTransport {
 public:
  struct Limits {
    TcpFlows::Limits tcp;
    std::size_t search_bytes = 64 * 1024 * 1024;  // of streams that may turn out to be MPA
  };

  IwarpTransport(const Limits& limits, ConnectionTable& connections, TrafficSink& sink);
  IwarpTransport(const IwarpTransport&) = delete;
  IwarpTransport& operator=(const IwarpTransport&) = delete;
  ~IwarpTransport();

  // Where segments go in; lives as long as this. Its finish() gives out what is still open.
  [[nodiscard]] TcpFlows& segments();
  // Gives out what is open of the connection, and lets go of its entry in `connections`. If it goes
  // on, it is another one.
  void forget(ConnectionId connection);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

// The transport of InfiniBand, whatever carries it. `connections` and `sink` must outlive the
// object.
class WEFT_API InfinibandTransport {
 public:
  InfinibandTransport(const InfinibandLimits& limits, ConnectionTable& connections,
                      TrafficSink& sink);
  InfinibandTransport(const InfinibandTransport&) = delete;
  InfinibandTransport& operator=(const InfinibandTransport&) = delete;
  ~InfinibandTransport();

  // Where packets go in; lives as long as this. Its finish() gives out what is still open.
  [[nodiscard]] InfinibandPackets& packets();
  [[nodiscard]] const InfinibandCounts& counts() const;
  // As above.
  void forget(ConnectionId connection);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
