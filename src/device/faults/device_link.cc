#include "device/faults/device_link.h"

#include <utility>

#include "base/log.h"
#include "device/tap/capture_comment.h"

namespace weft::device {

DeviceLink::DeviceLink(const faults::Link& link, std::uint64_t seed,
                       std::shared_ptr<CaptureFile> capture, bool verbose)
    : link_(link), seed_(link.seed.value_or(seed)) {
  if (!capture && !verbose) return;
  counters_.report = [capture = std::move(capture), verbose](const std::string& text) {
    if (verbose) log(LogLevel::info, "link", text);
    if (capture) write_comment(*capture, text);
  };
}

}  // namespace weft::device
