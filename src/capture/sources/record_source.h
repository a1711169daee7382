// Reads capture files that are a sequence of records, and names those of formats that are not read.
#pragma once

#include <memory>
#include <string>

#include "capture/tcp/byte_window.h"

namespace weft::capture {

// Returns nullptr if the file is of another format; the window is not moved then. Throws
// std::runtime_error with `name` if it is snoop with a link layer that is not read.
[[nodiscard]] std::unique_ptr<PacketSource> read_records(ByteWindow& window,
                                                         const std::string& name);
// Returns a sentence about a file of a format that is not read, with the command that converts it
// if it can be converted.
[[nodiscard]] std::string unread_format_text(Bytes first, const std::string& name);

}  // namespace weft::capture
