#include "device/connect/stream_socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "wire/mpa.h"

namespace weft::device {
namespace {

// As many as one call of sendmsg(2) takes.
std::span<const iovec> at_once(std::span<const iovec> pieces) {
  constexpr std::size_t most_pieces = 1024;  // IOV_MAX
  return pieces.first(std::min(pieces.size(), most_pieces));
}

}  // namespace

// `active` is the end that has connected; a capture shows the TCP handshake from its side.
StreamSocket::StreamSocket(sys::Descriptor fd, const TcpEnds& ends,
                           const std::shared_ptr<DeviceCapture>& capture, bool active)
    : fd_(std::move(fd)), ends_(ends), tap_(fd_.get(), capture, active), active_(active) {}

StreamSocket::StreamSocket(sys::Descriptor fd, const std::shared_ptr<DeviceCapture>& capture,
                           const LoopTap::Terms& terms)
    : fd_(std::move(fd)),
      ends_(TcpEnds::of(fd_.get())),
      tap_(fd_.get(), capture, terms),
      active_(true) {}

// One question for captures, faults and links together, since nearly all connections have none.
std::ptrdiff_t StreamSocket::send(std::span<const iovec> pieces) {
  if (tap_.asks()) [[unlikely]]
    return move_followed(pieces, true);
  const auto sent = sys::send(fd_.get(), at_once(pieces));
  if (sent > 0) tap_.count_sent(static_cast<std::size_t>(sent));
  return sent;
}

std::ptrdiff_t StreamSocket::receive(std::span<const iovec> pieces) {
  if (tap_.asks()) [[unlikely]]
    return move_followed(pieces, false);
  const auto got = sys::receive(fd_.get(), pieces);
  if (got > 0) tap_.count_received(static_cast<std::size_t>(got));
  return got;
}

std::ptrdiff_t StreamSocket::move_followed(std::span<const iovec> pieces, bool sending) {
  if (shaped_) return move_shaped(pieces, sending);
  return sending ? send_now(pieces) : receive_now(pieces);
}

std::ptrdiff_t StreamSocket::move_shaped(std::span<const iovec> pieces, bool sending) {
  if (!faults_) return carry(pieces, sending);
  faults_->on_time(sys::now_ns());
  switch (faults_->state()) {
    case StreamFaults::State::silent:
      return -EAGAIN;
    case StreamFaults::State::closed:
      shutdown_write();
      return sending ? -EPIPE : 0;
    case StreamFaults::State::reset:
      return -ECONNRESET;
    case StreamFaults::State::open:
      break;
  }
  const auto part = faults_->shape(pieces, sending);
  const auto moved = carry(part, sending);
  if (moved > 0) faults_->moved(static_cast<std::size_t>(moved));
  return moved;
}

std::ptrdiff_t StreamSocket::carry(std::span<const iovec> pieces, bool sending) {
  if (!link_) return sending ? send_now(pieces) : receive_now(pieces);
  return sending ? send_late(pieces) : receive_late(pieces);
}

// An error of the socket is that of an earlier call, as TCP reports errors late as well.
std::ptrdiff_t StreamSocket::send_late(std::span<const iovec> pieces) {
  const std::uint64_t now_ns = sys::now_ns();
  if (const auto failed = flush_link(now_ns)) return failed;
  const auto taken = link_->take(pieces, now_ns);
  if (taken <= 0) return taken;
  const auto failed = flush_link(now_ns);
  return failed != 0 ? failed : taken;
}

std::ptrdiff_t StreamSocket::flush_link(std::uint64_t now_ns) {
  DelayedBytes& outgoing = link_->outgoing();
  for (auto part = outgoing.due(now_ns); !part.empty(); part = outgoing.due(now_ns)) {
    const iovec piece{const_cast<std::byte*>(part.data()), part.size()};
    const auto sent = send_now({&piece, 1});
    if (sent == -EAGAIN || sent == -EINTR) return 0;
    if (sent < 0) return sent;
    outgoing.remove(static_cast<std::size_t>(sent));
  }
  return 0;
}

std::vector<std::byte> StreamSocket::end_link() {
  std::vector<std::byte> rest;
  if (!link_) return rest;
  DelayedBytes& outgoing = link_->outgoing();
  constexpr std::uint64_t whenever = DelayedBytes::never_ns - 1;
  for (auto part = outgoing.due(whenever); !part.empty(); part = outgoing.due(whenever)) {
    rest.insert(rest.end(), part.begin(), part.end());
    outgoing.remove(part.size());
  }
  set_link(nullptr);
  return rest;
}

// Reads the socket empty first, because the time on the link begins when bytes arrive. The clock is
// read behind each of them: a thread that was interrupted before would deliver them too early.
std::ptrdiff_t StreamSocket::receive_late(std::span<const iovec> pieces) {
  std::array<std::byte, 65536> buffer;
  while (link_->reads()) {
    const iovec piece{buffer.data(), buffer.size()};
    const auto got = receive_now({&piece, 1});
    if (got == -EAGAIN || got == -EINTR) break;
    if (got <= 0) {
      link_->end(got);
    } else {
      link_->arrived(std::span(buffer).first(static_cast<std::size_t>(got)), sys::now_ns());
    }
  }
  return link_->deliver(pieces, sys::now_ns());
}

std::ptrdiff_t StreamSocket::send_now(std::span<const iovec> pieces) {
  const auto part = at_once(pieces);
  tap_.follow();
  // Held across the system call: in the file our bytes must come before the peer's answer to them.
  const auto order = tap_.order();
  const auto sent = sys::send(fd_.get(), part);
  // A capture has what TCP has taken, not what was offered.
  if (sent > 0) tap_.sent(part, static_cast<std::size_t>(sent));
  return sent;
}

std::ptrdiff_t StreamSocket::receive_now(std::span<const iovec> pieces) {
  tap_.follow();
  const auto got = sys::receive(fd_.get(), pieces);
  if (got > 0) tap_.received(pieces, static_cast<std::size_t>(got));
  if (got == 0) tap_.peer_closed();
  if (got == -ECONNRESET) tap_.reset();
  return got;
}

void StreamSocket::shutdown_write() {
  if (write_shut_ || !fd_.valid()) return;
  write_shut_ = true;
  const auto order = tap_.order();
  sys::shutdown(fd_.get(), SHUT_WR);
  tap_.closed();
}

void StreamSocket::close() {
  pair_ = {};
  tap_.finish();
  fd_.reset();
}

void StreamSocket::abort() {
  if (!fd_.valid()) return;
  // socket(7): with a linger time of 0 close() sends a reset.
  const linger now{.l_onoff = 1, .l_linger = 0};
  sys::set_option(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  tap_.reset();
  close();
}

// A sandbox may refuse TCP_INFO. The length of the queue then says the same, but for the FIN of
// this end, which counts as a byte of it.
std::uint64_t StreamSocket::acknowledged_bytes() const {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (sys::get_option(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0) {
    const int queued = sys::unacknowledged_bytes(fd_.get());
    if (queued < 0) return 0;
    return written_bytes() - std::min<std::uint64_t>(written_bytes(), queued);
  }
  // Linux counts the SYN of the side that connected as a byte.
  const std::uint64_t syn = active_ ? 1 : 0;
  const std::uint64_t acknowledged = info.tcpi_bytes_acked;
  return std::min(written_bytes(), acknowledged > syn ? acknowledged - syn : 0);
}

std::size_t StreamSocket::mulpdu_bytes(bool markers) const {
  int segment = 0;
  socklen_t bytes = sizeof segment;
  // 536 is TCP's default segment size (RFC 9293 §3.7.1).
  if (sys::get_option(fd_.get(), IPPROTO_TCP, TCP_MAXSEG, &segment, &bytes) < 0) segment = 536;
  return wire::mulpdu_bytes(static_cast<std::size_t>(std::max(segment, 0)), markers);
}

// FPDUs leave as soon as they are built. Nagle's algorithm would keep a small one back until the
// one before it is acknowledged.
void tune(int fd, bool same_host) {
  sys::set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (!same_host) return;
  // Allowed to everybody; where it is not, TCP works all the same.
  constexpr char reno[] = "reno";
  sys::set_option(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof reno - 1);
}

// An accepted socket has the options of its listener (socket(7), tcp(7)), which a program has set
// for itself. TCP_CORK would keep short FPDUs back for 200 ms, SO_RCVLOWAT would hide them from
// epoll(7), and SO_LINGER would let close(2) wait or reset the connection.
void clear_inherited_options(int fd) {
  sys::set_option(fd, IPPROTO_TCP, TCP_CORK, 0);
  sys::set_option(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
  constexpr linger none{};
  sys::set_option(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

// TCP knows two sides that open a connection at the same time (RFC 9293 §3.5); they may be one.
int connect_to_itself(sys::Descriptor& socket) {
  sys::Descriptor made(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!made.valid()) return -made.release();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  int failed = -sys::bind(made.get(), generic, sizeof address);
  if (failed != 0) return failed;
  sockaddr_storage own{};
  sys::local_address(made.get(), &own);
  tune(made.get(), true);
  failed = -sys::connect(made.get(), reinterpret_cast<const sockaddr*>(&own), sizeof address);
  if (failed != 0) return failed;
  sys::set_nonblocking(made.get());
  socket = std::move(made);
  return 0;
}

// rdma_set_option(3), RDMA_OPTION_ID_TOS. An IPv6 socket needs both options, because it may carry
// IPv4.
void apply_tos(int fd, int family, int tos) {
  if (tos < 0) return;
  sys::set_option(fd, IPPROTO_IP, IP_TOS, tos);
  if (family == AF_INET6) sys::set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, tos);
}

}  // namespace weft::device
