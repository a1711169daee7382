#include "device/faults/device_link.h"

#include <utility>

#include "base/log.h"

namespace weft::device {

DeviceLink::DeviceLink(const faults::Link& link, std::uint64_t seed,
                       std::shared_ptr<DeviceCapture> capture, bool verbose)
    : link_(link), seed_(link.seed.value_or(seed)) {
  counters_.report = [capture = std::move(capture), verbose](const std::string& text) {
    if (verbose) log(LogLevel::info, "link", text);
    capture->comment(text);
  };
}

}  // namespace weft::device
