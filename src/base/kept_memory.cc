#include "base/kept_memory.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <new>

namespace weft {
namespace {

constexpr std::size_t most_kept = 4096;

constinit std::atomic<bool> keeping{false};

struct Kept {
  std::mutex mutex;
  std::deque<void*> memory;  // the oldest first
};

// Never destroyed: objects are deleted until the process ends.
Kept& kept() {
  static auto* const all = new Kept;
  return *all;
}

}  // namespace

void keep_memory_of_destroyed() {
  (void)kept();
  keeping = true;
}

void* KeptMemory::operator new(std::size_t bytes) {
  return ::operator new(bytes);
}

void KeptMemory::operator delete(void* memory) {
  if (!keeping) return ::operator delete(memory);
  const std::lock_guard lock(kept().mutex);
  kept().memory.push_back(memory);
  if (kept().memory.size() <= most_kept) return;
  ::operator delete(kept().memory.front());
  kept().memory.pop_front();
}

}  // namespace weft
