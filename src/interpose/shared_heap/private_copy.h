// Replaces mapped memory by ordinary memory with the same contents.
#pragma once

#include <cstddef>

namespace weft::interpose {

// Whether replace_by_private() can work on this processor.
[[nodiscard]] bool can_replace_by_private();
// Whole pages. Also where they are the stack of the calling thread: nothing is written to it
// between the copy and the call of the kernel that puts the copy there. Other threads must not
// write to the memory meanwhile. False: nothing has changed.
[[nodiscard]] bool replace_by_private(void* at, std::size_t bytes);

}  // namespace weft::interpose
