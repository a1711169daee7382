// The passive side of a connection's handshake: from accept(2) to an MPA request, and from the
// application's answer to a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "device/connect/refusals.h"
#include "device/connect/stream_socket.h"
#include "device/device.h"
#include "device/engine.h"
#include "iwarp/handshake.h"

namespace weft::device {

class InboundHandshake final : public Pollable,
                               public std::enable_shared_from_this<InboundHandshake> {
 public:
  // Called without any lock, each at most once: `requested` when the request has arrived, `failed`
  // when the connection fails before that.
  using Arrived = std::function<void(const std::shared_ptr<InboundHandshake>&)>;

  InboundHandshake(Device& device, StreamSocket socket, const iwarp::HandshakeOptions& options,
                   Arrived requested, Arrived failed);

  // Reads what has arrived first, in this thread: `requested` or `failed` may be called at once.
  void start(std::uint64_t timeout_ns);
  // Of a connection without TCP: takes the request, in place of start(). False if it is none.
  [[nodiscard]] bool take_request(Bytes frame);
  // The kernel has proven that the peer is a process of this user.
  [[nodiscard]] bool is_from_pair() const { return from_pair_; }
  // Nothing has come from the peer yet. Without the lock.
  [[nodiscard]] bool silent() const { return silent_.load(std::memory_order_relaxed); }
  // Another connection needs the place: closes this one, unless the request turns out to be here.
  void evict();
  // Closes without an answer.
  void cancel();
  void abandon_after_fork();

  // --- Only after the request has arrived

  [[nodiscard]] const iwarp::PassiveHandshake& handshake() const { return handshake_; }
  [[nodiscard]] const TcpEnds& ends() const { return ends_; }
  // ECONNRESET if the peer has closed, EINVAL if the request was answered before. Otherwise `sent`
  // is called, maybe at once, when TCP has taken the reply: with the stream, or with one that is
  // not valid if the peer has closed meanwhile.
  int accept(std::uint16_t ird, std::uint16_t ord, Bytes private_data,
             std::function<void(StreamSocket)> sent);
  int reject(Bytes private_data);

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  enum class Phase : std::uint8_t { waiting, requested, replying, done };

  [[nodiscard]] bool read_request();
  // What to call when the lock is released.
  using Notice = std::function<void()>;
  Notice advance();
  Notice send_reply();
  Notice hand_over();
  Notice give_up(Refusals::Count& counter);
  void unwatch();

  Device& device_;
  std::mutex mutex_;
  Phase phase_ = Phase::waiting;
  StreamSocket socket_;
  const TcpEnds ends_;
  iwarp::PassiveHandshake handshake_;
  Arrived requested_;
  Arrived failed_;
  std::function<void(StreamSocket)> sent_;
  std::uint64_t token_ = 0;
  std::uint64_t end_ns_ = 0;  // of the handshake
  std::atomic<bool> silent_{true};
  const bool from_pair_;
};

}  // namespace weft::device
