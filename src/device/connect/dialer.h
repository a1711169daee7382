// The active side of one connection until its handshake is done: TCP, then MPA, where necessary
// once more with revision 1.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/connect/dial_turns.h"
#include "device/connect/stream_socket.h"
#include "device/device.h"
#include "device/engine.h"
#include "iwarp/handshake.h"

namespace weft::device {

class Dialer final : public Pollable, public std::enable_shared_from_this<Dialer> {
 public:
  struct Plan {
    sockaddr_storage source{};  // as TCP knows it; AF_UNSPEC: any
    sockaddr_storage destination{};
    sys::Descriptor reserved;  // already bound to `source`, or none
    int tos = -1;
    iwarp::HandshakeOptions handshake{};
    std::vector<std::byte> private_data{};
    std::uint64_t connect_timeout_ns = 0;
    std::uint64_t handshake_timeout_ns = 0;  // until the peer has answered
    // After this time without an answer, and before the timeout, `late` is called once. Null: not.
    std::uint64_t notice_ns = 0;
    std::function<void()> late{};
    std::uint64_t refused_ns = 0;          // how long a refused connection is tried again
    bool may_fall_back = true;             // to MPA revision 1
    bool takes_turns = false;              // see dial_turns.h
    PairTerms pair{};                      // of the queue pair; without a context TCP is used
    std::shared_ptr<QueuePair> sharing{};  // whose files are passed on; none: there are none
  };

  struct Outcome {
    // 0: accepted; otherwise a negative errno value, as in rdma_cm_event::status.
    int status = 0;
    bool rejected = false;   // by the peer's application
    bool fell_back = false;  // to revision 1
    // Why a peer that accepted the TCP connection did not finish MPA set-up.
    iwarp::HandshakeFailure handshake = iwarp::HandshakeFailure::none;
    StreamSocket socket{};
    iwarp::Negotiated negotiated{};
    std::vector<std::byte> private_data{};
  };

  // `done` is called once, without any lock, unless cancel() comes first.
  Dialer(Device& device, Plan plan, std::function<void(Outcome)> done);

  void start();
  // Of the attempt under way; false where there is none.
  [[nodiscard]] bool local_address(sockaddr_storage& address);
  void cancel();
  // The same, unless the peer may have seen our MPA request already; true where it was in time.
  [[nodiscard]] bool cancel_unless_asked();
  // The engine has closed what it watched.
  void abandon_after_fork();

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  enum class Phase : std::uint8_t { idle, queued, asking, connecting, refused, shaking, done };
  using Result = std::optional<Outcome>;

  Result dial();
  [[nodiscard]] bool ask_pair();
  Result answered();
  Result dial_by_tcp();
  Result dial_in_turn();
  Result turn_may_have_come();
  void give_up_turn();
  int open();
  Result connect();
  Result try_again_later();
  Result connected();
  Result begin_handshake(const sockaddr_storage& peer);
  Result shake();
  [[nodiscard]] bool watch_handshake();
  void send_request();
  void receive_reply();
  Result failed_handshake();
  Result settle();
  Result fail(int error, iwarp::HandshakeFailure handshake = iwarp::HandshakeFailure::none);
  Result timed_out();
  [[nodiscard]] bool watch(std::uint32_t events);
  void unwatch();
  void drop();
  void set_deadline(std::uint64_t timeout_ns);
  void await_reply();
  [[nodiscard]] std::function<void()> take_notice();
  void report(Result result);

  Device& device_;
  Plan plan_;
  std::function<void(Outcome)> done_;

  std::mutex mutex_;
  Phase phase_ = Phase::idle;
  sys::Descriptor fd_;   // while connecting
  StreamSocket socket_;  // afterwards
  std::optional<iwarp::ActiveHandshake> handshake_;
  std::uint64_t token_ = 0;
  std::uint32_t watched_ = 0;  // events, while there is a token
  std::uint64_t deadline_ns_ = 0;
  std::uint64_t reply_until_ns_ = 0;  // while asking or shaking
  std::uint64_t refused_until_ns_ = 0;
  bool fell_back_ = false;
  bool asked_pair_ = false;
  std::optional<DialTurns::Turn> turn_;  // while connecting or shaking
};

}  // namespace weft::device
