// The passive side of a connection: a connection request, rdma_accept(3) and rdma_reject(3).
#pragma once

#include <memory>

#include "cm/id_state.h"
#include "cm/port_space.h"
#include "cm/stream_attachment.h"
#include "device/connect/inbound_handshake.h"
#include "device/connect/listener.h"

namespace weft::cm {

class PassiveSide {
 public:
  // Both must outlive this object.
  PassiveSide(IdState& state, StreamAttachment& stream) : state_(state), stream_(stream) {}

  // The id belongs to a request: `inbound` has arrived at `listener`, which counts it until the
  // program has fetched its event.
  void take_request(const std::shared_ptr<device::InboundHandshake>& inbound,
                    const std::shared_ptr<device::Listener>& listener);
  void request_fetched();

  [[nodiscard]] ConnectParameters requested_parameters();
  int accept(const ConnectParameters& parameters);
  int reject(Bytes private_data);
  // With the lock held: accept() has not sent the whole reply yet.
  [[nodiscard]] bool replying() const { return inbound_ != nullptr; }

  // Rejects a request that is not answered, cancels a reply that is being sent. Without the lock,
  // in stage `destroyed`; `last`: the stage before.
  void shut(Stage last);
  void abandon_after_fork();

 private:
  class FirstFpduTimer;

  int find_queue_pair(std::uint32_t number, std::shared_ptr<device::QueuePair>& found);
  void on_replied(device::StreamSocket stream);
  void on_first_fpdu_timeout();

  IdState& state_;
  StreamAttachment& stream_;
  std::shared_ptr<device::InboundHandshake> inbound_;  // until the reply is sent
  std::shared_ptr<device::Listener> listener_;         // until the program has fetched the request
  std::shared_ptr<FirstFpduTimer> timer_;              // from accept() on
};

}  // namespace weft::cm
