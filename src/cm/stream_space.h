// The port space of connections: RDMA_PS_TCP and RDMA_PS_IB, both over TCP ports.
//
// This class reserves ports and listens. ActiveSide and PassiveSide set up connections, and
// StreamAttachment runs them.
#pragma once

#include <memory>
#include <mutex>

#include "cm/active_side.h"
#include "cm/failing_requests.h"
#include "cm/id_state.h"
#include "cm/passive_side.h"
#include "cm/port_space.h"
#include "cm/stream_attachment.h"
#include "device/connect/listener.h"

namespace weft::cm {

class StreamSpace final : public PortSpace {
 public:
  // `state` must outlive this object.
  explicit StreamSpace(IdState& state)
      : state_(state), stream_(state), active_(state, stream_), passive_(state, stream_) {}

  int bind(sockaddr_storage& tcp_address) override;
  int listen(std::size_t backlog) override;
  void apply_reuse_address() override;
  int adopt(device::sys::Descriptor connection) override;
  int serve_host(bool serves) override;
  // A socket of the program takes the place of this id's: connections come by adopt() from now on.
  void leave_port();
  // The program has closed that socket, of which this is a duplicate.
  void take_port(device::sys::Descriptor listening);
  int connect(ConnectParameters parameters) override {
    return active_.connect(std::move(parameters), reserved_);
  }
  int establish() override { return active_.establish(); }
  [[nodiscard]] ConnectParameters requested_parameters() override {
    return passive_.requested_parameters();
  }
  int accept(ConnectParameters parameters) override { return passive_.accept(parameters); }
  int reject(Bytes private_data) override { return passive_.reject(private_data); }
  int disconnect() override;
  void request_fetched() override { passive_.request_fetched(); }
  void shut(Stage last) override;
  void abandon_after_fork() override;

 private:
  [[nodiscard]] std::shared_ptr<device::Listener> make_listener(std::size_t backlog);
  int answer_disconnection(std::unique_lock<std::mutex>& lock);
  void on_request(const std::shared_ptr<device::InboundHandshake>& inbound);
  void report(const std::shared_ptr<device::InboundHandshake>& inbound);
  void leave_backlog(const std::shared_ptr<device::InboundHandshake>& inbound);
  void take_with_fault(const faults::Action& fault,
                       const std::shared_ptr<device::InboundHandshake>& inbound);

  IdState& state_;
  // The bound socket, until it listens or connects. Not valid where the program's own socket has
  // the port: SharedPorts.
  device::sys::Descriptor reserved_;
  std::shared_ptr<device::Listener> listener_;
  StreamAttachment stream_;
  ActiveSide active_;
  PassiveSide passive_;
  FailingRequests failing_;
};

}  // namespace weft::cm
