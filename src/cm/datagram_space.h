// The UDP port space: its ids have no connections. They exchange the number and key of their queue
// pairs by one request and its reply (see service_port.h).
#pragma once

#include <memory>
#include <optional>

#include "cm/id_state.h"
#include "cm/port_space.h"
#include "cm/service_port.h"

namespace weft::cm {

class DatagramSpace final : public PortSpace {
 public:
  // `state` must outlive this object.
  explicit DatagramSpace(IdState& state) : state_(state) {}

  int bind(sockaddr_storage& tcp_address) override;
  int listen(std::size_t backlog) override;
  int connect(ConnectParameters parameters) override;
  int accept(ConnectParameters parameters) override;
  int reject(Bytes private_data) override;
  int disconnect() override;
  void request_fetched() override;
  void shut(Stage last) override;
  void abandon_after_fork() override;

 private:
  bool on_request(const ServicePort::Request& request);
  void on_answer(const std::optional<ServicePort::Answer>& answer);

  IdState& state_;
  // The id's own port, or until a request is answered that of its listener.
  std::shared_ptr<ServicePort> port_;
  ServicePort::Request request_;
  bool waits_ = false;  // a request that the program has not got yet
};

}  // namespace weft::cm
