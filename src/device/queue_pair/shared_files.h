// Files that the program at one end of a connection shares with the program at the other end.
#pragma once

#include "device/system.h"

namespace weft::device {

// Either may be invalid: nothing is shared, or there is no bell.
struct SharedFiles {
  sys::Descriptor memory;  // a file of memory (memfd_create(2))
  sys::Descriptor bell;    // anything else; the device only passes it on
};

}  // namespace weft::device
