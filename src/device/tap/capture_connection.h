// A TCP connection as a capture shows it: the sequence numbers of both directions. Two ends of one
// connection in the same process share it, so that the file has one sequence space for them.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>

#include "device/tap/capture_frame.h"
#include "device/tap/capture_writer.h"
#include "wire/pcapng.h"
#include "wire/tcp.h"

namespace weft::device {

// Thread-safe.
class CaptureConnection {
 public:
  using Lock = std::unique_lock<std::recursive_mutex>;
  // The end whose tap was made first, and the other one.
  enum class End : std::uint8_t { first, second };

  CaptureConnection(CaptureWriter& writer, const CaptureEndpoint& first,
                    const CaptureEndpoint& second);
  CaptureConnection(const CaptureConnection&) = delete;
  CaptureConnection& operator=(const CaptureConnection&) = delete;

  // Returns a lock that keeps packets of the other end out of the file. It is empty if nothing can
  // be written any more, and after fork(), when another thread may have held it forever.
  [[nodiscard]] Lock lock();

  // The second end has a tap too: from now on each end writes what it sends, and nothing else.
  void join();
  // Writes the handshake, in which `client` connects.
  void open(End client);
  // Write what `end` has sent or received; the latter only if the sender has no tap.
  void sent(End end, std::span<const iovec> pieces, std::size_t bytes);
  void received(End end, std::span<const iovec> pieces, std::size_t bytes);
  // Write the FIN of `end`, or that of its peer, which is written only if the peer has no tap.
  void closed(End end);
  void peer_closed(End end);
  void reset(End end);

 private:
  // The sender of one direction.
  struct Half {
    CaptureEndpoint endpoint;
    wire::PcapngDirection direction;
    std::uint32_t sequence;          // of the next byte
    std::uint32_t acknowledged = 0;  // sequence number that the other half has acknowledged
    std::uint16_t ip_id = 0;
    bool finished = false;
  };

  [[nodiscard]] Half& half(End end) { return halves_[static_cast<std::size_t>(end)]; }
  [[nodiscard]] Half& peer(End end) { return halves_[1 - static_cast<std::size_t>(end)]; }
  void data(Half& from, Half& to, std::span<const iovec> pieces, std::size_t bytes);
  void finish(Half& from, Half& to);
  void end_packet(Half& from, Half& to, wire::TcpHeader tcp);
  void bare_packet(Half& from, Half& to, std::uint8_t flags);
  void syn_packet(Half& from, Half& to, std::uint8_t flags);
  void write() { writer_.write(batch_.vectors(), batch_.packets()); }

  CaptureWriter& writer_;
  std::recursive_mutex mutex_;
  std::array<Half, 2> halves_;
  bool both_tapped_ = false;
  bool over_ = false;  // after reset()
  CaptureBatch batch_;
};

// The connections of a file with a tap at one end, so that the tap of the other end finds its own.
// Thread-safe.
class CaptureConnections {
 public:
  struct Found {
    std::shared_ptr<CaptureConnection> connection;
    CaptureConnection::End end;
  };

  // Returns the connection of an end with these addresses. For the first end it is new, and its
  // handshake is written. `active`: this end has connected.
  [[nodiscard]] Found add(CaptureWriter& writer, const CaptureEndpoint& local,
                          const CaptureEndpoint& remote, bool active);

 private:
  // Addresses and ports of an end and of its peer.
  using Key = std::tuple<wire::Ipv6Address, std::uint16_t, wire::Ipv6Address, std::uint16_t>;

  [[nodiscard]] static Key key_of(const CaptureEndpoint& local, const CaptureEndpoint& remote);

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<CaptureConnection>> alone_;
  std::size_t swept_at_ = 64;  // number of entries at which those of ended connections are removed
};

}  // namespace weft::device
