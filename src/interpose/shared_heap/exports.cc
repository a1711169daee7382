// libweft-shared-heap.so, which `weft run` loads into programs. Once the program has opened the
// device, it serves their page-aligned allocations, as programs make them for RDMA, from memory
// that devices of other processes on the host can map (shared_heap.h). Everything else goes to the
// allocator that the program would have without it.
//
// An allocator that is linked into the program, or the runtime of a sanitizer, comes before this
// library: then free(3) is not called here, and the heap stays off.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/heap_hooks.h"
#include "interpose/shared_heap/raw_calls.h"
#include "interpose/shared_heap/shared_heap.h"

#define WEFT_HEAP_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using weft::interpose::SharedHeap;

constinit SharedHeap heap;
// Blocks of malloc(3) and calloc(3) from this size on; 0: none.
constinit std::atomic<std::size_t> ordinary_from{0};
constexpr std::size_t large_ordinary_bytes = std::size_t{64} << 10;

// The thread is in dlsym(3), which may call malloc(3) itself, for the text of an error. It gets
// nothing then.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool looking = false;

// A function of the allocator behind this library.
template <typename Signature>
class Next;

template <typename Result, typename... Arguments>
class Next<Result(Arguments...)> {
 public:
  constexpr Next(const char* name, Result missing) : name_(name), missing_(missing) {}
  Result operator()(Arguments... arguments) {
    auto* const found = find();
    return found ? found(arguments...) : missing_;
  }

 private:
  using Pointer = Result (*)(Arguments...);
  Pointer find() {
    Pointer found = found_.load(std::memory_order_relaxed);
    if (found || looking) return found;
    looking = true;
    found = reinterpret_cast<Pointer>(dlsym(RTLD_NEXT, name_));
    looking = false;
    found_.store(found, std::memory_order_relaxed);
    return found;
  }

  const char* name_;
  Result missing_;
  std::atomic<Pointer> found_{nullptr};
};

// free(3) returns nothing.
class NextFree {
 public:
  void operator()(void* block) {
    auto* found = found_.load(std::memory_order_relaxed);
    if (!found && !looking) {
      looking = true;
      found = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_NEXT, "free"));
      looking = false;
      found_.store(found, std::memory_order_relaxed);
    }
    if (found) found(block);
  }

 private:
  std::atomic<void (*)(void*)> found_{nullptr};
};

constinit NextFree next_free;
constinit Next<void*(std::size_t)> next_malloc{"malloc", nullptr};
constinit Next<void*(std::size_t, std::size_t)> next_calloc{"calloc", nullptr};
constinit Next<void*(void*, std::size_t)> next_realloc{"realloc", nullptr};
constinit Next<int(void**, std::size_t, std::size_t)> next_posix_memalign{"posix_memalign", ENOMEM};
constinit Next<void*(std::size_t, std::size_t)> next_memalign{"memalign", nullptr};
constinit Next<void*(std::size_t, std::size_t)> next_aligned_alloc{"aligned_alloc", nullptr};
constinit Next<void*(std::size_t)> next_valloc{"valloc", nullptr};
constinit Next<void*(std::size_t)> next_pvalloc{"pvalloc", nullptr};
constinit Next<std::size_t(void*)> next_usable{"malloc_usable_size", 0};
constinit Next<int(pthread_attr_t*, void*, std::size_t)> next_setstack{"pthread_attr_setstack",
                                                                       ENOSYS};

class KeptErrno {
 public:
  ~KeptErrno() { errno = kept_; }

 private:
  int kept_ = errno;
};

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Null where the block is not the heap's.
void* take_aligned(std::size_t alignment, std::size_t bytes) {
  const KeptErrno kept;
  const bool power = (alignment & (alignment - 1)) == 0;
  return power ? heap.allocate(bytes, alignment) : nullptr;
}

void* take_ordinary(std::size_t bytes, bool zeroed) {
  const std::size_t from = ordinary_from.load(std::memory_order_relaxed);
  if (from == 0 || bytes < from) return nullptr;
  const KeptErrno kept;
  return heap.allocate(bytes, page_bytes(), zeroed);
}

void* library_of(const void* function) {
  Dl_info found{};
  return function && dladdr(function, &found) != 0 ? found.dli_fbase : nullptr;
}

// libweft-heap.so (`weft run --check`) may be in front: it calls the functions here.
bool frees_all() {
  const void* const of_program = library_of(dlsym(RTLD_DEFAULT, "free"));
  return of_program == library_of(&ordinary_from) ||
         of_program == library_of(dlsym(RTLD_DEFAULT, weft::set_heap_hooks_name));
}

// The first handlers of the process, because the library is initialized first (its flag
// DF_1_INITFIRST): so no handler of the program uses the heap in a child that has no copy yet.
[[gnu::constructor]] void watch_forks() {
  pthread_atfork([] { heap.before_fork(); }, [] { heap.after_fork_in_parent(); },
                 [] { heap.after_fork_in_child(); });
}

const char* start(const weft::SharedHeapOptions& options) {
  const KeptErrno kept;
  if (!frees_all()) return "the program has another allocator in front";
  const char* const reason = heap.start(options);
  if (!reason && options.all) ordinary_from = large_ordinary_bytes;
  return reason;
}

bool hold(const void* at, std::size_t bytes, weft::SharedHeapPart* part) {
  return heap.hold(at, bytes, *part);
}

void release(const void* at, std::size_t bytes) {
  heap.release(at, bytes);
}

constexpr weft::SharedHeapHooks hooks{.start = start, .hold = hold, .release = release};

}  // namespace

WEFT_HEAP_EXPORT const weft::SharedHeapHooks* weft_shared_heap_hooks();
const weft::SharedHeapHooks* weft_shared_heap_hooks() {
  return &hooks;
}

// --- Allocation ----------------------------------------------------------------------------------

WEFT_HEAP_EXPORT int posix_memalign(void** block, std::size_t alignment,
                                    std::size_t bytes) noexcept {
  if (void* const taken = take_aligned(alignment, bytes)) {
    *block = taken;
    return 0;
  }
  return next_posix_memalign(block, alignment, bytes);
}

WEFT_HEAP_EXPORT void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  void* const taken = take_aligned(alignment, bytes);
  return taken ? taken : next_memalign(alignment, bytes);
}

WEFT_HEAP_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  void* const taken = take_aligned(alignment, bytes);
  return taken ? taken : next_aligned_alloc(alignment, bytes);
}

WEFT_HEAP_EXPORT void* valloc(std::size_t bytes) noexcept {
  void* const taken = take_aligned(page_bytes(), bytes);
  return taken ? taken : next_valloc(bytes);
}

WEFT_HEAP_EXPORT void* pvalloc(std::size_t bytes) noexcept {
  void* const taken = take_aligned(page_bytes(), bytes);
  return taken ? taken : next_pvalloc(bytes);
}

WEFT_HEAP_EXPORT void* malloc(std::size_t bytes) noexcept {
  void* const taken = take_ordinary(bytes, false);
  return taken ? taken : next_malloc(bytes);
}

WEFT_HEAP_EXPORT void* calloc(std::size_t count, std::size_t bytes) noexcept {
  std::size_t all = 0;
  const bool fits = !__builtin_mul_overflow(count, bytes, &all);
  void* const taken = fits ? take_ordinary(all, true) : nullptr;
  return taken ? taken : next_calloc(count, bytes);
}

WEFT_HEAP_EXPORT void free(void* block) noexcept {
  if (!heap.contains(block)) return next_free(block);
  const KeptErrno kept;
  heap.free(block);
}

WEFT_HEAP_EXPORT void* realloc(void* block, std::size_t bytes) noexcept {
  if (!heap.contains(block)) return next_realloc(block, bytes);
  if (bytes == 0) {
    heap.free(block);
    return nullptr;
  }
  if (heap.resize(block, bytes)) return block;
  void* const larger = heap.allocate(bytes, page_bytes());
  void* const moved = larger ? larger : next_malloc(bytes);
  if (!moved) return nullptr;
  std::memcpy(moved, block, std::min(bytes, heap.usable(block)));
  heap.free(block);
  return moved;
}

WEFT_HEAP_EXPORT std::size_t malloc_usable_size(void* block) noexcept {
  return heap.contains(block) ? heap.usable(block) : next_usable(block);
}

// --- What programs do to pages -------------------------------------------------------------------

WEFT_HEAP_EXPORT int mprotect(void* at, std::size_t bytes, int protection) noexcept {
  const int result = weft::interpose::raw::mprotect(at, bytes, protection);
  if (result == 0 && heap.contains(at)) heap.note_protection(at, bytes, protection);
  return result;
}

// Private memory contains zeros afterwards, and programs rely on it. MADV_FREE is for private
// memory only, and allows zeros.
WEFT_HEAP_EXPORT int madvise(void* at, std::size_t bytes, int advice) noexcept {
  const bool discards = advice == MADV_DONTNEED || advice == MADV_FREE;
  if (discards && heap.contains(at)) return heap.discard(at, bytes);
  return weft::interpose::raw::madvise(at, bytes, advice);
}

WEFT_HEAP_EXPORT int pthread_attr_setstack(pthread_attr_t* attributes, void* stack,
                                           std::size_t bytes) noexcept {
  if (heap.contains(stack)) heap.make_private(stack, bytes);
  return next_setstack(attributes, stack, bytes);
}
