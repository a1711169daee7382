#include "device/tap/capture_tap.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "device/tap/capture_frame.h"
#include "device/tap/capture_writer.h"
#include "wire/pcapng.h"
#include "wire/tcp.h"

namespace weft::device {

namespace {

namespace flag = wire::tcp_flag;

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
  std::uint32_t hash = connection * 0x9E3779B9u ^ endpoint.port;
  for (const std::byte byte : endpoint.address) {
    hash = (hash ^ std::to_integer<std::uint32_t>(byte)) * 0x01000193u;
  }
  return hash ^ hash >> 15;
}

// One direction of a connection: the sender's state.
struct Half {
  CaptureEndpoint endpoint;
  wire::PcapngDirection direction;
  std::uint32_t sequence = 0;      // of the next byte
  std::uint32_t acknowledged = 0;  // sequence number that the other half has acknowledged
  std::uint16_t ip_id = 0;
  bool finished = false;

  Half(const sockaddr_storage& address, wire::PcapngDirection way, std::uint32_t connection)
      : endpoint(CaptureEndpoint::of(address)),
        direction(way),
        sequence(initial_sequence(endpoint, connection)) {}
};

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

// Writes the blocks at the beginning of every file.
void write_preamble(CaptureWriter& writer) {
  const wire::PcapngSection section{"weft"};
  wire::PcapngInterface interface;
  interface.resolution = wire::PcapngInterface::resolution_nanoseconds;
  interface.name = "weft0";
  std::array<std::byte, 128> bytes;
  section.emit(bytes);
  interface.emit(MutableBytes(bytes).subspan(section.size()));
  iovec vector{bytes.data(), section.size() + interface.size()};
  writer.write({&vector, 1}, 0);
}

}  // namespace

struct CaptureFile::State {
  std::unique_ptr<CaptureWriter> writer;
};

Result<std::shared_ptr<CaptureFile>, std::string> CaptureFile::open(const std::string& path) {
  auto writer = CaptureWriter::open(path);
  if (!writer) return writer.error();
  write_preamble(**writer);
  auto state = std::make_unique<State>(State{std::move(*writer)});
  return std::shared_ptr<CaptureFile>(new CaptureFile(std::move(state)));
}

CaptureFile::CaptureFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
CaptureFile::~CaptureFile() = default;

const std::string& CaptureFile::path() const {
  return state_->writer->path();
}
CaptureWriter& CaptureFile::writer() {
  return *state_->writer;
}
std::uint64_t CaptureFile::packets_lost() const {
  return state_->writer->packets_lost();
}
void CaptureFile::forget_after_fork() {
  state_->writer->forget();
}

struct ConnectionTap::State {
  std::shared_ptr<CaptureFile> file;
  CaptureWriter& writer;
  const std::uint32_t connection = writer.next_connection();
  Half local;
  Half remote;
  bool over = false;  // after reset()
  CaptureBatch batch;

  State(std::shared_ptr<CaptureFile> capture, const sockaddr_storage& local_address,
        const sockaddr_storage& remote_address)
      : file(std::move(capture)),
        writer(*file->state_->writer),
        local(local_address, wire::PcapngDirection::outbound, connection),
        remote(remote_address, wire::PcapngDirection::inbound, connection) {}

  void open(Half& client, Half& server);
  void data(Half& from, Half& to, std::span<const iovec> pieces, std::size_t bytes);
  void finish(Half& from, Half& to);
  void reset();

 private:
  void end_packet(Half& from, Half& to, wire::TcpHeader tcp);
  void bare_packet(Half& from, Half& to, std::uint8_t flags);
  void syn_packet(Half& from, Half& to, std::uint8_t flags);
  void write() { writer.write(batch.vectors(), batch.packets()); }
};

// Completes the packet in `batch`. A packet with ACK acknowledges everything that the other half
// has sent so far.
void ConnectionTap::State::end_packet(Half& from, Half& to, wire::TcpHeader tcp) {
  tcp.sequence = from.sequence;
  tcp.window = window;
  if (tcp.has(flag::ack)) {
    tcp.acknowledgement = to.sequence;
    to.acknowledged = to.sequence;
  }
  if (tcp.has(flag::syn) || tcp.has(flag::fin)) ++from.sequence;
  batch.finish({from.endpoint, to.endpoint, from.direction, from.ip_id++}, tcp);
}

void ConnectionTap::State::bare_packet(Half& from, Half& to, std::uint8_t flags) {
  batch.begin();
  wire::TcpHeader tcp;
  tcp.flags = flags;
  end_packet(from, to, tcp);
}

void ConnectionTap::State::syn_packet(Half& from, Half& to, std::uint8_t flags) {
  batch.begin();
  wire::TcpHeader tcp;
  tcp.flags = flags;
  tcp.mss_bytes = segment_bytes;
  tcp.window_scale = window_scale;
  end_packet(from, to, tcp);
}

// The SYNs carry the window scale, without which readers would compute a window of 64 KiB.
void ConnectionTap::State::open(Half& client, Half& server) {
  batch.restart(3);
  syn_packet(client, server, flag::syn);
  syn_packet(server, client, flag::syn | flag::ack);
  bare_packet(client, server, flag::ack);
  write();
}

// When no further packets can be written the segments are only counted, so that a failed capture
// costs nothing.
void ConnectionTap::State::data(Half& from, Half& to, std::span<const iovec> pieces,
                                std::size_t bytes) {
  bytes = std::min(bytes, total_bytes(pieces));
  const std::size_t segments = (bytes + segment_bytes - 1) / segment_bytes;
  if (segments == 0 || over || from.finished) return;
  if (!writer.writable()) return writer.count_lost(segments);
  batch.restart(segments + 1);
  Cursor cursor(pieces);
  wire::TcpHeader tcp;
  tcp.flags = flag::psh | flag::ack;
  while (bytes > 0) {
    const std::size_t segment = std::min(bytes, segment_bytes);
    batch.begin();
    for (std::size_t left = segment; left > 0;) {
      const Bytes piece = cursor.next(left);
      batch.payload(piece);
      left -= piece.size();
    }
    end_packet(from, to, tcp);
    from.sequence += static_cast<std::uint32_t>(segment);
    bytes -= segment;
  }
  if (from.sequence - from.acknowledged >= acknowledge_bytes) bare_packet(to, from, flag::ack);
  write();
}

// The second FIN is acknowledged, which ends the connection for readers.
void ConnectionTap::State::finish(Half& from, Half& to) {
  if (over || from.finished) return;
  from.finished = true;
  batch.restart(2);
  bare_packet(from, to, flag::fin | flag::ack);
  if (to.finished) bare_packet(to, from, flag::ack);
  write();
}

void ConnectionTap::State::reset() {
  if (over) return;
  over = true;
  batch.restart(1);
  bare_packet(local, remote, flag::rst | flag::ack);
  write();
}

ConnectionTap::ConnectionTap(std::shared_ptr<CaptureFile> file, const sockaddr_storage& local,
                             const sockaddr_storage& remote, bool active)
    : state_(std::make_unique<State>(std::move(file), local, remote)) {
  active ? state_->open(state_->local, state_->remote)
         : state_->open(state_->remote, state_->local);
}

ConnectionTap::~ConnectionTap() {
  closed();
  peer_closed();
}

void ConnectionTap::sent(std::span<const iovec> pieces, std::size_t bytes) {
  state_->data(state_->local, state_->remote, pieces, bytes);
}

void ConnectionTap::received(std::span<const iovec> pieces, std::size_t bytes) {
  state_->data(state_->remote, state_->local, pieces, bytes);
}

void ConnectionTap::closed() {
  state_->finish(state_->local, state_->remote);
}
void ConnectionTap::peer_closed() {
  state_->finish(state_->remote, state_->local);
}
void ConnectionTap::reset() {
  state_->reset();
}

}  // namespace weft::device
