// The shared heap of the process, where `weft run` has loaded one (base/shared_heap_hooks.h):
// memory that the program has allocated and that devices of peers on this host can map.
#pragma once

#include <cstddef>

#include "device/memory/file_memory.h"

namespace weft::device {

struct Settings;

// Keeps a part of the heap from being given to another user, as long as a region lies on it.
// Movable; empty for other memory.
class HeapMemory {
 public:
  HeapMemory() = default;
  // Empty unless all of the memory is allocated in the heap.
  HeapMemory(const void* at, std::size_t length_bytes);
  HeapMemory(HeapMemory&& other) noexcept;
  HeapMemory& operator=(HeapMemory&& other) noexcept;
  ~HeapMemory();

  // Where peers find it; not valid if it is empty.
  [[nodiscard]] const FileName& name() const { return name_; }

  // The program opens a device: the heap serves its allocations from now on, unless connections of
  // the device cannot leave TCP anyway.
  static void start(const Settings& settings);

 private:
  void release();

  const void* at_ = nullptr;  // null: empty
  std::size_t length_bytes_ = 0;
  FileName name_;
};

}  // namespace weft::device
