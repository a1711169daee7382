// Capture without privilege: what the device's sockets send and receive, written as pcapng with
// synthesised Ethernet, IP and TCP headers, so that Wireshark and `weft dissect` can read it.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace weft::device {

class CaptureWriter;

// One pcapng file. Safe to use from several threads; every block is complete in the file when the
// call returns, so the file may be read while it is being written. One process writes a file at a
// time (an advisory lock); a second one writes PATH.<pid> instead.
class CaptureFile {
 public:
  // The error is a sentence that names the path and the next step.
  [[nodiscard]] static Result<std::shared_ptr<CaptureFile>, std::string> open(
      const std::string& path);
  ~CaptureFile();
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  // The path in use: PATH, or PATH.<pid> where PATH had a writer.
  [[nodiscard]] const std::string& path() const;
  // For packets that belong to no connection.
  [[nodiscard]] CaptureWriter& writer();

  // Packets that did not reach the file. The first failing write ends a capture and is said on
  // standard error; after it, and after forget_after_fork(), packets are only counted.
  [[nodiscard]] std::uint64_t packets_lost() const;

  // After fork() in the child: the descriptor is closed, later writes go nowhere. Takes no lock, so
  // it may run in a pthread_atfork handler. The parent keeps the file and its lock.
  void forget_after_fork();

 private:
  friend class ConnectionTap;
  struct State;
  explicit CaptureFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// One TCP connection in a capture. Not thread safe: the connection's lock covers it.
class ConnectionTap {
 public:
  // Writes the three packets that open a connection. `active`: this end connected. IPv4-mapped IPv6
  // addresses are written as IPv4.
  ConnectionTap(std::shared_ptr<CaptureFile> file, const sockaddr_storage& local,
                const sockaddr_storage& remote, bool active);
  // Writes the FINs, unless reset() came before.
  ~ConnectionTap();
  ConnectionTap(const ConnectionTap&) = delete;
  ConnectionTap& operator=(const ConnectionTap&) = delete;

  // The first `bytes` bytes of `pieces` went out, or came in. Split into segments of at most 65,000
  // payload bytes; reads the pieces before it returns. Wireshark loses the framing for good where a
  // call begins an FPDU with fewer than eight bytes; any other chunking is fine.
  void sent(std::span<const iovec> pieces, std::size_t bytes);
  void received(std::span<const iovec> pieces, std::size_t bytes);
  // A FIN from the peer, a FIN from us; nothing more is written in that direction.
  void peer_closed();
  void closed();
  // The connection ended without FINs: an RST from us. Nothing more is written.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::device
