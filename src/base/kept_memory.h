// Keeps the memory of destroyed objects for a while, so that a program that uses one by mistake is
// reported instead of crashing. Off by default: then memory is freed at once.
#pragma once

#include <cstddef>

namespace weft {

// Thread-safe. From now on; the memory of the latest few thousand objects is kept.
void keep_memory_of_destroyed();

// A base of classes whose objects programs hold by pointers. It adds no data: only `new` and
// `delete` are its own.
class KeptMemory {
 public:
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory);

 protected:
  ~KeptMemory() = default;
};

}  // namespace weft
