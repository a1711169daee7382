// libweft-heap.so, which `weft run --check` loads into programs. It reports to the checks of the
// device which blocks of the heap the program gives back; without a device in the process it does
// nothing. The blocks themselves come from the allocator that the program would have without it,
// and malloc(3) is not replaced.
//
// An allocator that is linked into the program, or the runtime of AddressSanitizer, comes before
// this library: then the functions here are not called.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>

#include "base/heap_hooks.h"

#define WEFT_HEAP_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<const weft::HeapHooks*> hooks{nullptr};

struct Next {
  std::atomic<void (*)(void*)> free{nullptr};
  std::atomic<void* (*)(void*, std::size_t)> reallocate{nullptr};
  std::atomic<std::size_t (*)(void*)> usable{nullptr};
};
constinit Next next;
// The thread is in dlsym(3), which may call free(3) itself. Such a block is lost: there is at most
// one, the text of an error.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool looking = false;

template <typename Function>
Function find(std::atomic<Function>& function, const char* name) {
  Function found = function.load(std::memory_order_relaxed);
  if (found || looking) return found;
  looking = true;
  found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  looking = false;
  function.store(found, std::memory_order_relaxed);
  return found;
}

void* library_of(const void* function) {
  Dl_info found{};
  return dladdr(function, &found) != 0 ? found.dli_fbase : nullptr;
}

// Before the program has threads. The dynamic loader may call free(3) even earlier.
[[gnu::constructor]] void find_all() {
  find(next.free, "free");
  find(next.reallocate, "realloc");
  find(next.usable, "malloc_usable_size");
}

// An allocator without the function would be asked by that of another library, for a block that
// this does not know.
bool knows_sizes() {
  find_all();
  const auto free_block = next.free.load(std::memory_order_relaxed);
  const auto usable = next.usable.load(std::memory_order_relaxed);
  return free_block && usable && next.reallocate.load(std::memory_order_relaxed) &&
         library_of(reinterpret_cast<void*>(free_block)) ==
             library_of(reinterpret_cast<void*>(usable));
}

}  // namespace

WEFT_HEAP_EXPORT bool weft_set_heap_hooks(const weft::HeapHooks* wanted);
bool weft_set_heap_hooks(const weft::HeapHooks* wanted) {
  if (!knows_sizes()) return false;
  hooks.store(wanted, std::memory_order_release);
  return true;
}

WEFT_HEAP_EXPORT void free(void* block) noexcept {
  const weft::HeapHooks* const checks = hooks.load(std::memory_order_acquire);
  if (checks && block) checks->free(block, next.usable.load(std::memory_order_relaxed)(block));
  const auto give_back = find(next.free, "free");
  if (give_back) give_back(block);
}

WEFT_HEAP_EXPORT void* realloc(void* block, std::size_t bytes) noexcept {
  const auto reallocate = find(next.reallocate, "realloc");
  const weft::HeapHooks* const checks = hooks.load(std::memory_order_acquire);
  if (!checks || !block) return reallocate ? reallocate(block, bytes) : nullptr;
  return checks->reallocate(block, bytes,
                            {reallocate, next.usable.load(std::memory_order_relaxed)});
}
