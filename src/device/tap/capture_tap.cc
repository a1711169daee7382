#include "device/tap/capture_tap.h"

#include <array>
#include <utility>

#include "device/tap/capture_connection.h"
#include "device/tap/capture_frame.h"
#include "device/tap/capture_writer.h"
#include "wire/pcapng.h"

namespace weft::device {

namespace {

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
  // The blocks count as no packet: if this write fails, no packet is lost by it.
  writer.write({&vector, 1}, 0);
}

}  // namespace

struct CaptureFile::State {
  explicit State(std::unique_ptr<CaptureWriter> open) : writer(std::move(open)) {}

  std::unique_ptr<CaptureWriter> writer;
  CaptureConnections connections;
};

Result<std::shared_ptr<CaptureFile>, std::string> CaptureFile::open(const std::string& path) {
  auto writer = CaptureWriter::open(path);
  if (!writer) return writer.error();
  write_preamble(**writer);
  auto state = std::make_unique<State>(std::move(*writer));
  return std::shared_ptr<CaptureFile>(new CaptureFile(std::move(state)));
}

std::shared_ptr<CaptureFile> CaptureFile::to(std::function<void(Bytes)> function) {
  auto writer = CaptureWriter::to(std::move(function));
  write_preamble(*writer);
  auto state = std::make_unique<State>(std::move(writer));
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
std::uint64_t CaptureFile::packets() const {
  return state_->writer->packets();
}
bool CaptureFile::writable() const {
  return state_->writer->writable();
}
bool CaptureFile::stop() {
  return state_->writer->stop();
}
void CaptureFile::forget_after_fork() {
  state_->writer->forget();
}

struct ConnectionTap::State {
  std::shared_ptr<CaptureFile> file;
  CaptureConnections::Found own;
  StreamPosition position;

  State(std::shared_ptr<CaptureFile> capture, const sockaddr_storage& local,
        const sockaddr_storage& remote, bool active, StreamPosition begin)
      : file(std::move(capture)),
        own(file->state_->connections.add(*file->state_->writer, CaptureEndpoint::of(local),
                                          CaptureEndpoint::of(remote), active, begin)),
        position(begin) {}
};

ConnectionTap::ConnectionTap(std::shared_ptr<CaptureFile> file, const sockaddr_storage& local,
                             const sockaddr_storage& remote, bool active, StreamPosition begin)
    : state_(std::make_unique<State>(std::move(file), local, remote, active, begin)) {}

// Both ends are closed, so that a capture never holds a connection without its end. A half that was
// closed before is not written again.
ConnectionTap::~ConnectionTap() {
  closed();
  peer_closed();
}

ConnectionTap::Order ConnectionTap::order() {
  return state_->own.connection->lock();
}

void ConnectionTap::sent(std::span<const iovec> pieces, std::size_t bytes) {
  state_->own.connection->sent(state_->own.end, pieces, bytes, state_->position.sent);
  state_->position.sent += bytes;
}

void ConnectionTap::received(std::span<const iovec> pieces, std::size_t bytes) {
  state_->own.connection->received(state_->own.end, pieces, bytes, state_->position.received);
  state_->position.received += bytes;
}

void ConnectionTap::closed() {
  state_->own.connection->closed(state_->own.end);
}
void ConnectionTap::peer_closed() {
  state_->own.connection->peer_closed(state_->own.end);
}
void ConnectionTap::reset() {
  state_->own.connection->reset(state_->own.end);
}

}  // namespace weft::device
