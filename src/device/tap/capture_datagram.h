// Captures unreliable datagrams as RoCE v2 packets at RoCE's own UDP port, so that readers
// recognise them although the device uses other ports.
#pragma once

#include <memory>

#include "device/datagram/datagram_packet.h"
#include "device/tap/capture_tap.h"
#include "wire/pcapng.h"

namespace weft::device {

// Thread-safe. In the child of fork() nothing is written.
class DatagramTap {
 public:
  // `file` may be null: then nothing is captured.
  explicit DatagramTap(std::shared_ptr<CaptureFile> file) : file_(std::move(file)) {}

  [[nodiscard]] bool wanted() const { return file_ != nullptr; }
  // Writes a packet. `packet` reaches from the BTH to the pad; `icrc` is the value to show.
  void write(const DatagramRoute& route, Bytes packet, std::uint32_t icrc,
             wire::PcapngDirection direction);

 private:
  std::shared_ptr<CaptureFile> file_;
};

}  // namespace weft::device
