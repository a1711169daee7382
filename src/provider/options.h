// Converts between the public options of the embedded device and its settings.
#pragma once

#include <string>

#include "weft/device_options.hpp"
#include "weft/error.hpp"

namespace weft::device {
struct Settings;
}

namespace weft::provider {

// An option that cannot be read or is out of range. `sentence` is empty where there is none.
struct WrongOption {
  std::string sentence;
  ErrorDetail detail;  // its attribute is the name of the member, as in "limits.max_qp"
};

// Returns the first wrong option. Whether the host has the address, and files can be written, is
// only known when the device is made.
[[nodiscard]] WrongOption to_settings(const DeviceOptions& options, device::Settings& settings);
// The same without a result.
[[nodiscard]] WrongOption check_options(const DeviceOptions& options);

// Sets the options that the environment of this process names. Returns the sentence for the first
// invalid value, or nothing.
[[nodiscard]] std::string read_environment(DeviceOptions& options);

}  // namespace weft::provider
