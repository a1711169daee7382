// The devices there are.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/export.hpp"
#include "weft/verbs/backend.hpp"
#include "weft/verbs/gid.hpp"

namespace weft::verbs {

class Context;

namespace detail {
struct DeviceListState;
}

// A device that could be opened. A value; it keeps the list it came from alive.
class Device {
 public:
  [[nodiscard]] Backend backend() const { return backend_; }  // embedded or system
  [[nodiscard]] WEFT_API std::string name() const;
  // ibv_get_device_guid(3). Throws where the device has none.
  [[nodiscard]] WEFT_API Guid guid() const;
  // The kernel's number; 0 for the embedded device. Throws Error(ENOTSUP) where there is none.
  [[nodiscard]] WEFT_API int index() const;
  [[nodiscard]] ibv_transport_type transport() const { return raw_->transport_type; }
  [[nodiscard]] ibv_node_type node_type() const { return raw_->node_type; }
  // ibv_open_device(3).
  [[nodiscard]] WEFT_API Context open() const;
  [[nodiscard]] ibv_device* raw() const { return raw_; }

 private:
  friend WEFT_API std::vector<Device> devices(Backend backend);
  friend class Context;
  Device(std::shared_ptr<detail::DeviceListState> list, ibv_device* raw, Backend backend)
      : list_(std::move(list)), raw_(raw), backend_(backend) {}

  std::shared_ptr<detail::DeviceListState> list_;
  ibv_device* raw_;
  Backend backend_;
};

// ibv_get_device_list(3). With Backend::automatic, those of whichever backend it stands for here.
// Thread-safe, as everything in this header. Throws Error.
[[nodiscard]] WEFT_API std::vector<Device> devices(Backend backend = default_backend());

// The device of that name; the first one that can be opened and has an active port where `name` is
// empty. Throws Error(ENODEV) that lists what there is; where no device can be opened, why not.
[[nodiscard]] WEFT_API Context open_device(std::string_view name = {},
                                           Backend backend = default_backend());

// The device to reach a peer by, its numeric address or GID: the first that has the GID which the
// host's routing would send from, else the first with a GID of the same kind; Context::best_gid()
// tells which. Throws Error(EINVAL) where `peer` is no address, Error(ENETUNREACH) that lists what
// there is where no device will do.
[[nodiscard]] WEFT_API Context open_device_towards(std::string_view peer,
                                                   Backend backend = default_backend());

}  // namespace weft::verbs
