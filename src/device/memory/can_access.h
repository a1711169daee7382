// Finds out which memory a failed copy could not access.
#pragma once

#include <sys/uio.h>

namespace weft::device {

// Whether each page of the memory can be read, or written to. It touches each page and changes
// nothing; other threads may use the memory meanwhile. Thread safe.
[[nodiscard]] bool can_access(const iovec& memory, bool for_writing);

}  // namespace weft::device
