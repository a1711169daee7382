// Finding and opening devices. All functions of this header are thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/backend.hpp"
#include "weft/verbs/gid.hpp"

namespace weft {
struct DeviceOptions;
}

namespace weft::verbs {

class Context;

namespace detail {
struct DeviceListState;
}

// A device of the system or of the process. A value; it keeps the device list that it came from
// alive.
class Device {
 public:
  // Where the device comes from.
  [[nodiscard]] Backend backend() const {  // embedded or system
    static_cast<void>(list_.get());
    return backend_;
  }
  // "weft0", "mlx5_0": ibv_get_device_name(3).
  [[nodiscard]] WEFT_API std::string name() const;
  // ibv_get_device_guid(3). Throws Error(ENODATA) if the device has none.
  [[nodiscard]] WEFT_API Guid guid() const;
  // The kernel's device index; 0 for the embedded device. Throws Error(ENOTSUP) if the device has
  // none.
  [[nodiscard]] WEFT_API int index() const;
  // The transport, by which programs tell iWARP from InfiniBand and RoCE.
  [[nodiscard]] ibv_transport_type transport() const { return raw_->transport_type; }
  // The kind of adapter; IBV_NODE_RNIC for iWARP.
  [[nodiscard]] ibv_node_type node_type() const { return raw_->node_type; }
  // Opens the device, ibv_open_device(3). Throws Error.
  [[nodiscard]] WEFT_API Context open() const;
  // The device of verbs. Valid while a value of the same list lives.
  [[nodiscard]] ibv_device* raw() const { return raw_; }

 private:
  friend WEFT_API std::vector<Device> devices(Backend backend);
  friend class Context;
  Device(std::shared_ptr<detail::DeviceListState> list, ibv_device* raw, Backend backend)
      : list_(std::move(list)), raw_(raw), backend_(backend) {}

  weft::detail::Held<std::shared_ptr<detail::DeviceListState>, "weft::verbs::Device"> list_;
  weft::detail::Held<ibv_device*, "weft::verbs::Device"> raw_;
  Backend backend_;
};

// Lists the devices, ibv_get_device_list(3), of the backend that choose_backend() resolves to.
// Throws Error.
[[nodiscard]] WEFT_API std::vector<Device> devices(Backend backend = default_backend());

// Opens the device of that name; with an empty name, the first one that can be opened and has an
// active port. Throws Error(ENODEV) with a list of the devices; if no device can be opened, with
// the reason.
[[nodiscard]] WEFT_API Context open_device(std::string_view name = {},
                                           Backend backend = default_backend());

// Opens an embedded device of its own, with these options, beside the one that the process shares.
// Queue pairs that are made from it use it, and so do objects that name it: EventChannel and its
// Ids, connection::Options::device, message::EventLoop, stream::Options::device. These objects
// need another DeviceOptions::progress than manual. Its peers may be on any device. It is not in
// devices(). Its name is "weft1" and so on; it is closed with the last object that was made from
// it, and then ends connections without waiting for their peers. Throws Error: EINVAL or ENODEV,
// with the option at fault.
[[nodiscard]] WEFT_API Context open_own_device(const DeviceOptions& options);

// Opens the device that reaches `peer`, a numeric address or GID: the first with the source address
// of the host's route in its GID table, else the first with a GID of the same address family and
// scope; Context::best_gid() returns the row. Throws Error(EINVAL) if `peer` is not an address,
// Error(ENETUNREACH) with a list of the devices if none is suitable.
[[nodiscard]] WEFT_API Context open_device_towards(std::string_view peer,
                                                   Backend backend = default_backend());

}  // namespace weft::verbs
