// Captures without privilege: writes what the device's sockets send and receive as pcapng with
// synthesised Ethernet, IP and TCP headers, which Wireshark and `weft dissect` can read.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace weft::device {

class CaptureWriter;

// A pcapng file, or a function that gets the same bytes. Thread-safe; every block is complete in
// the file when the call returns, so the file can be read while it is written. An advisory lock
// makes sure that one process writes a file at a time; a second process writes PATH.<pid> instead.
class CaptureFile {
 public:
  // The error is a sentence with the path and the next step, and errno is set.
  [[nodiscard]] static Result<std::shared_ptr<CaptureFile>, std::string> open(
      const std::string& path);
  // Calls `function` with whole blocks, with the locks of the connection held that is captured.
  [[nodiscard]] static std::shared_ptr<CaptureFile> to(std::function<void(Bytes)> function);
  ~CaptureFile();
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  // The path in use: PATH, or PATH.<pid> if another process writes PATH; empty for a function.
  [[nodiscard]] const std::string& path() const;
  // For packets outside TCP connections.
  [[nodiscard]] CaptureWriter& writer();

  // The number of packets that are not in the file. The first failing write ends the capture with a
  // message in the log; after it, and after forget_after_fork(), packets are only counted.
  [[nodiscard]] std::uint64_t packets_lost() const;
  // The number of packets in the file.
  [[nodiscard]] std::uint64_t packets() const;
  // False once the capture has ended.
  [[nodiscard]] bool writable() const;

  // Ends the capture: see CaptureWriter::stop().
  bool stop();

  // For the child of fork(): closes the descriptor and discards later packets. Takes no lock, so it
  // may run in a pthread_atfork(3) handler. The parent keeps the file and its lock.
  void forget_after_fork();

 private:
  friend class ConnectionTap;
  struct State;
  explicit CaptureFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The bytes that an end of a TCP connection has sent and received.
struct StreamPosition {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// One end of a TCP connection in a capture. Where both ends are in this process, their taps find
// each other: each writes what its end sends, in one sequence space. Not thread-safe; guarded by
// the connection's lock. The two ends of one connection may have different locks.
class ConnectionTap {
 public:
  using Order = std::unique_lock<std::recursive_mutex>;

  // Writes the three packets of the TCP handshake, unless the other end has done so, or the
  // connection has moved bytes: `begin` is where this end is now. `active`: this end has connected.
  // IPv4-mapped IPv6 addresses are written as IPv4.
  ConnectionTap(std::shared_ptr<CaptureFile> file, const sockaddr_storage& local,
                const sockaddr_storage& remote, bool active, StreamPosition begin = {});
  // Writes the FINs, unless reset() was called; that of the other end only if it has no tap.
  ~ConnectionTap();
  ConnectionTap(const ConnectionTap&) = delete;
  ConnectionTap& operator=(const ConnectionTap&) = delete;

  // Returns a lock for the time from before send(2) until after sent(), so that what the other end
  // sends in answer follows it in the file.
  [[nodiscard]] Order order();
  // Write the first `bytes` bytes of `pieces`, split into segments of at most 65,000 payload bytes;
  // the pieces are read before the call returns. Wireshark loses the FPDU framing permanently if a
  // call begins an FPDU with fewer than eight bytes; any other chunking is fine.
  void sent(std::span<const iovec> pieces, std::size_t bytes);
  void received(std::span<const iovec> pieces, std::size_t bytes);
  // Write the peer's FIN and this end's FIN; nothing more is written in that direction.
  void peer_closed();
  void closed();
  // Writes an RST of this end, for a connection that ended without FINs. Nothing more is written.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::device
