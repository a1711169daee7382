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

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/verbs/backend.hpp"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/domain.hpp"
#include "weft/verbs/extended_completion.hpp"
#include "weft/verbs/gid.hpp"
#include "weft/verbs/xrc_domain.hpp"

namespace weft::verbs {

namespace detail {
struct ContextState;
}

// Attributes of a port, ibv_query_port(3), with what its codes mean.
class PortAttributes {
 public:
  explicit PortAttributes(const ibv_port_attr& raw) : raw_(raw) {}

  [[nodiscard]] ibv_port_state state() const { return raw_.state; }
  // ACTIVE or ARMED.
  [[nodiscard]] bool is_usable() const {
    return raw_.state == IBV_PORT_ACTIVE || raw_.state == IBV_PORT_ARMED;
  }
  [[nodiscard]] ibv_mtu active_mtu() const { return raw_.active_mtu; }
  [[nodiscard]] ibv_mtu max_mtu() const { return raw_.max_mtu; }
  [[nodiscard]] std::uint16_t lid() const { return raw_.lid; }
  [[nodiscard]] bool is_ethernet() const { return raw_.link_layer == IBV_LINK_LAYER_ETHERNET; }
  [[nodiscard]] int gid_table_length() const { return raw_.gid_tbl_len; }
  // Of one lane, in Gb/s; 0 where the code is unknown.
  [[nodiscard]] WEFT_API double lane_gbps() const;
  // Lanes; 0 where the code is unknown.
  [[nodiscard]] WEFT_API int lanes() const;
  [[nodiscard]] const ibv_port_attr& raw() const { return raw_; }

 private:
  ibv_port_attr raw_;
};

// The bytes of an MTU code.
[[nodiscard]] WEFT_API int mtu_bytes(ibv_mtu mtu);

// ibv_get_async_event(3). Acknowledged when it is destroyed: the object that it names cannot be
// destroyed before that.
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

  [[nodiscard]] ibv_event_type type() const { return raw_.event_type; }
  // ibv_event_type_str(3)'s words.
  [[nodiscard]] WEFT_API std::string_view name() const;
  [[nodiscard]] const ibv_async_event& raw() const { return raw_; }

 private:
  friend class Context;
  AsyncEvent(std::shared_ptr<detail::ContextState> state, const ibv_async_event& raw)
      : state_(std::move(state)), raw_(raw) {}

  std::shared_ptr<detail::ContextState> state_;
  ibv_async_event raw_;
};

// Thread-safe. Everything made from a context keeps it open: destroying this object early is safe.
class Context {
 public:
  Context(Context&&) noexcept = default;
  Context& operator=(Context&&) noexcept = default;

  [[nodiscard]] WEFT_API Backend backend() const;
  [[nodiscard]] WEFT_API std::string device_name() const;

  // All throw Error with the errno of the call that is named.
  [[nodiscard]] WEFT_API ibv_device_attr query() const;              // ibv_query_device(3)
  [[nodiscard]] WEFT_API ibv_device_attr_ex query_extended() const;  // ..._ex(3)
  [[nodiscard]] WEFT_API PortAttributes query_port(std::uint8_t port = 1) const;
  [[nodiscard]] WEFT_API std::vector<GidEntry> gids() const;                 // of all ports
  [[nodiscard]] WEFT_API Gid query_gid(std::uint8_t port, int index) const;  // ibv_query_gid(3)
  // The clock of CompletionIteration::timestamp(), in its units (query_extended() says how many
  // thousand in a second). ibv_query_rt_values_ex(3).
  [[nodiscard]] WEFT_API std::uint64_t query_clock() const;
  [[nodiscard]] int completion_vectors() const { return raw_->num_comp_vectors; }

  // The row to use towards a peer: its numeric address or GID. Prefers the row that the host's
  // routing would send from, then one of the same family and kind. Throws Error(EINVAL) where
  // `peer` is no address, Error(ENETUNREACH) where no row will do.
  [[nodiscard]] WEFT_API GidChoice best_gid(std::string_view peer) const;

  [[nodiscard]] WEFT_API ProtectionDomain create_domain() const;    // ibv_alloc_pd(3)
  [[nodiscard]] WEFT_API CompletionChannel create_channel() const;  // ibv_create_comp_channel(3)
  // ibv_create_cq(3): room for at least `entries` completions. With a channel, it can be waited
  // for.
  [[nodiscard]] WEFT_API CompletionQueue
  create_completion_queue(int entries, const CompletionQueueOptions& options = {}) const;
  // ibv_create_cq_ex(3). Error(EOPNOTSUPP) where the device does not have a field that is asked
  // for.
  [[nodiscard]] WEFT_API ExtendedCompletionQueue create_extended_completion_queue(
      int entries, const ExtendedCompletionQueueOptions& options = {}) const;

  // ibv_open_xrcd(3), of this process alone, or shared by the file `fd`. Error(EOPNOTSUPP) where
  // the device has no XRC, as the embedded one.
  [[nodiscard]] WEFT_API XrcDomain open_xrc_domain(int fd = -1) const;

  // Readable while an asynchronous event waits.
  [[nodiscard]] int event_fd() const { return raw_->async_fd; }
  // The next asynchronous event; nothing where none came until the deadline.
  [[nodiscard]] WEFT_API std::optional<AsyncEvent> next_event(Deadline deadline) const;
  // Calls `handle` with each event that waits now, in the calling thread, and answers how many
  // there were: for a loop that watches event_fd(). Each is acknowledged when `handle` returns,
  // which may therefore destroy other objects than the one that the event names. What `handle`
  // throws goes through; the events behind it wait on.
  WEFT_API std::size_t dispatch_events(const std::function<void(const AsyncEvent&)>& handle) const;

  [[nodiscard]] ibv_context* raw() const { return raw_; }

 private:
  friend class Device;
  friend class Id;
  friend class QueuePair;
  explicit Context(std::shared_ptr<detail::ContextState> state);
  int query_device_ex(ibv_device_attr_ex& attributes) const;

  std::shared_ptr<detail::ContextState> state_;
  ibv_context* raw_;
};

}  // namespace weft::verbs
