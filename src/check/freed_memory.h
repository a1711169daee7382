// Blocks of the heap that the program gives back while they are registered, or posted.
#pragma once

namespace weft::check {

// From now on, where libweft-heap.so is loaded, which reports each free(3).
void watch_heap();
void unwatch_heap();

}  // namespace weft::check
