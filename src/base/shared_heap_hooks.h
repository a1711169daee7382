// How the device and libweft-shared-heap.so, which `weft run` loads into programs, meet. The
// library serves allocations of the program from a file of memory, so that the devices of peers on
// the same host can map it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

struct SharedHeapOptions {
  std::size_t limit_bytes = 0;
  // Also malloc(3) and calloc(3) of large blocks; otherwise only allocations with the alignment of
  // a page.
  bool all = false;
};

// Where memory lies in the file of the shared heap.
struct SharedHeapPart {
  int descriptor = -1;
  std::uint64_t inode = 0;
  std::uint64_t offset_bytes = 0;
};

// All functions are thread-safe.
struct SharedHeapHooks {
  // Serves allocations from now on. Null, or why it does not: the words after "because". Later
  // calls change nothing and return the same.
  const char* (*start)(const SharedHeapOptions& options);
  // False unless all of the memory is the shared heap's, and allocated. Then its blocks are not
  // given to another user before release() of the same memory, even if the program frees them.
  bool (*hold)(const void* at, std::size_t bytes, SharedHeapPart* part);
  void (*release)(const void* at, std::size_t bytes);
};

// libweft-shared-heap.so exports this function under the name below.
using GetSharedHeapHooks = const SharedHeapHooks*();
inline constexpr const char* shared_heap_hooks_name = "weft_shared_heap_hooks";

}  // namespace weft
