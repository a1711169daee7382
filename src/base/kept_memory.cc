#include "base/kept_memory.h"

#include <malloc.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <new>

#include "base/freed_objects.h"

namespace weft {
namespace {

constexpr std::size_t most_kept = 4096;

constinit std::atomic<bool> keeping{false};

struct Kept {
  std::mutex mutex;
  std::deque<void*> memory;  // the oldest first
  void (*freed)(const void* memory, std::size_t bytes) = nullptr;

  // Returns the oldest block if there are too many, else null.
  [[nodiscard]] void* add(void* block) {
    const std::lock_guard lock(mutex);
    memory.push_back(block);
    if (memory.size() <= most_kept) return nullptr;
    void* const oldest = memory.front();
    memory.pop_front();
    return oldest;
  }
};

// Never destroyed: objects are deleted until the process ends.
Kept& kept() {
  static auto* const all = new Kept;
  return *all;
}

}  // namespace

void call_when_freed(void (*freed)(const void* memory, std::size_t bytes)) {
  kept().freed = freed;
}

void keep_memory_of_destroyed() {
  (void)kept();
  keeping = true;
}

void* KeptMemory::operator new(std::size_t bytes) {
  return ::operator new(bytes);
}

// The function is called without the lock, and before another object can have the memory.
void KeptMemory::operator delete(void* memory) {
  if (!keeping) return ::operator delete(memory);
  void* const oldest = kept().add(memory);
  if (!oldest) return;
  if (kept().freed) kept().freed(oldest, malloc_usable_size(oldest));
  ::operator delete(oldest);
}

}  // namespace weft
