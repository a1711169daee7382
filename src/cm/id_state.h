// The state that all parts of one rdma_cm_id share: the handle that the program sees, the stage,
// and the way to its event channel.
//
// An Identifier consists of one IdState and of parts that work on it: a PortSpace, which moves the
// connection or the datagrams, and MulticastGroups. The program's threads, the progress thread and
// polling threads meet here, so the lock covers all of them. It is taken before a channel's lock,
// and never held while a queue pair, a dialer or an inbound handshake is called, since those call
// back.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/kept_memory.h"
#include "cm/event_channel.h"
#include "cm/registry.h"
#include "cm/reservation.h"
#include "device/delayed_call.h"
#include "faults/rules.h"

namespace weft::cm {

class Identifier;

enum class Stage : std::uint8_t {
  idle,
  bound,
  resolved,
  routed,
  listening,
  connecting,
  responded,  // active: the peer has accepted; rdma_establish(3) is awaited
  requested,  // passive: the program has to accept or to reject
  accepting,  // passive: the reply is being sent, or the peer's first FPDU is awaited
  connected,
  ended,  // disconnected, rejected or failed
  destroyed,
};

// The bytes of private data in the messages of InfiniBand's connection management, as rdma_cm uses
// them: shorter data is padded with zeros (rdma_connect(3)).
enum class InfinibandPrivateData : std::size_t { request = 56, reply = 196, rejection = 148 };

struct IdState : KeptMemory {
  IdState(std::shared_ptr<Registry> shared, std::shared_ptr<Channel> events, bool waits,
          rdma_port_space ps, ibv_qp_type qp_type, void* context);
  IdState(const IdState&) = delete;
  IdState& operator=(const IdState&) = delete;

  // The state of a connection request that arrived at this id, in stage `requested`. It has no
  // channel until the program fetches the event. The addresses are as TCP or UDP know them.
  [[nodiscard]] std::unique_ptr<IdState> make_request(const sockaddr_storage& source,
                                                      const sockaddr_storage& destination);

  // Only once the Identifier exists.
  [[nodiscard]] std::weak_ptr<Identifier> owner() const;
  [[nodiscard]] bool is_datagram() const { return handle.id.ps == RDMA_PS_UDP; }
  [[nodiscard]] rdma_addr& addresses() { return handle.id.route.addr; }

  // Events. An event for a destroyed id, or for one without a channel, is dropped.
  [[nodiscard]] std::unique_ptr<Event> make_event(rdma_cm_event_type type, int status = 0);
  void push(std::unique_ptr<Event> event);
  void push(rdma_cm_event_type type, int status = 0) { push(make_event(type, status)); }
  // Pushes DISCONNECTED, and TIMEWAIT_EXIT behind it where a rule of faults wants that.
  void push_disconnected();
  // Pushes CONNECT_REQUEST on the channel of this id. The caller has set the parameters in `event`.
  void push_request(std::unique_ptr<Event> event, const std::shared_ptr<Identifier>& request);

  // The bytes that an event's private data has at least: more than 0 with Settings::strict in roce.
  [[nodiscard]] std::size_t least_private_data(InfinibandPrivateData message) const;
  // The retries in an event of a request or its acceptance, which programs for InfiniBand pass on
  // (rdma_accept(3)). Those of the peer are not known: the MPA frames have no place for them.
  void set_retries(rdma_conn_param& parameters) const;

  // What the rules of faults do to this step of a connection to or from `peer`, if anything.
  [[nodiscard]] std::optional<faults::Action> fault_at(faults::Point step,
                                                       const sockaddr_storage& peer) const;

  // Fills in the device part of the handle. 0 or ENODEV.
  int use_device();
  // Addresses as TCP knows them go to the handle as the program knows them (see ports.h).
  [[nodiscard]] ibv_gid gid_shown_for(const sockaddr_storage& address) const;
  void set_source(const sockaddr_storage& tcp_address);
  void set_destination(const sockaddr_storage& tcp_address);
  [[nodiscard]] sockaddr_storage tcp_source() const;
  [[nodiscard]] sockaddr_storage tcp_destination() const;

  struct Handle {
    rdma_cm_id id{};  // first: see Identifier::of(). The program reads it without the lock.
    Identifier* owner = nullptr;
    ibv_sa_path_rec path{};  // what id.route.path_rec points to
  };
  Handle handle;
  const std::shared_ptr<Registry> registry;

  std::mutex mutex;  // covers what follows, and the parts
  Stage stage = Stage::idle;
  std::shared_ptr<Channel> channel;
  bool synchronous;
  bool passive = false;  // made by a connection request
  SocketOptions options;
  std::uint16_t requested_ord = 0;  // rdma_conn_param::initiator_depth of connect or accept
  std::shared_ptr<device::DelayedCall> timewait;  // null: no TIMEWAIT_EXIT is due
  std::uint8_t ack_timeout = 18;  // ibv_modify_qp(3), timeout: 4.096 µs · 2^18, about a second
};

}  // namespace weft::cm
