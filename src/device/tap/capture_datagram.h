// Captures unreliable datagrams as RoCE v2 packets at RoCE's own UDP port, so that readers
// recognise them although the device uses other ports.
#pragma once

#include <memory>

#include "device/datagram/datagram_packet.h"
#include "device/tap/device_capture.h"
#include "wire/pcapng.h"

namespace weft::device {

// Thread-safe. In the child of fork() nothing is written.
class DatagramTap {
 public:
  explicit DatagramTap(std::shared_ptr<DeviceCapture> capture) : capture_(std::move(capture)) {}

  // Whether anything is captured now.
  [[nodiscard]] bool wanted() const { return capture_->running(); }
  // Writes a packet. `packet` reaches from the BTH to the pad; `icrc` is the value to show.
  void write(const DatagramRoute& route, Bytes packet, std::uint32_t icrc,
             wire::PcapngDirection direction);

 private:
  std::shared_ptr<DeviceCapture> capture_;
};

}  // namespace weft::device
