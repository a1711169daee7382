// The counters that the kernel has for a port below /sys/class/infiniband: in `counters` those of
// InfiniBand's port counters, in `hw_counters` those of adapters, with the names of mlx5.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::device {
class Device;
}  // namespace weft::device

namespace weft::provider {

struct PortCounter {
  std::string_view path;  // from the folder of the port, as "counters/port_xmit_data"
  std::uint64_t value = 0;
};

// What the device has counted since it was made; all of them, in the same order in each call. A
// message counts as one packet, and data are in units of four bytes, as the kernel has them. Those
// of a link that Weft does not have are 0. Thread-safe; waits up to 0.2 s for a queue pair that is
// locked, and leaves it out then.
[[nodiscard]] std::vector<PortCounter> port_counters(device::Device& device);

// The paths alone.
[[nodiscard]] std::vector<std::string_view> port_counter_paths();

}  // namespace weft::provider
