#include "weft/verbs/device.hpp"

#include <endian.h>
#include <fmt/format.h>

#include "verbs/device_search.h"
#include "verbs/failure.h"
#include "verbs/state.h"
#include "verbs/tables.h"
#include "weft/verbs/context.hpp"

namespace weft::verbs {

// Each Device keeps the C list alive, because ibv_free_device_list(3) invalidates the devices that
// are not open.
std::vector<Device> devices(Backend backend) {
  const auto [table, kind] = detail::choose(backend);
  int count = 0;
  ibv_device** list = table.get_device_list(&count);
  if (!list) {
    const int why = errno;
    // Without its module the kernel has no list of devices to open.
    const bool absent = kind == Backend::system && (why == ENOSYS || why == ENOENT);
    const std::string reason = absent ? ": the kernel's RDMA support is not loaded; load it with "
                                        "`modprobe ib_uverbs`, and see `weft doctor`"
                                      : detail::reason_for(table, why);
    detail::fail(why, "cannot list the devices" + reason, {.object = "devices"});
  }
  const auto state = std::make_shared<detail::DeviceListState>(table, list, count);
  std::vector<Device> found;
  found.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) found.push_back(Device(state, list[i], kind));
  return found;
}

std::string Device::name() const {
  return detail::check_pointer(list_->table.get_device_name(raw_), "cannot name the device");
}

// The C call returns network byte order; Guid has host byte order.
Guid Device::guid() const {
  const Guid guid{be64toh(list_->table.get_device_guid(raw_))};
  if (guid.is_reserved()) detail::fail(ENODATA, "the device " + name() + " has no GUID");
  return guid;
}

int Device::index() const {
  const int index = list_->table.get_device_index(raw_);
  if (index < 0) detail::fail(ENOTSUP, "the kernel has no index for the device " + name());
  return index;
}

Context Device::open() const {
  ibv_context* opened = list_->table.open_device(raw_);
  if (!opened) detail::fail(errno, "cannot open the device " + name());
  return Context(
      std::make_shared<detail::ContextState>(list_->table, backend_, opened, /*own=*/true));
}

namespace {

// An adapter without a cable has no active port; a program without a device name would only fail
// later on it.
bool has_usable_port(const Context& context) {
  const int ports = context.query().phys_port_cnt;
  for (int port = 1; port <= ports; ++port) {
    if (context.query_port(static_cast<std::uint8_t>(port)).is_usable()) return true;
  }
  return false;
}

// A device that cannot be opened is skipped, but the search remembers why, for the error message.
Context open_any(Backend backend) {
  detail::DeviceSearch search;
  for (const Device& device : devices(backend)) {
    std::optional<Context> context = search.open(device);
    if (context && has_usable_port(*context)) return *std::move(context);
  }
  search.fail(ENODEV, "none of the devices has an active port");
}

// Collects the names of the other devices for the error message.
Context open_named(std::string_view name, Backend backend) {
  std::string names;
  for (const Device& device : devices(backend)) {
    if (device.name() == name) return device.open();
    names += (names.empty() ? "" : ", ") + device.name();
  }
  const ErrorDetail wrong{.object = "device", .attribute = "name"};
  if (names.empty()) detail::fail(ENODEV, "there is no RDMA device", wrong);
  detail::fail(ENODEV, fmt::format("no device is called {}; there are: {}", name, names), wrong);
}

}  // namespace

Context open_device(std::string_view name, Backend backend) {
  return name.empty() ? open_any(backend) : open_named(name, backend);
}

}  // namespace weft::verbs
