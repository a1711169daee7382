// Remarks in a capture, between the packets: what a reader of the file cannot see in them.
#pragma once

#include <string_view>

#include "device/tap/capture_tap.h"

namespace weft::device {

// Writes a remark as the comment of a frame of its own, which has the text as well, with the
// EtherType for local experiments (IEEE 802). Readers of RDMA traffic pass over such a frame.
// Thread-safe. Long texts are cut.
void write_comment(CaptureFile& file, std::string_view text);

}  // namespace weft::device
