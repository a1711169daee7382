// What the files below /sys/class/infiniband/weft0 would say, if there were any: programs read them
// through ibv_read_sysfs_file().
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::device {

class Device;

// `path`: below the device's directory, as "ports/1/gids/0". Nothing for a file that a kernel
// device of this kind would not have.
[[nodiscard]] std::optional<std::string> sysfs_text(Device& device, std::string_view path);

}  // namespace weft::device
