// A TCP endpoint that is not Weft: sends what a test passes to it, byte by byte.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/mpa.h"

namespace weft::cm {

class PlainPeer {
 public:
  PlainPeer() = default;
  explicit PlainPeer(int fd) : fd_(fd) {}
  PlainPeer(PlainPeer&& other) noexcept;
  PlainPeer& operator=(PlainPeer&& other) noexcept;
  ~PlainPeer();

  // Connects to 127.0.0.1.
  static PlainPeer connect(std::uint16_t port);

  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void send(Bytes bytes);
  // Reads exactly that many bytes; fewer where the stream ends before, or nothing arrives for long.
  std::vector<std::byte> receive(std::size_t bytes);
  // Reads an MPA frame with its private data; nothing where the stream ends before.
  std::vector<std::byte> receive_frame();
  void send_frame(wire::MpaFrame frame, const wire::MpaEnhanced* enhanced, Bytes data = {});
  // True at the end of the peer's stream, or after its reset.
  bool at_end();
  // Whether the peer has reset the connection.
  [[nodiscard]] bool was_reset() const;
  void close();
  void reset();

 private:
  int fd_ = -1;
};

class PlainListener {
 public:
  explicit PlainListener(int backlog = 8);
  ~PlainListener();
  PlainListener(const PlainListener&) = delete;
  PlainListener& operator=(const PlainListener&) = delete;

  [[nodiscard]] sockaddr_in address() const { return address_; }
  [[nodiscard]] PlainPeer accept() const;

 private:
  int fd_ = -1;
  sockaddr_in address_{};
};

}  // namespace weft::cm
