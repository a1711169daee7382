// A folder that looks like /sys, with the files that the kernel has for a device: for programs that
// look there instead of asking libibverbs.
#pragma once

#include <string>

namespace weft::device {
class Device;
}  // namespace weft::device

namespace weft::provider {

// Returns the path of the folder, which this function makes if it does not exist yet. It is shared
// by the processes of this user that see the same device, and stays when they end: in
// $XDG_RUNTIME_DIR, else in /tmp. class/infiniband, class/infiniband_verbs and class/infiniband_mad
// are Weft's; the rest are links to the system's. Returns "/sys" if there is no device, or where
// the folder cannot be made. Thread-safe. Does not touch the device of the process: no capture or
// statistics file is opened.
[[nodiscard]] const std::string& sysfs_folder();

// The folder for a device, whether or not it exists. Thread-safe.
[[nodiscard]] std::string sysfs_folder_of(device::Device& device);
// Returns true if the folder exists, belongs to this user and cannot be changed by other users.
[[nodiscard]] bool sysfs_folder_exists(const std::string& folder);

}  // namespace weft::provider
