// One rdma_cm_id and the objects behind it: rdma_create_id(3).
//
// The identifier checks the stage of calls about addresses and options itself, and passes what
// depends on the port space to a PortSpace. See id_state.h for the lock.
#pragma once

#include <rdma/rdma_cma.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cm/addrinfo.h"
#include "cm/delivered_events.h"
#include "cm/event_channel.h"
#include "cm/id_state.h"
#include "cm/multicast_groups.h"
#include "cm/port_space.h"

namespace weft::cm {

// All functions that return int give 0 or an errno value.
class Identifier final : public std::enable_shared_from_this<Identifier> {
 public:
  // `space` works on `state`. An identifier is always owned by a shared_ptr.
  Identifier(std::unique_ptr<IdState> state, std::unique_ptr<PortSpace> space);

  [[nodiscard]] rdma_cm_id* handle() { return &state_->handle.id; }
  [[nodiscard]] static Identifier* of(rdma_cm_id* id) {
    return reinterpret_cast<IdState::Handle*>(id)->owner;
  }

  [[nodiscard]] const std::shared_ptr<Registry>& registry() const { return state_->registry; }

  // Events. Each delivered one is acknowledged once.
  void count_delivered() { delivered_.count(); }
  void acknowledge() { delivered_.acknowledge(); }
  void wait_for_acknowledgements() { delivered_.wait_for_all(); }
  [[nodiscard]] bool synchronous();
  void migrate(const std::shared_ptr<Channel>& channel, bool synchronous);
  // The program has fetched a connection request from `channel`: from now on its id is the
  // program's.
  void deliver(const std::shared_ptr<Channel>& channel, bool synchronous);
  // The program has fetched the event that reports the end of the connection, so that there is
  // nothing left to wait for.
  [[nodiscard]] bool end_reported() const { return end_reported_.load(); }
  void note_end_reported() { end_reported_.store(true); }

  // Addresses and options.
  int set_option(int name, const void* value, std::size_t bytes);
  int bind(const sockaddr_storage& address);
  int resolve_address(const sockaddr_storage& source, const sockaddr_storage& destination);
  int resolve_route();
  int qp_attributes(ibv_qp_attr& attributes, int& mask);
  // rdma_resolve_addrinfo(3): the caller looks the name up in between. The end pushes an event.
  int begin_addrinfo();
  void end_addrinfo(AddressInfo::Owned found, int failed);
  // The search has not begun, and there will be no event.
  void give_up_addrinfo();
  int query_addrinfo(rdma_addrinfo** result);
  int write_event(int status, std::uint64_t argument);

  // Connections, or requests in the UDP port space.
  int listen(int backlog);
  // Listens without an address, for connections that were accepted elsewhere.
  int adopt(device::sys::Descriptor connection);
  int serve_host(bool serves);
  int connect(ConnectParameters parameters) { return space_->connect(std::move(parameters)); }
  int establish() { return space_->establish(); }
  int accept(ConnectParameters parameters) { return space_->accept(std::move(parameters)); }
  // The parameters that rdma_accept(3) uses where the program passes none.
  [[nodiscard]] ConnectParameters requested_parameters() { return space_->requested_parameters(); }
  int reject(Bytes private_data) { return space_->reject(private_data); }
  int disconnect() { return space_->disconnect(); }

  // Of the UDP port space: ids have datagrams and groups, and no connections.
  [[nodiscard]] bool is_datagram() const { return state_->is_datagram(); }
  int join_group(const sockaddr_storage& address, bool send_only, void* context) {
    return groups_.join(address, send_only, context);
  }
  int leave_group(const sockaddr_storage& address) { return groups_.leave(address); }

  // Ends everything that is outstanding. Afterwards no more events are pushed.
  void shut();
  void abandon_after_fork();
  [[nodiscard]] bool abandoned() const { return abandoned_; }

  // What rdma_create_ep(3) keeps for rdma_get_request(3) and rdma_connect(3).
  std::optional<ibv_qp_init_attr> endpoint_attributes;
  std::vector<std::byte> endpoint_private_data;

 private:
  int bind_locked(const sockaddr_storage& address);

  std::unique_ptr<IdState> state_;
  std::unique_ptr<PortSpace> space_;
  MulticastGroups groups_;
  DeliveredEvents delivered_;
  bool resolving_addrinfo_ = false;
  AddressInfo::Owned addrinfo_;
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> end_reported_{false};
};

}  // namespace weft::cm
