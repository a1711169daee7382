// The transports as separate objects: segments or packets go in, traffic comes out. Analysis puts a
// PacketDecoder before both, and an OperationTracker after them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/capture/connection.hpp"
#include "weft/capture/ib_packet.hpp"
#include "weft/capture/limits.hpp"
#include "weft/capture/management.hpp"
#include "weft/capture/tcp_flows.hpp"
#include "weft/capture/tcp_segment.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// Decodes TCP, and MPA, DDP and RDMAP in it. It adds connections to `connections`. `connections`
// and `sink` must outlive the object.
class WEFT_API IwarpTransport {
 public:
  struct Limits {
    TcpFlows::Limits tcp;
    std::size_t search_bytes = 64 * 1024 * 1024;  // memory for streams that may turn out to be MPA
  };

  // Copies `limits`. The table and the sink must outlive the object.
  IwarpTransport(const Limits& limits, ConnectionTable& connections, TrafficSink& sink);
  IwarpTransport(const IwarpTransport&) = delete;
  IwarpTransport& operator=(const IwarpTransport&) = delete;
  ~IwarpTransport();

  // The input for segments; it lives as long as this object. Its finish() reports what is still
  // open.
  [[nodiscard]] TcpFlows& segments();
  // Reports what is open of the connection, and releases its entry in `connections`. Later packets
  // of it begin a new connection.
  void forget(ConnectionId connection);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

// Decodes the transport of InfiniBand, whatever carries it. `connections` and `sink` must outlive
// the object.
class WEFT_API InfinibandTransport {
 public:
  // `management`, if given, receives all management datagrams; it must outlive the object as well.
  InfinibandTransport(const InfinibandLimits& limits, ConnectionTable& connections,
                      TrafficSink& sink, ManagementSink* management = nullptr);
  InfinibandTransport(const InfinibandTransport&) = delete;
  InfinibandTransport& operator=(const InfinibandTransport&) = delete;
  ~InfinibandTransport();

  // The input for packets; it lives as long as this object. Its finish() reports what is still
  // open.
  [[nodiscard]] InfinibandPackets& packets();
  // Returns what happened to the packets so far. The reference is valid as long as this object.
  [[nodiscard]] const InfinibandCounts& counts() const;
  // Same as IwarpTransport::forget().
  void forget(ConnectionId connection);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
