// The active side of a connection: rdma_connect(3) and rdma_establish(3).
#pragma once

#include <memory>
#include <mutex>

#include "cm/id_state.h"
#include "cm/port_space.h"
#include "cm/stream_attachment.h"
#include "device/connect/dialer.h"
#include "device/delayed_call.h"

namespace weft::cm {

class ActiveSide {
 public:
  // Both must outlive this object.
  ActiveSide(IdState& state, StreamAttachment& stream) : state_(state), stream_(stream) {}

  // Starts to dial in stage `routed`. `reserved`: the bound socket, if the id has one; taken only
  // if the stage fits. 0 or EINVAL.
  int connect(ConnectParameters parameters, device::sys::Descriptor& reserved);
  // Gives the stream to the program's own queue pair, which connect() had not found on the id.
  int establish();
  // With the lock held, in stage `responded`: closes the stream that no queue pair has taken.
  void drop_response() {
    if (response_) response_->close();
  }

  // Ends what is outstanding. Without the lock, in stage `destroyed`.
  void shut();
  void abandon_after_fork();

 private:
  // `queue_pair`: null if it is the program's own.
  [[nodiscard]] std::shared_ptr<device::Dialer> make_dialer(
      ConnectParameters parameters, const std::shared_ptr<device::QueuePair>& queue_pair,
      device::sys::Descriptor& reserved);
  [[nodiscard]] std::uint64_t reply_timeout_ns() const;
  void note_source(const sockaddr_storage& tcp_address);
  void on_dialed(device::Dialer::Outcome outcome);
  void report_not_extended() const;
  void on_dial_failed(std::unique_lock<std::mutex>& lock, const device::Dialer::Outcome& outcome);
  void connect_with_fault(const faults::Action& fault,
                          const std::shared_ptr<device::Dialer>& dialer);
  void on_fault(rdma_cm_event_type type, int status);
  void end(std::unique_lock<std::mutex>& lock, rdma_cm_event_type type);

  IdState& state_;
  StreamAttachment& stream_;
  std::shared_ptr<device::Dialer> dialer_;
  std::shared_ptr<device::DelayedCall> delayed_;  // where a rule of faults applies
  bool external_queue_pair_ = false;  // the id has none: rdma_establish(3) will name its stream
  bool caller_explains_ = false;      // a failure to connect: nothing is to be printed
  // Between CONNECT_RESPONSE and rdma_establish(3), else null.
  std::unique_ptr<device::StreamSocket> response_;
};

}  // namespace weft::cm
