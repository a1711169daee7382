// Connection management as objects, rdma_cm(7).
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/backend.hpp"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/domain.hpp"
#include "weft/verbs/queue_pair.hpp"

namespace weft::verbs {

namespace detail {
struct EventChannelState;
struct IdState;
}  // namespace detail

// An address and port; the host is numeric or a name, see rdma_getaddrinfo(3).
struct Address {
  // Any local address, and port 0.
  Address() = default;
  // A constructor instead of braces: GCC 12 destroys temporaries twice that are brace-initialised
  // within a co_await expression.
  Address(std::string of_host, std::uint16_t of_port) : host(std::move(of_host)), port(of_port) {}

  std::string host;  // empty: any local address, for listening: IPv6 and IPv4
  std::uint16_t port = 0;
};

// Parameters of rdma_connect(3) and rdma_accept(3).
struct ConnectionParameters {
  // Used during the call only. EINVAL if it is longer than the transport allows.
  std::span<const std::byte> private_data{};
  std::uint8_t responder_resources = 1;  // outstanding reads and atomics of the peer
  std::uint8_t initiator_depth = 1;      // outstanding reads and atomics of this side
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry_count = 7;
};

class Id;

// An event of an id, rdma_get_cm_event(3). The destructor acknowledges it; until then its id cannot
// be destroyed (rdma_destroy_id(3) would block).
class ConnectionEvent {
 public:
  ConnectionEvent(ConnectionEvent&&) noexcept = default;
  ConnectionEvent& operator=(ConnectionEvent&&) = delete;
  WEFT_API ~ConnectionEvent();

  // What has happened.
  [[nodiscard]] rdma_cm_event_type type() const { return raw_->event; }
  // The text of rdma_event_str(3).
  [[nodiscard]] WEFT_API std::string_view name() const;
  // What a failure to connect means, as part of a sentence about the peer; name() for other events.
  [[nodiscard]] WEFT_API std::string_view description() const;
  // 0, a negative errno, or for a rejection the reason code of the transport.
  [[nodiscard]] int status() const { return raw_->status; }
  // The peer's private data; valid while the event lives.
  [[nodiscard]] WEFT_API std::span<const std::byte> private_data() const;
  // Takes the new id out of RDMA_CM_EVENT_CONNECT_REQUEST, once; later calls throw
  // std::logic_error. If it is not taken, the destructor of the event rejects the request.
  [[nodiscard]] WEFT_API Id take_request();
  // The id that the event is about; of a request the new one.
  [[nodiscard]] rdma_cm_id* id() const { return raw_->id; }
  // The event of rdma_cm. Belongs to this one.
  [[nodiscard]] rdma_cm_event* raw() const { return raw_.get().get(); }

 private:
  friend class EventChannel;
  struct Acknowledge {
    std::shared_ptr<detail::EventChannelState> channel;
    void operator()(rdma_cm_event* event) const;
  };
  ConnectionEvent(std::shared_ptr<detail::EventChannelState> channel, rdma_cm_event* raw);

  weft::detail::Held<std::unique_ptr<rdma_cm_event, Acknowledge>, "weft::verbs::ConnectionEvent">
      raw_;
  bool request_taken_ = false;
};

// A channel for connection events, rdma_create_event_channel(3). Thread-safe; each event goes to
// one of the waiting threads.
class EventChannel {
 public:
  // A channel of its own, of this backend. Throws Error.
  WEFT_API explicit EventChannel(Backend backend = default_backend());
  // A channel whose ids use this device only, so that a process can have connections of several
  // embedded devices (open_own_device()). Keeps the device open. Throws Error: EOPNOTSUPP for a
  // device of the system, where rdma_cm finds the device by the address.
  WEFT_API explicit EventChannel(const Context& device);
  EventChannel(EventChannel&&) noexcept = default;
  EventChannel& operator=(EventChannel&&) noexcept = default;

  // A non-blocking descriptor that is readable while an event is pending.
  [[nodiscard]] int fd() const { return raw_->fd; }
  // Waits for the next event; nothing if the deadline has passed. Throws Error.
  [[nodiscard]] WEFT_API std::optional<ConnectionEvent> next(Deadline deadline) const;
  // The object of rdma_cm. Belongs to this one.
  [[nodiscard]] rdma_event_channel* raw() const { return raw_; }

 private:
  friend class Id;
  friend class ConnectionEvent;
  weft::detail::Held<std::shared_ptr<detail::EventChannelState>, "weft::verbs::EventChannel">
      state_;
  weft::detail::Held<rdma_event_channel*, "weft::verbs::EventChannel"> raw_;
};

// A communication identifier, rdma_create_id(3). Its events arrive on its channel. As thread-safe
// as rdma_cm. All calls throw Error.
class Id {
 public:
  // A new id, whose backend is that of the channel.
  WEFT_API explicit Id(const EventChannel& channel, rdma_port_space space = RDMA_PS_TCP);
  Id(Id&&) noexcept = default;
  Id& operator=(Id&&) noexcept = default;

  // Call it before bind(): true makes a listener on an IPv6 address ignore IPv4 peers, false lets
  // it accept them (RDMA_OPTION_ID_AFONLY).
  WEFT_API void set_ipv6_only(bool only) const;
  // Binds to a local address, rdma_bind_addr(3).
  WEFT_API void bind(const Address& address) const;
  // Listens for requests, which arrive as RDMA_CM_EVENT_CONNECT_REQUEST. Backlog 0 is the device's
  // default.
  WEFT_API void listen(int backlog = 0) const;
  // Used instead of bind() and listen(): the connect request arrives on a TCP connection that the
  // program has accepted and not read from. May be called again for further connections. Takes
  // ownership of the descriptor, also if it throws. Embedded backend only; else Error(EOPNOTSUPP).
  // A listening socket, from which the program accepts such connections, lets processes of this
  // host find this one, so that they can leave TCP (WEFT_SAME_HOST).
  WEFT_API void adopt(int connection) const;
  // Results in RDMA_CM_EVENT_ADDR_RESOLVED, and resolve_route() in RDMA_CM_EVENT_ROUTE_RESOLVED.
  WEFT_API void resolve_address(const Address& peer, std::chrono::milliseconds timeout) const;
  // The route to the address that was resolved.
  WEFT_API void resolve_route(std::chrono::milliseconds timeout) const;

  // The device that the id is bound to, as a new context. Throws Error(ENODEV) if it is not bound
  // yet.
  [[nodiscard]] WEFT_API Context context() const;
  // Creates the id's queue pair, rdma_create_qp(3); connecting takes it through its states. The id
  // owns it, and the returned handle keeps the id alive.
  WEFT_API QueuePair create_queue_pair(const ProtectionDomain& domain, const CompletionQueue& send,
                                       const CompletionQueue& receive, const ibv_qp_cap& capacity,
                                       bool signal_all = false) const;

  // Requests the connection, rdma_connect(3); RDMA_CM_EVENT_ESTABLISHED or a failure follows.
  WEFT_API void connect(const ConnectionParameters& parameters = {}) const;
  // Accepts the request that this id came with, rdma_accept(3).
  WEFT_API void accept(const ConnectionParameters& parameters = {}) const;
  // Rejects the request that this id came with, rdma_reject(3).
  WEFT_API void reject(std::span<const std::byte> private_data = {}) const;
  // Completes a connection whose queue pair is not the id's.
  WEFT_API void establish() const;   // rdma_establish(3)
  WEFT_API void disconnect() const;  // both sides get RDMA_CM_EVENT_DISCONNECTED
  // A channel of its own for the device of this id, as a place to migrate it to.
  [[nodiscard]] WEFT_API EventChannel new_channel() const;
  // Moves the id to another channel, rdma_migrate_id(3). Later events arrive there. Throws
  // Error(EINVAL) if the channel is of another device.
  WEFT_API void migrate(const EventChannel& channel);
  // Fills in what ibv_modify_qp(3) needs for `state` and returns the mask, rdma_init_qp_attr(3).
  WEFT_API int initial_attributes(ibv_qp_state state, ibv_qp_attr& attributes) const;

  // "192.0.2.1:7174", "[::1]:7174"; empty while the address is unknown.
  [[nodiscard]] WEFT_API std::string local_address() const;
  // The address of the peer, in the same form.
  [[nodiscard]] WEFT_API std::string peer_address() const;
  // The port that the id is bound to; 0 if it is not.
  [[nodiscard]] WEFT_API std::uint16_t local_port() const;

  // The object of rdma_cm. Belongs to this one.
  [[nodiscard]] rdma_cm_id* raw() const { return raw_; }

 private:
  friend class ConnectionEvent;
  explicit Id(std::shared_ptr<detail::IdState> state);

  weft::detail::Held<std::shared_ptr<detail::IdState>, "weft::verbs::Id"> state_;
  weft::detail::Held<rdma_cm_id*, "weft::verbs::Id"> raw_;
};

}  // namespace weft::verbs
