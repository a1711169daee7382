// Reads capture files of Microsoft Network Monitor (wire/netmon.h).
#pragma once

#include <memory>
#include <string>

#include "capture/tcp/byte_window.h"

namespace weft::capture {

// Returns nullptr if the file is of another format; the window is not moved then. Throws
// std::runtime_error with `name` if its version is not known.
[[nodiscard]] std::unique_ptr<PacketSource> read_netmon(ByteWindow& window,
                                                        const std::string& name);

}  // namespace weft::capture
