// What the socket of a connection adds to the captures of its device: it takes part in the current
// one from the next bytes on, and in none once that has ended.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "device/tap/capture_loop.h"
#include "device/tap/capture_tap.h"
#include "device/tap/device_capture.h"

namespace weft::device {

// Not thread-safe; guarded by the connection's lock.
class StreamTap {
 public:
  StreamTap() = default;
  // A connected socket. `active`: this end has connected.
  StreamTap(int socket, std::shared_ptr<DeviceCapture> capture, bool active);
  // A socket that is connected to itself.
  StreamTap(int socket, std::shared_ptr<DeviceCapture> capture, const LoopTap::Terms& terms);

  // Whether the next bytes need more than count_sent() or count_received(): a capture takes part in
  // the connection, has begun, or has ended; or the owner wants to be asked (ask_always()).
  [[nodiscard]] bool asks() const {
    return changes_->load(std::memory_order_acquire) != silent_number_;
  }
  void ask_always(bool always) {
    always_ = always;
    settle();
  }
  // Looks whether a capture has begun or ended. Call it before bytes are sent or received.
  void follow() {
    if (capture_ && capture_->number() != number_) change();
  }
  void count_sent(std::size_t bytes) { position_.sent += bytes; }
  void count_received(std::size_t bytes) { position_.received += bytes; }
  // See ConnectionTap::order().
  [[nodiscard]] ConnectionTap::Order order() {
    return connection_ ? connection_->order() : ConnectionTap::Order();
  }
  void sent(std::span<const iovec> pieces, std::size_t bytes) {
    count_sent(bytes);
    if (connection_ || terms_) write_sent(pieces, bytes);
  }
  void received(std::span<const iovec> pieces, std::size_t bytes) {
    count_received(bytes);
    if (connection_) connection_->received(pieces, bytes);
  }
  // The ends of the connection, as ConnectionTap has them.
  void peer_closed();
  void closed();
  void reset();
  // The socket is closed: writes what is missing of the end.
  void finish();

  [[nodiscard]] const StreamPosition& position() const { return position_; }

 private:
  static constexpr std::atomic<std::uint32_t> no_changes{0};
  static constexpr std::uint64_t never = UINT64_MAX;

  void change();
  void settle();
  void begin(const std::shared_ptr<CaptureFile>& file);
  void write_sent(std::span<const iovec> pieces, std::size_t bytes);

  std::shared_ptr<DeviceCapture> capture_;  // of the device; null once the socket is closed
  std::unique_ptr<ConnectionTap> connection_;
  std::unique_ptr<LoopTap> loop_;        // instead, where the socket is connected to itself
  std::optional<LoopTap::Terms> terms_;  // of that
  FpduBoundary boundary_;                // of that
  StreamPosition position_;
  int socket_ = -1;
  std::uint32_t number_ = 0;  // of the capture that it takes part in
  bool active_ = false;
  bool always_ = false;                                      // see ask_always()
  const std::atomic<std::uint32_t>* changes_ = &no_changes;  // of capture_
  std::uint64_t silent_number_ = 0;                          // see asks(); or never
};

}  // namespace weft::device
