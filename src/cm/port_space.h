// The part of an id that depends on its port space: how it binds, listens, connects and
// disconnects. StreamSpace implements it for connections over TCP, DatagramSpace for the UDP port
// space.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "cm/id_state.h"
#include "device/system.h"
#include "iwarp/receiver_not_ready.h"

namespace weft::cm {

// rdma_conn_param(3), with the defaults filled in.
struct ConnectParameters {
  std::uint16_t responder_resources = 0;
  std::uint16_t initiator_depth = 0;
  std::uint8_t rnr_retries = iwarp::rnr_retry_infinite;  // of the peer's Sends
  std::uint8_t retries = 7;                              // of a silent peer
  std::uint32_t qp_num = 0;                              // used where the id has no queue pair
  std::vector<std::byte> private_data;
};

// All functions that return int give 0 or an errno value. The stage of the id is theirs to check,
// except in bind() and listen().
class PortSpace {
 public:
  virtual ~PortSpace() = default;

  // With the lock held. Reserves the port of `tcp_address`, and stores the actual address there.
  virtual int bind(sockaddr_storage& tcp_address) = 0;
  // With the lock held, in stage `bound`. At most `backlog` requests wait for the program.
  virtual int listen(std::size_t backlog) = 0;
  // With the lock held: RDMA_OPTION_ID_REUSEADDR has changed.
  virtual void apply_reuse_address() {}

  // The rest is called without the lock.

  // Takes a TCP connection that was accepted elsewhere, and makes the id listen for such.
  virtual int adopt(device::sys::Descriptor /*connection*/) { return EINVAL; }
  // Whether requests for an adopted listening socket may come without TCP.
  virtual int serve_host(bool /*serves*/) { return EINVAL; }
  virtual int connect(ConnectParameters parameters) = 0;
  virtual int establish() { return EINVAL; }
  // The parameters that rdma_accept(3) uses where the program passes none.
  [[nodiscard]] virtual ConnectParameters requested_parameters() { return {}; }
  virtual int accept(ConnectParameters parameters) = 0;
  virtual int reject(Bytes private_data) = 0;
  virtual int disconnect() = 0;
  // The program has fetched the event of this connection request.
  virtual void request_fetched() {}

  // The id is being destroyed and was in stage `last`: ends everything that is outstanding.
  virtual void shut(Stage last) = 0;
  virtual void abandon_after_fork() = 0;
};

[[nodiscard]] std::unique_ptr<PortSpace> make_port_space(IdState& state);

}  // namespace weft::cm
