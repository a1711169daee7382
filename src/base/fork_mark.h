// Tells a process from those that descend from it by fork(2), without a system call.
#pragma once

#include <cstdint>

namespace weft {

// A number that a child of fork(2) does not have in common with any of its ancestors, however it
// was made. A child of vfork(2), which uses the memory of its parent, has the parent's.
// Thread-safe.
[[nodiscard]] std::uint64_t fork_mark();

}  // namespace weft
