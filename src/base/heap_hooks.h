// How libweft-heap.so, which `weft run --check` loads into programs, reports to the checks the
// blocks of the heap that the program gives back.
#pragma once

#include <cstddef>

namespace weft {

// The allocator behind the library: that of the C library, or of another shared library.
struct Allocator {
  void* (*reallocate)(void* block, std::size_t bytes);  // realloc(3)
  std::size_t (*usable)(void* block);                   // malloc_usable_size(3)
};

struct HeapHooks {
  // free(3) is about to give back a block with this many usable bytes. Any thread calls it, at any
  // time, also while it is in the device or in the checks.
  void (*free)(const void* block, std::size_t bytes);
  // Does the work of realloc(3), by the allocator. The block is not null.
  void* (*reallocate)(void* block, std::size_t bytes, const Allocator& allocator);
};

// libweft-heap.so exports this function under the name below. The hooks are used until it is called
// again; null: none. False if the sizes of blocks are not known: then the hooks are not called.
using SetHeapHooks = bool(const HeapHooks* hooks);
inline constexpr const char* set_heap_hooks_name = "weft_set_heap_hooks";

}  // namespace weft
