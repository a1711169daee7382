// A heap of whole pages in a file of memory: what the program allocates there, devices of peers on
// this host can map (base/shared_heap_hooks.h).
//
// One range of addresses is reserved. The file is mapped there piece by piece, as far as it is
// used. Everything that does not fit is left to the allocator that the program has otherwise.
//
// Unlike ordinary memory, such mappings would be shared with children of fork(2). So a child has
// none at first, and gets a copy (fork_copy.h), for which the functions below with "fork" are
// called. clone(2) calls no handlers, so its child has no heap: SIGSEGV ends it when it accesses
// one.
//
// It allocates nothing by malloc(3) and makes no call that a program can replace, and its
// destructor is trivial.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/shared_heap_hooks.h"
#include "interpose/shared_heap/fork_copy.h"
#include "interpose/shared_heap/heap_file.h"
#include "interpose/shared_heap/heap_lock.h"
#include "interpose/shared_heap/page_runs.h"

namespace weft::interpose {

// Thread-safe.
class SharedHeap {
 public:
  // Null, or why there is no heap: the words after "because". Later calls return the same.
  const char* start(const SharedHeapOptions& options);

  [[nodiscard]] bool contains(const void* at) const {
    // The base is set before the size.
    const std::size_t bytes = bytes_.load(std::memory_order_acquire);
    return reinterpret_cast<std::uintptr_t>(at) - base_.load(std::memory_order_relaxed) < bytes;
  }

  // Within the heap itself (a signal handler, a handler of fork(2)), nothing is served or freed.

  // Null where the heap does not serve it: before start(), for no bytes, beyond the limit, for an
  // alignment of less than a page or more than 2 MiB. `zeroed`: the block must contain zeros.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment, bool zeroed = false);
  // The following have blocks of allocate(); the program is ended if it gives anything else.
  void free(void* block);
  [[nodiscard]] std::size_t usable(const void* block);
  // Changes the size of a block where it is; false where that is not possible.
  [[nodiscard]] bool resize(void* block, std::size_t bytes);

  // See base/shared_heap_hooks.h.
  [[nodiscard]] bool hold(const void* at, std::size_t bytes, SharedHeapPart& part);
  void release(const void* at, std::size_t bytes);

  // The program has changed the protection of pages (mprotect(2)). The next user of a block gets
  // the usual one, and a child of fork(2) the same.
  void note_protection(const void* at, std::size_t bytes, int protection);
  // As MADV_DONTNEED of madvise(2) does with private memory: the pages contain zeros afterwards.
  // Returns as that function.
  [[nodiscard]] int discard(void* at, std::size_t bytes);
  // Turns pages into ordinary memory, until their blocks are freed: a stack cannot be copied at a
  // fork, because the thread that forks is using it.
  void make_private(const void* at, std::size_t bytes);

  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

  // For tests.
  [[nodiscard]] std::uint32_t used_pages();

 private:
  // What is known of a page.
  struct PageState {
    std::uint8_t protection = 0;  // PROT_* and 0x80; 0: as the heap maps it
    bool is_private = false;
  };

  // The beginning of some memory, as far as its pages are alike.
  struct Part {
    std::size_t bytes = 0;
    bool is_private = false;
  };

  [[nodiscard]] const char* open(const SharedHeapOptions& options);
  [[nodiscard]] bool make(std::size_t bytes);
  [[nodiscard]] bool reserve(std::size_t bytes);
  // False where the mappings are missing, as in a child that was made by clone(2).
  [[nodiscard]] bool is_alive() const { return alive_ && *alive_ == 1; }
  [[nodiscard]] std::byte* at(std::size_t page) const {
    return reinterpret_cast<std::byte*>(base_.load(std::memory_order_relaxed)) + page * page_bytes_;
  }
  [[nodiscard]] std::uint32_t page_of(const void* at) const;
  [[nodiscard]] std::uint32_t pages_for(std::size_t bytes) const;
  [[nodiscard]] std::uint32_t total() const { return pages_for(bytes_.load()); }
  [[nodiscard]] std::uint32_t block_at(const void* block, const char* caller) const;
  // The pages between `from` and `end` that have one state.
  [[nodiscard]] std::uint32_t end_of_state(std::uint32_t from, std::uint32_t end) const;
  [[nodiscard]] bool map_up_to(std::uint32_t end);
  [[nodiscard]] bool punch(std::uint32_t first, std::uint32_t pages) const;
  void give(std::uint32_t first, bool dirty);
  void restore(std::uint32_t first, std::uint32_t pages);
  void drop_hold(std::uint32_t first, bool dirty);
  [[nodiscard]] bool can_hold(std::uint32_t first, std::uint32_t end) const;
  [[nodiscard]] Part part_of_one_kind(const void* from, std::size_t bytes);
  void make_private_locked(std::uint32_t first, std::uint32_t end);
  [[nodiscard]] bool place_copy();
  void forget_contents();
  void reserve_again(std::uint32_t first, std::uint32_t pages) const;

  std::atomic<std::uintptr_t> base_{0};
  std::atomic<std::size_t> bytes_{0};
  std::size_t page_bytes_ = 0;
  HeapLock lock_;
  bool started_ = false;
  const char* reason_ = nullptr;
  // 1 in the process that has the mappings; the kernel makes it 0 in a child (MADV_WIPEONFORK).
  volatile char* alive_ = nullptr;
  HeapFile file_;
  PageRuns runs_;
  PageState* states_ = nullptr;
  bool altered_ = false;      // some page has a state of its own
  std::uint32_t mapped_ = 0;  // pages, from the first one on
  ForkCopy copy_;
  bool fork_locks_ = false;  // before_fork() has taken the lock
  bool fork_alive_ = false;  // there were mappings at that time
};

}  // namespace weft::interpose
