// Connection management as objects: rdma_cm(7).
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

// An address and port, numeric or by name: rdma_getaddrinfo(3).
struct Address {
  Address() = default;
  // Not left to braces: what GCC 12 makes of temporaries that are initialized by them within a
  // co_await expression is destroyed twice.
  Address(std::string of_host, std::uint16_t of_port) : host(std::move(of_host)), port(of_port) {}

  std::string host;  // empty: any local address, for listening
  std::uint16_t port = 0;
};

// How a connection is asked for and accepted: rdma_connect(3), rdma_accept(3).
struct ConnectionParameters {
  // Read during the call. EINVAL where there is more than the transport takes.
  std::span<const std::byte> private_data{};
  std::uint8_t responder_resources = 1;  // the peer's reads and atomics under way
  std::uint8_t initiator_depth = 1;      // ours
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry_count = 7;
};

class Id;

// What happened to an id: rdma_get_cm_event(3). Acknowledged when it is destroyed; its id cannot be
// destroyed before that.
class ConnectionEvent {
 public:
  ConnectionEvent(ConnectionEvent&&) noexcept = default;
  ConnectionEvent& operator=(ConnectionEvent&&) = delete;
  WEFT_API ~ConnectionEvent();

  [[nodiscard]] rdma_cm_event_type type() const { return raw_->event; }
  // rdma_event_str(3)'s words.
  [[nodiscard]] WEFT_API std::string_view name() const;
  // 0, a negative errno, or for a rejection the reason of the transport.
  [[nodiscard]] int status() const { return raw_->status; }
  // What the peer has sent along; valid while the event lives.
  [[nodiscard]] WEFT_API std::span<const std::byte> private_data() const;
  // Of RDMA_CM_EVENT_CONNECT_REQUEST: the new id, once; later calls throw std::logic_error. An id
  // that is not taken is rejected when the event is destroyed.
  [[nodiscard]] WEFT_API Id take_request();
  [[nodiscard]] rdma_cm_id* id() const { return raw_->id; }
  [[nodiscard]] rdma_cm_event* raw() const { return raw_.get(); }

 private:
  friend class EventChannel;
  struct Acknowledge {
    std::shared_ptr<detail::EventChannelState> channel;
    void operator()(rdma_cm_event* event) const;
  };
  ConnectionEvent(std::shared_ptr<detail::EventChannelState> channel, rdma_cm_event* raw);

  std::unique_ptr<rdma_cm_event, Acknowledge> raw_;
  bool request_taken_ = false;
};

// Thread-safe; of several waiters each event goes to one.
class EventChannel {
 public:
  WEFT_API explicit EventChannel(Backend backend = default_backend());
  EventChannel(EventChannel&&) noexcept = default;
  EventChannel& operator=(EventChannel&&) noexcept = default;

  // Readable while an event waits. Non-blocking.
  [[nodiscard]] int fd() const { return raw_->fd; }
  // The next event; nothing where none came until the deadline. Throws Error.
  [[nodiscard]] WEFT_API std::optional<ConnectionEvent> next(Deadline deadline) const;
  [[nodiscard]] rdma_event_channel* raw() const { return raw_; }

 private:
  friend class Id;
  friend class ConnectionEvent;
  std::shared_ptr<detail::EventChannelState> state_;
  rdma_event_channel* raw_;
};

// A communication identifier: rdma_create_id(3). Its events come through its channel. Thread-safe
// as rdma_cm is. All calls throw Error.
class Id {
 public:
  WEFT_API explicit Id(const EventChannel& channel, rdma_port_space space = RDMA_PS_TCP);
  Id(Id&&) noexcept = default;
  Id& operator=(Id&&) noexcept = default;

  // Before bind(): a listener on an IPv6 address takes no IPv4 peers. RDMA_OPTION_ID_AFONLY.
  WEFT_API void set_ipv6_only(bool only) const;
  WEFT_API void bind(const Address& address) const;
  WEFT_API void listen(int backlog = 0) const;
  // Instead of bind() and listen(): requests come by TCP connections that somebody else has
  // accepted, of which nothing was read. Takes the descriptor, also where it throws. Embedded
  // backend only; else Error(EOPNOTSUPP).
  WEFT_API void adopt(int connection) const;
  // RDMA_CM_EVENT_ADDR_RESOLVED follows, RDMA_CM_EVENT_ROUTE_RESOLVED after the second.
  WEFT_API void resolve_address(const Address& peer, std::chrono::milliseconds timeout) const;
  WEFT_API void resolve_route(std::chrono::milliseconds timeout) const;

  // The device that the id is bound to, as a context of its own. Throws Error(ENODEV) where it is
  // bound to none yet.
  [[nodiscard]] WEFT_API Context context() const;
  // rdma_create_qp(3), in the states that the connection goes through. The id owns it: handles that
  // this returns keep the id.
  WEFT_API QueuePair create_queue_pair(const ProtectionDomain& domain, const CompletionQueue& send,
                                       const CompletionQueue& receive, const ibv_qp_cap& capacity,
                                       bool signal_all = false) const;

  WEFT_API void connect(const ConnectionParameters& parameters = {}) const;
  WEFT_API void accept(const ConnectionParameters& parameters = {}) const;
  WEFT_API void reject(std::span<const std::byte> private_data = {}) const;
  WEFT_API void establish() const;   // rdma_establish(3)
  WEFT_API void disconnect() const;  // both sides get RDMA_CM_EVENT_DISCONNECTED
  // rdma_migrate_id(3): later events come through the other channel.
  WEFT_API void migrate(const EventChannel& channel);
  // rdma_init_qp_attr(3): what ibv_modify_qp(3) needs to get to `state`, and its mask.
  WEFT_API int initial_attributes(ibv_qp_state state, ibv_qp_attr& attributes) const;

  // "192.0.2.1:7174", "[::1]:7174"; empty where there is none yet.
  [[nodiscard]] WEFT_API std::string local_address() const;
  [[nodiscard]] WEFT_API std::string peer_address() const;
  [[nodiscard]] WEFT_API std::uint16_t local_port() const;

  [[nodiscard]] rdma_cm_id* raw() const { return raw_; }

 private:
  friend class ConnectionEvent;
  explicit Id(std::shared_ptr<detail::IdState> state);

  std::shared_ptr<detail::IdState> state_;
  rdma_cm_id* raw_;
};

}  // namespace weft::verbs
