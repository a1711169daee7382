// Captures a queue pair that is connected to itself. Its socket carries a single stream with both
// requests and responses, which a reader could not assign to the two sides. So the capture shows
// two ports: requests go from the socket's port to the other one, responses come back. The FPDUs
// are unchanged; the MPA frames, which do not exist on the wire, and the second port are invented.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "device/tap/capture_tap.h"

namespace weft::device {

// Follows the FPDUs of a stream from its first byte on. Not thread-safe.
class FpduBoundary {
 public:
  // The first `bytes` bytes of `pieces` have been sent.
  void pass(std::span<const iovec> pieces, std::size_t bytes);
  // Whether the last byte was the end of an FPDU, or nothing was sent.
  [[nodiscard]] bool reached() const { return missing_ == 0 && length_bytes_ == 0; }

 private:
  void pass(Bytes bytes);

  std::array<std::byte, 2> length_{};  // the field of the FPDU that begins
  std::size_t length_bytes_ = 0;       // how much of it is known
  std::size_t missing_ = 0;            // bytes of the FPDU behind that field
};

// Not thread-safe; guarded by the connection's lock.
class LoopTap {
 public:
  struct Terms {
    std::uint16_t answering_port = 0;
    bool crc = true;
    std::uint16_t read_depth = 0;  // reads and atomics in flight, in either direction
  };

  LoopTap(std::shared_ptr<CaptureFile> file, const sockaddr_storage& local, const Terms& terms);

  // Takes the first `bytes` bytes of `pieces` as sent, in any chunking; writes an FPDU once it is
  // complete. The received bytes are the same and are not passed.
  void sent(std::span<const iovec> pieces, std::size_t bytes);
  // Closes both directions, since there is one socket. Writes the rest of an incomplete FPDU.
  void closed();
  void reset() { tap_.reset(); }

 private:
  void handshake(const Terms& terms);
  void write(std::size_t begin, std::size_t end);

  ConnectionTap tap_;
  std::vector<std::byte> pending_;  // starts at the beginning of an FPDU
  bool answers_ = false;            // the last FPDU was a response
};

}  // namespace weft::device
