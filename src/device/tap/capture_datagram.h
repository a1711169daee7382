// Unreliable datagrams in a capture: as RoCE v2 packets at its own UDP port, so that readers
// recognise them whatever port the device uses.
#pragma once

#include <memory>

#include "device/datagram/datagram_packet.h"
#include "device/tap/capture_tap.h"
#include "wire/pcapng.h"

namespace weft::device {

class DatagramTap {
 public:
  // `file` may be null: nothing is captured.
  explicit DatagramTap(std::shared_ptr<CaptureFile> file) : file_(std::move(file)) {}

  [[nodiscard]] bool wanted() const { return file_ != nullptr; }
  // `packet`: from the BTH to the pad; the ICRC as it is to be shown. Safe to use from several
  // threads; after fork() in the child nothing is written.
  void write(const DatagramRoute& route, Bytes packet, std::uint32_t icrc,
             wire::PcapngDirection direction);

 private:
  std::shared_ptr<CaptureFile> file_;
};

}  // namespace weft::device
