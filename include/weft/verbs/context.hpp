// An open device: ibv_open_device(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/counters.hpp"
#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/backend.hpp"
#include "weft/verbs/capture.hpp"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/domain.hpp"
#include "weft/verbs/extended_completion.hpp"
#include "weft/verbs/gid.hpp"
#include "weft/verbs/xrc_domain.hpp"

namespace weft {
struct DeviceOptions;
}

namespace weft::verbs {

namespace detail {
struct ContextState;
}

// The attributes of a port, ibv_query_port(3), with its codes decoded.
class PortAttributes {
 public:
  // From what ibv_query_port(3) has returned.
  explicit PortAttributes(const ibv_port_attr& raw) : raw_(raw) {}

  // The state of the port; see is_usable().
  [[nodiscard]] ibv_port_state state() const { return raw_.state; }
  // ACTIVE or ARMED.
  [[nodiscard]] bool is_usable() const {
    return raw_.state == IBV_PORT_ACTIVE || raw_.state == IBV_PORT_ARMED;
  }
  // The code of the MTU in use; see mtu_bytes().
  [[nodiscard]] ibv_mtu active_mtu() const { return raw_.active_mtu; }
  // The code of the largest MTU of the port.
  [[nodiscard]] ibv_mtu max_mtu() const { return raw_.max_mtu; }
  // The local identifier on InfiniBand; 0 on Ethernet.
  [[nodiscard]] std::uint16_t lid() const { return raw_.lid; }
  // Whether the link layer is Ethernet: RoCE and iWARP.
  [[nodiscard]] bool is_ethernet() const { return raw_.link_layer == IBV_LINK_LAYER_ETHERNET; }
  // The number of rows of the GID table, empty ones included.
  [[nodiscard]] int gid_table_length() const { return raw_.gid_tbl_len; }
  // The speed of one lane in Gb/s; 0 for an unknown code.
  [[nodiscard]] WEFT_API double lane_gbps() const;
  // The number of lanes; 0 for an unknown code.
  [[nodiscard]] WEFT_API int lanes() const;
  // The attributes of verbs.
  [[nodiscard]] const ibv_port_attr& raw() const { return raw_; }

 private:
  ibv_port_attr raw_;
};

// The number of bytes that an MTU code stands for.
[[nodiscard]] WEFT_API int mtu_bytes(ibv_mtu mtu);

// An asynchronous event, ibv_get_async_event(3). The destructor acknowledges it; until then the
// object that the event names cannot be destroyed (its destructor would block).
class AsyncEvent {
 public:
  AsyncEvent(AsyncEvent&& other) noexcept = default;
  AsyncEvent& operator=(AsyncEvent&& other) noexcept {
    AsyncEvent replaced(std::move(other));
    std::swap(state_, replaced.state_);
    std::swap(raw_, replaced.raw_);
    return *this;
  }
  WEFT_API ~AsyncEvent();

  // What has happened.
  [[nodiscard]] ibv_event_type type() const { return raw().event_type; }
  // The text of ibv_event_type_str(3).
  [[nodiscard]] WEFT_API std::string_view name() const;
  // The event of verbs, with the object that it is about.
  [[nodiscard]] const ibv_async_event& raw() const {
    static_cast<void>(state_.get());
    return raw_;
  }

 private:
  friend class Context;
  AsyncEvent(std::shared_ptr<detail::ContextState> state, const ibv_async_event& raw)
      : state_(std::move(state)), raw_(raw) {}

  weft::detail::Held<std::shared_ptr<detail::ContextState>, "weft::verbs::AsyncEvent"> state_;
  ibv_async_event raw_;
};

// An open device. Thread-safe. Every object that is made from a context keeps the device open, so
// the context may be destroyed first.
class Context {
 public:
  Context(Context&&) noexcept = default;
  Context& operator=(Context&&) noexcept = default;

  // Another handle of this context.
  [[nodiscard]] Context share() const { return Context(state_.get()); }

  // Where the device comes from: embedded or system.
  [[nodiscard]] WEFT_API Backend backend() const;
  // The name of the open device, as Device::name().
  [[nodiscard]] WEFT_API std::string device_name() const;

  // The query functions throw Error with the errno of the man page's call.
  [[nodiscard]] WEFT_API ibv_device_attr query() const;              // ibv_query_device(3)
  [[nodiscard]] WEFT_API ibv_device_attr_ex query_extended() const;  // ..._ex(3)
  // The attributes of a port, ibv_query_port(3).
  [[nodiscard]] WEFT_API PortAttributes query_port(std::uint8_t port = 1) const;
  // The rows of the GID tables that are not empty, ibv_query_gid_table(3).
  [[nodiscard]] WEFT_API std::vector<GidEntry> gids() const;                 // of all ports
  [[nodiscard]] WEFT_API Gid query_gid(std::uint8_t port, int index) const;  // ibv_query_gid(3)
  // The device's clock, as in CompletionIteration::timestamp() and in the same unit;
  // query_extended() has its frequency in kHz (hca_core_clock). ibv_query_rt_values_ex(3).
  [[nodiscard]] WEFT_API std::uint64_t query_clock() const;
  // The counters of the device as a whole, of all contexts that this process has opened. Throws
  // Error(EOPNOTSUPP) on the system's devices.
  [[nodiscard]] WEFT_API DeviceCounters counters() const;
  // The number of completion vectors: CompletionQueueOptions::vector is below it.
  [[nodiscard]] int completion_vectors() const { return raw_->num_comp_vectors; }

  // The row of the GID table to use for `peer`, a numeric address or GID. Prefers the source
  // address of the host's route to the peer, then the first row of the same address family and
  // scope; on InfiniBand, whose GIDs are no addresses, asks rdma_cm. Throws Error(EINVAL) if `peer`
  // is not an address, Error(ENETUNREACH) if no row is suitable.
  [[nodiscard]] WEFT_API GidChoice best_gid(std::string_view peer) const;

  // Creates a protection domain. Throws Error, as the next functions do.
  [[nodiscard]] WEFT_API ProtectionDomain create_domain() const;    // ibv_alloc_pd(3)
  [[nodiscard]] WEFT_API CompletionChannel create_channel() const;  // ibv_create_comp_channel(3)
  // Creates a completion queue for at least `entries` completions, ibv_create_cq(3).
  // CompletionQueue::wait() sleeps only if the queue has a channel.
  [[nodiscard]] WEFT_API CompletionQueue
  create_completion_queue(int entries, const CompletionQueueOptions& options = {}) const;
  // Creates an extended completion queue, ibv_create_cq_ex(3). Throws Error(EOPNOTSUPP) if the
  // device does not support a requested field.
  [[nodiscard]] WEFT_API ExtendedCompletionQueue create_extended_completion_queue(
      int entries, const ExtendedCompletionQueueOptions& options = {}) const;

  // Opens an XRC domain, ibv_open_xrcd(3), for this process only, or shared through the file `fd`.
  // Throws Error(EOPNOTSUPP) if the device has no XRC; the embedded device has it, except as iwarp.
  [[nodiscard]] WEFT_API XrcDomain open_xrc_domain(int fd = -1) const;

  // Readable while an asynchronous event is pending.
  [[nodiscard]] int event_fd() const { return raw_->async_fd; }
  // Waits for the next asynchronous event; nothing if the deadline has passed.
  [[nodiscard]] WEFT_API std::optional<AsyncEvent> next_event(Deadline deadline) const;
  // Calls `handle` with each pending event in the calling thread and returns their number, for an
  // event loop that watches event_fd(). Each event is acknowledged after `handle` has returned, so
  // `handle` must not destroy the object that the event names; it may destroy others. An exception
  // of `handle` propagates, and the events after it stay pending.
  WEFT_API std::size_t dispatch_events(const std::function<void(const AsyncEvent&)>& handle) const;

  // The context of verbs. Valid while this or an object made from it lives.
  [[nodiscard]] ibv_context* raw() const { return raw_; }

 private:
  friend class Device;
  friend class EventChannel;
  friend class Id;
  friend class ProtectionDomain;
  friend class QueuePair;
  friend class QueuePairBuilder;
  friend WEFT_API Context open_own_device(const DeviceOptions& options);
  friend WEFT_API Capture start_capture(const Context& context, const std::string& path);
  friend WEFT_API Capture start_capture(const Context& context, CaptureFunction function);
  explicit Context(std::shared_ptr<detail::ContextState> state);
  int query_device_ex(ibv_device_attr_ex& attributes) const;

  weft::detail::Held<std::shared_ptr<detail::ContextState>, "weft::verbs::Context"> state_;
  weft::detail::Held<ibv_context*, "weft::verbs::Context"> raw_;
};

}  // namespace weft::verbs
