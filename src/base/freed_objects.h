// For the checks of programs: where the addresses of destroyed objects end to be theirs.
#pragma once

#include <cstddef>

namespace weft {

// Calls the function when the memory of a destroyed object, which keep_memory_of_destroyed() has
// kept for a while, is freed: from then on another object may have its address. To be called before
// keep_memory_of_destroyed(). The function must not destroy objects.
void call_when_freed(void (*freed)(const void* memory, std::size_t bytes));

}  // namespace weft
