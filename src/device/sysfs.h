// The contents of the files that a kernel device would have below /sys/class/infiniband/weft0.
// Programs read them with ibv_read_sysfs_file().
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::device {

class Device;

// `path` is relative to the device's directory, for example "ports/1/gids/0". Nothing for a file
// that a kernel device of this kind does not have.
[[nodiscard]] std::optional<std::string> sysfs_text(Device& device, std::string_view path);

}  // namespace weft::device
