// A connected TCP socket that carries MPA, with the capture tap around it; or the end of a
// connection that two processes of one host have made without TCP.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/faults/stream_faults.h"
#include "device/faults/stream_link.h"
#include "device/local/local_channel.h"
#include "device/local/pair_end.h"
#include "device/system.h"
#include "device/tap/stream_tap.h"
#include "device/tcp_ends.h"

namespace weft::device {

class StreamSocket {
 public:
  StreamSocket() = default;
  // Takes a connected, non-blocking socket. `active`: this end connected.
  StreamSocket(sys::Descriptor fd, const TcpEnds& ends,
               const std::shared_ptr<DeviceCapture>& capture, bool active);
  // Takes a socket that is connected to itself.
  StreamSocket(sys::Descriptor fd, const std::shared_ptr<DeviceCapture>& capture,
               const LoopTap::Terms& terms);
  // Takes a connection without TCP. `ends`: as TCP would have them.
  StreamSocket(PairEnd pair, const TcpEnds& ends) : ends_(ends), pair_(std::move(pair)) {}
  StreamSocket(StreamSocket&&) noexcept = default;
  StreamSocket& operator=(StreamSocket&&) noexcept = default;

  [[nodiscard]] bool valid() const { return fd_.valid() || pair_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const TcpEnds& ends() const { return ends_; }

  // Bytes moved, 0 where the peer has closed (receive only), or -errno.
  std::ptrdiff_t send(std::span<const iovec> pieces);
  std::ptrdiff_t receive(std::span<const iovec> pieces);
  // What the rules of faults do to this connection; null: nothing.
  void set_faults(std::unique_ptr<StreamFaults> faults) {
    faults_ = std::move(faults);
    note_shaping();
  }
  [[nodiscard]] StreamFaults* faults() const { return faults_.get(); }
  // A slower network from here on; null: none.
  void set_link(std::unique_ptr<StreamLink> link) {
    link_ = std::move(link);
    note_shaping();
  }
  [[nodiscard]] StreamLink* link() const { return link_.get(); }
  // Sends what the link has carried by now. 0 or -errno.
  std::ptrdiff_t flush_link(std::uint64_t now_ns);
  // Ends the link. Returns the bytes that it has taken and not sent yet.
  [[nodiscard]] std::vector<std::byte> end_link();
  // Whether faults or a link act on this connection.
  [[nodiscard]] bool shaped() const { return shaped_; }
  // What the active side has opened beside the connection, if the peer is on this host.
  void set_channel(LocalChannel channel) { channel_ = std::move(channel); }
  [[nodiscard]] bool has_channel() const { return channel_.valid(); }
  [[nodiscard]] LocalChannel take_channel() { return std::move(channel_); }
  // A connection without TCP. It has no descriptor, and nothing is sent or received here.
  [[nodiscard]] bool has_pair() const { return pair_.valid(); }
  [[nodiscard]] PairEnd& pair() { return pair_; }

  void shutdown_write();
  void close();
  // In the child after fork(2): forgets the descriptor, which the engine has closed, and leaves the
  // connection to the parent.
  void disown() {
    (void)fd_.release();
    pair_.abandon_after_fork();
    channel_.close();
    pair_ = {};
  }
  // Gives up the connection without closing it.
  [[nodiscard]] sys::Descriptor release() { return std::move(fd_); }
  // Sends a reset instead of an orderly end: the peer sees the connection as lost.
  void abort();

  [[nodiscard]] std::uint64_t written_bytes() const { return tap_.position().sent; }
  // How many of them the peer's TCP has acknowledged. Also right after a reset.
  [[nodiscard]] std::uint64_t acknowledged_bytes() const;
  [[nodiscard]] std::size_t mulpdu_bytes(bool markers) const;

 private:
  void note_shaping() {
    shaped_ = faults_ || link_;
    tap_.ask_always(shaped_);
  }
  std::ptrdiff_t move_followed(std::span<const iovec> pieces, bool sending);
  std::ptrdiff_t send_now(std::span<const iovec> pieces);
  std::ptrdiff_t receive_now(std::span<const iovec> pieces);
  std::ptrdiff_t move_shaped(std::span<const iovec> pieces, bool sending);
  std::ptrdiff_t carry(std::span<const iovec> pieces, bool sending);
  std::ptrdiff_t send_late(std::span<const iovec> pieces);
  std::ptrdiff_t receive_late(std::span<const iovec> pieces);

  sys::Descriptor fd_;
  TcpEnds ends_;
  StreamTap tap_;
  std::unique_ptr<StreamFaults> faults_;
  std::unique_ptr<StreamLink> link_;
  LocalChannel channel_;
  PairEnd pair_;
  bool active_ = false;
  bool shaped_ = false;
  bool write_shut_ = false;
};

// Sets the socket options of every connection: no delay, and on one host a congestion control that
// does not pace.
void tune(int fd, bool same_host);
// For a connection that came from a listener of the program.
void clear_inherited_options(int fd);
// Makes a connection whose two ends are one socket, which receives what it sends. 0 or an errno
// value.
int connect_to_itself(sys::Descriptor& socket);
// Negative: left as the system has it.
void apply_tos(int fd, int family, int tos);

}  // namespace weft::device
