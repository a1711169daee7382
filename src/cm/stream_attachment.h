// Hands the TCP connection of an id to its queue pair when the handshake is done, and turns what
// happens to the stream afterwards into events: ESTABLISHED, DISCONNECTED, CONNECT_ERROR.
//
// Used by ActiveSide and PassiveSide. All functions but the observer's are called with the lock of
// the id held.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "cm/id_state.h"
#include "cm/port_space.h"
#include "device/connect/bare_stream.h"
#include "device/connect/stream_socket.h"
#include "device/delayed_call.h"
#include "device/queue_pair/queue_pair.h"
#include "iwarp/handshake.h"

namespace weft::cm {

class StreamAttachment final : public device::ConnectionObserver {
 public:
  // `state` must outlive this object.
  explicit StreamAttachment(IdState& state) : state_(state) {}

  // Finds the queue pair of the connection: the one of the id, or the program's own with this
  // number. 0 or EINVAL; then `found` is null. On InfiniBand and RoCE an id can also be connected
  // with a number that no queue pair has: 0 and null.
  int find_queue_pair(std::uint32_t number, std::shared_ptr<device::QueuePair>& found);
  void use(const std::shared_ptr<device::QueuePair>& queue_pair) { queue_pair_ = queue_pair; }
  // The connection has no queue pair: see find_queue_pair().
  [[nodiscard]] bool is_bare() const { return bare_; }
  // Null where the program has destroyed it, or no queue pair is known yet.
  [[nodiscard]] std::shared_ptr<device::QueuePair> queue_pair() const { return queue_pair_.lock(); }
  // Remembers what the program asked for, until the stream begins. After use().
  void request(const ConnectParameters& parameters);

  void set_negotiated(const iwarp::Negotiated& negotiated) { negotiated_ = negotiated; }
  // ESTABLISHED or CONNECT_RESPONSE, with the depths that were negotiated. `reply`: the event
  // reports the peer's acceptance, and has its private data.
  void push_connected(rdma_cm_event_type type, Bytes private_data, bool reply);

  struct Plan {
    bool initiator = true;
    bool report = true;    // push ESTABLISHED or CONNECT_ERROR
    Bytes private_data{};  // of ESTABLISHED
  };
  // Gives the stream to the queue pair, sets the stage and pushes the events. 0, or the errno value
  // of the queue pair. The lock is released meanwhile: the id may be destroyed afterwards.
  int attach(std::unique_lock<std::mutex>& lock, device::StreamSocket socket, const Plan& plan);
  // What ends the connection, to be called without the lock. It takes the queue pair to the error
  // state, if there is one.
  [[nodiscard]] std::function<void()> disconnection() const;
  // The program has disconnected as well: the end by the peer is reported at once.
  void note_disconnection();
  void abandon_after_fork();

  void on_stream_ready() override;
  void on_stream_ended(iwarp::EndReason reason) override;

 private:
  [[nodiscard]] device::StreamParameters parameters(bool initiator);
  int hand_over(std::unique_lock<std::mutex>& lock, device::StreamSocket socket, bool initiator);
  void after_attach(int failed, const Plan& plan);
  [[nodiscard]] bool may_report_end() const;
  void report_end();
  void report_end_later();

  IdState& state_;
  std::weak_ptr<device::QueuePair> queue_pair_;
  bool bare_ = false;  // bare_stream_ takes its place
  std::shared_ptr<device::BareStream> bare_stream_;
  std::uint8_t rnr_retries_ = iwarp::rnr_retry_infinite;
  iwarp::Negotiated negotiated_;
  bool attaching_ = false;                         // attach() has released the lock
  bool ready_early_ = false;                       // on_stream_ready() was called meanwhile
  bool ended_early_ = false;                       // on_stream_ended() was called meanwhile
  bool disconnected_ = false;                      // by the program
  std::shared_ptr<device::DelayedCall> late_end_;  // the end is to be reported
  std::uint64_t end_due_ns_ = 0;                   // ... by then
};

}  // namespace weft::cm
