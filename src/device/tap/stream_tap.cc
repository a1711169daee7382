#include "device/tap/stream_tap.h"

#include <utility>

#include "device/system.h"

namespace weft::device {

StreamTap::StreamTap(int socket, std::shared_ptr<DeviceCapture> capture, bool active)
    : capture_(std::move(capture)), socket_(socket), active_(active) {
  follow();
  settle();
}

StreamTap::StreamTap(int socket, std::shared_ptr<DeviceCapture> capture,
                     const LoopTap::Terms& terms)
    : capture_(std::move(capture)), terms_(terms), socket_(socket), active_(true) {
  follow();
  settle();
}

// Of a connection to itself the bytes are followed in any case, to find the ends of its FPDUs.
void StreamTap::settle() {
  changes_ = capture_ ? &capture_->changes() : &no_changes;
  silent_number_ = connection_ || loop_ || terms_ || always_ ? never : capture_ ? number_ : 0;
}

// What is destroyed here belongs to a capture that has ended, and writes nothing.
void StreamTap::change() {
  number_ = capture_->number();
  connection_.reset();
  loop_.reset();
  if (const auto file = capture_->file()) begin(file);
  settle();
}

// A connection that the peer has reset has no address of the peer any more, and no more bytes. A
// connection to itself begins between two FPDUs, by which LoopTap tells its two directions apart.
void StreamTap::begin(const std::shared_ptr<CaptureFile>& file) {
  sockaddr_storage local{};
  sockaddr_storage remote{};
  if (sys::local_address(socket_, &local) < 0) return;
  if (terms_) {
    if (boundary_.reached()) loop_ = std::make_unique<LoopTap>(file, local, *terms_);
    return;
  }
  if (sys::peer_address(socket_, &remote) < 0) return;
  connection_ = std::make_unique<ConnectionTap>(file, local, remote, active_, position_);
}

void StreamTap::write_sent(std::span<const iovec> pieces, std::size_t bytes) {
  if (connection_) return connection_->sent(pieces, bytes);
  boundary_.pass(pieces, bytes);
  if (loop_) return loop_->sent(pieces, bytes);
  // The FPDU within which the capture has begun is over.
  if (!capture_ || !boundary_.reached() || capture_->number() != number_) return;
  if (const auto file = capture_->file()) begin(file);
}

void StreamTap::peer_closed() {
  if (connection_) connection_->peer_closed();
}

void StreamTap::closed() {
  if (connection_) connection_->closed();
  if (loop_) loop_->closed();
}

void StreamTap::reset() {
  if (connection_) connection_->reset();
  if (loop_) loop_->reset();
}

// A tap that is destroyed writes the end of its connection.
void StreamTap::finish() {
  connection_.reset();
  if (loop_) loop_->closed();
  loop_.reset();
  capture_.reset();
  settle();
}

}  // namespace weft::device
