// A queue pair that is connected to itself, in a capture. Its socket carries one stream, in which
// it asks and answers itself; nobody could tell from that who has asked. So the capture shows a
// conversation of two ports: what asks goes from the socket's port to the other, what answers comes
// back. FPDUs are as they were on the wire; the MPA frames, which there are none of, and the
// second port are made up.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "device/tap/capture_tap.h"

namespace weft::device {

// Not thread safe: the connection's lock covers it.
class LoopTap {
 public:
  struct Terms {
    std::uint16_t answering_port = 0;
    bool crc = true;
    std::uint16_t read_depth = 0;  // reads and atomics under way, in either direction
  };

  LoopTap(std::shared_ptr<CaptureFile> file, const sockaddr_storage& local, const Terms& terms);

  // The first `bytes` bytes of `pieces` went out, in any chunking; they are written as soon as an
  // FPDU is whole. What comes in is the same and need not be told.
  void sent(std::span<const iovec> pieces, std::size_t bytes);
  // Both directions at once, as it is one socket. What is left of an FPDU is written.
  void closed();
  void reset() { tap_.reset(); }

 private:
  void handshake(const Terms& terms);
  void write(std::size_t begin, std::size_t end);

  ConnectionTap tap_;
  std::vector<std::byte> pending_;  // from the beginning of an FPDU
  bool answers_ = false;            // who has sent the last FPDU
};

}  // namespace weft::device
