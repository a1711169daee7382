#include "device/tap/capture_connection.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace weft::device {

namespace {

namespace flag = wire::tcp_flag;

// With its headers a segment stays below 65535 bytes, the most that the length of IPv4 can hold.
constexpr std::size_t segment_bytes = 65'000;
constexpr std::uint16_t window = 65'535;
// 1 GiB, TCP's maximum, so that readers do not report the flow as window-limited.
constexpr std::uint8_t window_scale = 14;
// Write an acknowledgement for every MiB of a one-way flow, so that readers can follow it past 2^31
// bytes.
constexpr std::uint32_t acknowledge_bytes = 1 << 20;

// The initial sequence number, different for each connection: readers use it to separate
// connections that reuse ports.
std::uint32_t initial_sequence(const CaptureEndpoint& endpoint, std::uint32_t connection) {
  // Any mix would do. These are the golden ratio's fraction and the prime of FNV-1a.
  std::uint32_t hash = connection * 0x9E3779B9u ^ endpoint.port;
  for (const std::byte byte : endpoint.address) {
    hash = (hash ^ std::to_integer<std::uint32_t>(byte)) * 0x01000193u;
  }
  return hash ^ hash >> 15;
}

std::size_t total_bytes(std::span<const iovec> pieces) {
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

// Iterates over pieces of memory.
class Cursor {
 public:
  explicit Cursor(std::span<const iovec> pieces) : pieces_(pieces) {}

  // Returns the longest contiguous part of the next `bytes` bytes, which must exist; empty for an
  // empty piece.
  Bytes next(std::size_t bytes) {
    const iovec& piece = pieces_.front();
    const Bytes rest = {static_cast<const std::byte*>(piece.iov_base) + offset_,
                        std::min(piece.iov_len - offset_, bytes)};
    offset_ += rest.size();
    if (offset_ == piece.iov_len) {
      pieces_ = pieces_.subspan(1);
      offset_ = 0;
    }
    return rest;
  }

 private:
  std::span<const iovec> pieces_;
  std::size_t offset_ = 0;
};

}  // namespace

CaptureConnection::CaptureConnection(CaptureWriter& writer, const CaptureEndpoint& first,
                                     const CaptureEndpoint& second, StreamPosition begin)
    : writer_(writer), halves_([&] {
        const std::uint32_t number = writer.next_connection();
        return std::array<Half, 2>{Half{.endpoint = first,
                                        .direction = wire::PcapngDirection::outbound,
                                        .initial = initial_sequence(first, number),
                                        .begin = begin.sent,
                                        .next = begin.sent,
                                        .own_from = begin.sent,
                                        .acknowledged = begin.sent},
                                   Half{.endpoint = second,
                                        .direction = wire::PcapngDirection::inbound,
                                        .initial = initial_sequence(second, number),
                                        .begin = begin.received,
                                        .next = begin.received,
                                        .acknowledged = begin.received}};
      }()) {}

// After fork(2) the mutex may be held by a thread that the child does not have.
CaptureConnection::Lock CaptureConnection::lock() {
  return writer_.forgotten() ? Lock() : Lock(mutex_);
}

void CaptureConnection::join(StreamPosition begin) {
  const Lock locked = lock();
  half(End::second).own_from = begin.sent;
}

// The SYNs carry the window scale, without which readers would compute a window of 64 KiB.
void CaptureConnection::open(End client) {
  const Lock locked = lock();
  if (!writer_.writable()) return writer_.count_lost(3);
  batch_.restart(3);
  syn_packet(half(client), peer(client), flag::syn);
  syn_packet(peer(client), half(client), flag::syn | flag::ack);
  bare_packet(half(client), peer(client), flag::ack);
  write();
}

void CaptureConnection::sent(End end, std::span<const iovec> pieces, std::size_t bytes,
                             std::uint64_t at) {
  const Lock locked = lock();
  data(half(end), peer(end), pieces, {0, std::min(bytes, total_bytes(pieces)), at});
}

// What the other end has written itself, when it sent it, is left out. So is what it has sent
// before the capture began, unless the file has bytes in front of it.
void CaptureConnection::received(End end, std::span<const iovec> pieces, std::size_t bytes,
                                 std::uint64_t at) {
  const Lock locked = lock();
  Half& from = peer(end);
  const std::uint64_t first = std::max(at, from.begin);
  const std::uint64_t last = std::min(at + std::min(bytes, total_bytes(pieces)), from.own_from);
  if (first >= last) return;
  data(from, half(end), pieces,
       {static_cast<std::size_t>(first - at), static_cast<std::size_t>(last - first), first});
}

void CaptureConnection::closed(End end) {
  const Lock locked = lock();
  finish(half(end), peer(end));
}

void CaptureConnection::peer_closed(End end) {
  const Lock locked = lock();
  if (!peer(end).is_tapped()) finish(peer(end), half(end));
}

void CaptureConnection::reset(End end) {
  const Lock locked = lock();
  if (over_) return;
  over_ = true;
  if (!writer_.writable()) return writer_.count_lost(1);
  batch_.restart(1);
  bare_packet(half(end), peer(end), flag::rst | flag::ack);
  write();
}

// When no further packets can be written the segments are only counted, so that a failed capture
// costs nothing.
void CaptureConnection::data(Half& from, Half& to, std::span<const iovec> pieces, Part part) {
  auto [skipped, bytes, at] = part;
  const std::size_t segments = (bytes + segment_bytes - 1) / segment_bytes;
  if (segments == 0 || over_ || (from.finished && at >= from.next)) return;
  if (!writer_.writable()) return writer_.count_lost(segments);
  // One packet more than the segments: the acknowledgement that may follow.
  batch_.restart(segments + 1);
  Cursor cursor(pieces);
  while (skipped > 0) skipped -= cursor.next(skipped).size();
  wire::TcpHeader tcp;
  tcp.flags = flag::psh | flag::ack;
  // Where a capture begins within a connection, bytes that were on their way then may be written
  // behind later ones. Readers put them into order.
  while (bytes > 0) {
    const std::size_t segment = std::min(bytes, segment_bytes);
    batch_.begin();
    for (std::size_t left = segment; left > 0;) {
      const Bytes piece = cursor.next(left);
      batch_.payload(piece);
      left -= piece.size();
    }
    tcp.sequence = from.sequence_at(at);
    end_packet(from, to, tcp);
    at += segment;
    bytes -= segment;
    from.next = std::max(from.next, at);
  }
  if (from.next - from.acknowledged >= acknowledge_bytes) bare_packet(to, from, flag::ack);
  write();
}

// The second FIN is acknowledged, which ends the connection for readers.
void CaptureConnection::finish(Half& from, Half& to) {
  if (over_ || from.finished) return;
  if (!writer_.writable()) {
    from.finished = true;
    return writer_.count_lost(to.finished ? 2 : 1);
  }
  batch_.restart(2);
  bare_packet(from, to, flag::fin | flag::ack);
  from.finished = true;
  if (to.finished) bare_packet(to, from, flag::ack);
  write();
}

// Completes the packet in `batch_`. A packet with ACK acknowledges everything that the other half
// has sent so far.
void CaptureConnection::end_packet(Half& from, Half& to, wire::TcpHeader tcp) {
  tcp.window = window;
  if (tcp.has(flag::ack)) {
    tcp.acknowledgement = to.sequence();
    to.acknowledged = to.next;
  }
  batch_.finish({from.endpoint, to.endpoint, from.direction, from.ip_id++}, tcp);
}

void CaptureConnection::bare_packet(Half& from, Half& to, std::uint8_t flags) {
  batch_.begin();
  wire::TcpHeader tcp;
  tcp.sequence = from.sequence();
  tcp.flags = flags;
  end_packet(from, to, tcp);
}

void CaptureConnection::syn_packet(Half& from, Half& to, std::uint8_t flags) {
  batch_.begin();
  wire::TcpHeader tcp;
  tcp.sequence = from.initial;
  tcp.flags = flags;
  tcp.mss_bytes = segment_bytes;
  tcp.window_scale = window_scale;
  end_packet(from, to, tcp);
}

// --- The ends of one connection ------------------------------------------------------------------

CaptureConnections::Key CaptureConnections::key_of(const CaptureEndpoint& local,
                                                   const CaptureEndpoint& remote) {
  return {local.address, local.port, remote.address, remote.port};
}

// A connection that has found its second end, or that has ended, leaves the table: the next one may
// have the same addresses. The handshake is written before the other end can find the connection.
CaptureConnections::Found CaptureConnections::add(CaptureWriter& writer,
                                                  const CaptureEndpoint& local,
                                                  const CaptureEndpoint& remote, bool active,
                                                  StreamPosition begin) {
  using End = CaptureConnection::End;
  const bool fresh = begin.sent == 0 && begin.received == 0;
  if (!writer.writable()) {  // after fork() the lock may be held forever
    auto counting = std::make_shared<CaptureConnection>(writer, local, remote, begin);
    if (fresh) counting->open(active ? End::first : End::second);
    return {std::move(counting), End::first};
  }
  const std::lock_guard locked(mutex_);
  if (const auto first = alone_.find(key_of(remote, local)); first != alone_.end()) {
    auto connection = first->second.lock();
    alone_.erase(first);
    if (connection) {
      connection->join(begin);
      return {std::move(connection), End::second};
    }
  }
  // The table is swept only when it has doubled, so that the cost of each new connection is
  // constant on average.
  if (alone_.size() >= swept_at_) {
    std::erase_if(alone_, [](const auto& entry) { return entry.second.expired(); });
    swept_at_ = 2 * alone_.size() + 64;
  }
  auto connection = std::make_shared<CaptureConnection>(writer, local, remote, begin);
  if (fresh) connection->open(active ? End::first : End::second);
  alone_.insert_or_assign(key_of(local, remote), connection);
  return {std::move(connection), End::first};
}

}  // namespace weft::device
