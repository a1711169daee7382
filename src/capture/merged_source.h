// Several captures as one, in the order of time: rotated files, or two taken at the same time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/packet_source.h"

namespace weft::capture {

// Opens each file when the first of its packets is due, so that hundreds of rotated files need few
// descriptors. Throws as open_capture() does, at once.
[[nodiscard]] std::unique_ptr<PacketSource> merge_captures(const std::vector<std::string>& paths,
                                                           const std::atomic<bool>* stop = nullptr);

}  // namespace weft::capture
