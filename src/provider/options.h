// Converts between the public options of the embedded device and its settings.
#pragma once

#include <string>

#include "weft/device_options.hpp"

namespace weft::device {
struct Settings;
}

namespace weft::provider {

// Returns nothing, or the sentence for the option that cannot be read.
[[nodiscard]] std::string to_settings(const DeviceOptions& options, device::Settings& settings);

// Sets the options that the environment of this process names. Returns the sentence for the first
// invalid value, or nothing.
[[nodiscard]] std::string read_environment(DeviceOptions& options);

}  // namespace weft::provider
