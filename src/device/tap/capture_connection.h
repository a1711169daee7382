// A TCP connection as a capture shows it: the sequence numbers of both directions, which follow
// from the positions in the streams. Two ends of one connection in the same process share it, so
// that the file has one sequence space for them.
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
#include "device/tap/capture_tap.h"
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

  // `begin` is where the first end is.
  CaptureConnection(CaptureWriter& writer, const CaptureEndpoint& first,
                    const CaptureEndpoint& second, StreamPosition begin);
  CaptureConnection(const CaptureConnection&) = delete;
  CaptureConnection& operator=(const CaptureConnection&) = delete;

  // Returns a lock that keeps packets of the other end out of the file. It is empty after fork(),
  // when another thread may have held it forever.
  [[nodiscard]] Lock lock();

  // The second end has a tap too: from here on each end writes what it sends. What the second end
  // has sent before, the first end still writes when it receives it.
  void join(StreamPosition begin);
  // Writes the handshake, in which `client` connects. For a connection that has moved nothing yet.
  void open(End client);
  // Write what `end` has sent or received; the latter only if the sender's tap has not written it.
  // `at`: the position of the first byte in the stream.
  void sent(End end, std::span<const iovec> pieces, std::size_t bytes, std::uint64_t at);
  void received(End end, std::span<const iovec> pieces, std::size_t bytes, std::uint64_t at);
  // Write the FIN of `end`, or that of its peer, which is written only if the peer has no tap.
  void closed(End end);
  void peer_closed(End end);
  void reset(End end);

 private:
  // The sender of one direction. Positions are those of its stream.
  struct Half {
    static constexpr std::uint64_t never = UINT64_MAX;

    CaptureEndpoint endpoint;
    wire::PcapngDirection direction;
    std::uint32_t initial;           // its initial sequence number
    std::uint64_t begin;             // of what the file has
    std::uint64_t next;              // behind the last byte in the file
    std::uint64_t own_from = never;  // its own tap writes what it sends from here on
    std::uint64_t acknowledged = 0;  // that the other half has acknowledged
    std::uint16_t ip_id = 0;
    bool finished = false;

    [[nodiscard]] bool is_tapped() const { return own_from != never; }
    // SYN and FIN take one sequence number each (RFC 9293 §3.4).
    [[nodiscard]] std::uint32_t sequence_at(std::uint64_t position) const {
      return initial + 1 + static_cast<std::uint32_t>(position);
    }
    [[nodiscard]] std::uint32_t sequence() const { return sequence_at(next) + (finished ? 1 : 0); }
  };

  [[nodiscard]] Half& half(End end) { return halves_[static_cast<std::size_t>(end)]; }
  [[nodiscard]] Half& peer(End end) { return halves_[1 - static_cast<std::size_t>(end)]; }
  // A part of `pieces`, and where it is in the stream.
  struct Part {
    std::size_t skipped;
    std::size_t bytes;
    std::uint64_t at;
  };

  void data(Half& from, Half& to, std::span<const iovec> pieces, Part part);
  void finish(Half& from, Half& to);
  void end_packet(Half& from, Half& to, wire::TcpHeader tcp);
  void bare_packet(Half& from, Half& to, std::uint8_t flags);
  void syn_packet(Half& from, Half& to, std::uint8_t flags);
  void write() { writer_.write(batch_.vectors(), batch_.packets()); }

  CaptureWriter& writer_;
  std::recursive_mutex mutex_;
  std::array<Half, 2> halves_;
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
  // handshake is written if it has moved nothing. `active`: this end has connected.
  [[nodiscard]] Found add(CaptureWriter& writer, const CaptureEndpoint& local,
                          const CaptureEndpoint& remote, bool active, StreamPosition begin);

 private:
  // Addresses and ports of an end and of its peer.
  using Key = std::tuple<wire::Ipv6Address, std::uint16_t, wire::Ipv6Address, std::uint16_t>;

  [[nodiscard]] static Key key_of(const CaptureEndpoint& local, const CaptureEndpoint& remote);

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<CaptureConnection>> alone_;
  std::size_t swept_at_ = 64;  // number of entries at which those of ended connections are removed
};

}  // namespace weft::device
