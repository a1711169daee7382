#include "interpose/shared_heap/shared_heap.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "interpose/shared_heap/private_copy.h"
#include "interpose/shared_heap/raw_calls.h"

namespace weft::interpose {
namespace {

constexpr std::size_t most_alignment = std::size_t{2} << 20;
// The file is mapped in steps of at least this size.
constexpr std::size_t mapping_bytes = std::size_t{1} << 20;
// A block of this size gives its memory back when it is freed, as glibc's do; smaller ones when
// this much is free and not given back (M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt(3)).
constexpr std::size_t large_bytes = std::size_t{128} << 10;
constexpr std::size_t most_dirty_bytes = std::size_t{1} << 20;
constexpr std::uint8_t has_protection = 0x80;

// Whether a file of /proc begins with this character. False where there is none.
bool begins_with(const char* path, char wanted) {
  const int file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (file < 0) return false;
  char found = 0;
  const bool read = ::syscall(SYS_read, file, &found, 1UL) == 1;
  raw::close(file);
  return read && found == wanted;
}

bool exists(const char* path) {
  return ::syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

void* map_zeroed(std::size_t bytes, int protection) {
  return raw::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

[[noreturn]] void refuse(const char* caller) {
  const char* const parts[] = {"weft: ", caller, ": not a block of the heap, or freed before\n"};
  for (const char* part : parts) {
    [[maybe_unused]] const auto written = ::syscall(SYS_write, STDERR_FILENO, part, strlen(part));
  }
  std::abort();
}

}  // namespace

// --- The beginning -------------------------------------------------------------------------------

const char* SharedHeap::start(const SharedHeapOptions& options) {
  const HeapGuard guard(lock_);
  if (started_) return reason_;
  started_ = true;
  reason_ = open(options);
  return reason_;
}

const char* SharedHeap::open(const SharedHeapOptions& options) {
  if (!can_replace_by_private()) return "it does not know this processor";
  constexpr const char* yama = "/proc/sys/kernel/yama/ptrace_scope";
  // Files of memory are open to processes of the same user even where Yama keeps their memory
  // apart.
  if (exists(yama) && !begins_with(yama, '0')) {
    return "kernel.yama.ptrace_scope keeps the memory of processes apart";
  }
  // Memory of files is counted when it is used, so an access could fail that way.
  if (begins_with("/proc/sys/vm/overcommit_memory", '2')) {
    return "vm.overcommit_memory is 2";
  }
  page_bytes_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = options.limit_bytes / mapping_bytes * mapping_bytes;
  if (bytes == 0) return "its limit is less than 1 MiB";
  if (bytes / page_bytes_ >= PageRuns::none) return "its limit is too high";
  return make(bytes) ? nullptr : "the kernel refuses the memory or the calls that it needs";
}

// Ends with a trial of the call that gives memory back, which some sandboxes do not have.
bool SharedHeap::make(std::size_t bytes) {
  void* const alive = map_zeroed(page_bytes_, PROT_READ | PROT_WRITE);
  void* const records =
      map_zeroed(PageRuns::memory_bytes(pages_for(bytes)), PROT_READ | PROT_WRITE);
  void* const states = map_zeroed(pages_for(bytes) * sizeof(PageState), PROT_READ | PROT_WRITE);
  if (alive == MAP_FAILED || records == MAP_FAILED || states == MAP_FAILED ||
      raw::madvise(alive, page_bytes_, MADV_WIPEONFORK) != 0 || !reserve(bytes)) {
    return false;
  }
  states_ = static_cast<PageState*>(states);
  runs_.begin(records, pages_for(bytes));
  bytes_.store(bytes, std::memory_order_release);
  if (!map_up_to(1) || !punch(0, 1)) {
    bytes_ = 0;
    mapped_ = 0;
    file_.close();
    raw::munmap(at(0), bytes);
    return false;
  }
  alive_ = static_cast<char*>(alive);
  *alive_ = 1;
  return true;
}

// The addresses begin at a multiple of the largest alignment. No page of them has memory.
bool SharedHeap::reserve(std::size_t bytes) {
  void* const range = map_zeroed(bytes + most_alignment, PROT_NONE);
  if (range == MAP_FAILED) return false;
  const auto from = reinterpret_cast<std::uintptr_t>(range);
  const std::uintptr_t base = (from + most_alignment - 1) / most_alignment * most_alignment;
  if (base > from) raw::munmap(range, base - from);
  raw::munmap(reinterpret_cast<void*>(base + bytes), from + most_alignment - base);
  base_ = base;
  return true;
}

// --- Blocks --------------------------------------------------------------------------------------

std::uint32_t SharedHeap::page_of(const void* at) const {
  return static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(at) - base_) / page_bytes_);
}

std::uint32_t SharedHeap::pages_for(std::size_t bytes) const {
  return static_cast<std::uint32_t>((bytes + page_bytes_ - 1) / page_bytes_);
}

// The block that begins here.
std::uint32_t SharedHeap::block_at(const void* block, const char* caller) const {
  const std::uint32_t page = page_of(block);
  if (at(page) != block || runs_.start_of(page) != page || runs_.leaves(page)) refuse(caller);
  return page;
}

void* SharedHeap::allocate(std::size_t bytes, std::size_t alignment, bool zeroed) {
  const std::size_t most = bytes_.load(std::memory_order_acquire);
  if (bytes == 0 || bytes > most || !is_alive() || lock_.is_held()) return nullptr;
  if (alignment < page_bytes_ || alignment > most_alignment) return nullptr;
  const std::uint32_t pages = pages_for(bytes);
  const std::uint32_t aligned = pages_for(alignment);
  bool dirty = false;
  std::uint32_t first = PageRuns::none;
  {
    const HeapGuard guard(lock_);
    first = runs_.take(pages, aligned);
    if (first == PageRuns::none) return nullptr;
    if (!map_up_to(first + pages)) {
      runs_.give(first, runs_.is_dirty(first));
      return nullptr;
    }
    dirty = runs_.is_dirty(first);
  }
  if (zeroed && dirty) std::memset(at(first), 0, bytes);
  return at(first);
}

// The file is made anew in a child of fork(2) that has needed none so far.
bool SharedHeap::map_up_to(std::uint32_t end) {
  if (end <= mapped_) return true;
  if (!file_.is_open() && !file_.create(bytes_)) return false;
  const std::uint32_t further = std::min(total(), mapped_ + pages_for(mapping_bytes));
  const std::uint32_t pages = std::max(end, further) - mapped_;
  if (!file_.map(at(mapped_), mapped_ * std::uint64_t{page_bytes_}, pages * page_bytes_)) {
    return false;
  }
  mapped_ += pages;
  return true;
}

// The first call needs no descriptor, but fails for memory that is locked (mlock(2)).
bool SharedHeap::punch(std::uint32_t first, std::uint32_t pages) const {
  return raw::madvise(at(first), pages * page_bytes_, MADV_REMOVE) == 0 ||
         file_.punch(first * std::uint64_t{page_bytes_}, pages * page_bytes_);
}

// A block with a region of the device on it stays until the region is deregistered. Libraries that
// remember regions (UCX, Open MPI, libfabric) replace madvise(2), and deregister then.
void SharedHeap::free(void* block) {
  if (!is_alive() || lock_.is_held()) return;
  lock_.lock();
  const std::uint32_t first = block_at(block, "free");
  const std::size_t bytes = runs_.length(first) * page_bytes_;
  const bool held = runs_.holds(first) > 0;
  if (altered_) restore(first, runs_.length(first));
  if (!held && bytes < large_bytes) {
    give(first, true);
    lock_.unlock();
    return;
  }
  runs_.leaves(first) = true;
  ++runs_.holds(first);
  lock_.unlock();
  bool dirty = true;
  if (held) {
    (void)::madvise(block, bytes, MADV_REMOVE);
  } else {
    dirty = !punch(first, pages_for(bytes));
  }
  const HeapGuard guard(lock_);
  drop_hold(first, dirty);
}

void SharedHeap::give(std::uint32_t first, bool dirty) {
  runs_.give(first, dirty);
  if (runs_.dirty_pages() * page_bytes_ <= most_dirty_bytes) return;
  runs_.clean_free_runs(
      [this](std::uint32_t run, std::uint32_t pages) { return punch(run, pages); });
}

std::size_t SharedHeap::usable(const void* block) {
  const HeapGuard guard(lock_);
  return runs_.length(block_at(block, "malloc_usable_size")) * page_bytes_;
}

bool SharedHeap::resize(void* block, std::size_t bytes) {
  if (bytes > bytes_ || !is_alive()) return false;
  const HeapGuard guard(lock_);
  const std::uint32_t first = block_at(block, "realloc");
  const std::uint32_t before = runs_.length(first);
  const std::uint32_t pages = std::max<std::uint32_t>(pages_for(bytes), 1);
  // A region may lie on what would be given back.
  if (runs_.holds(first) > 0 && pages <= before) return true;
  if (pages < before && altered_) restore(first + pages, before - pages);
  if (!runs_.resize(first, pages)) return false;
  if (map_up_to(first + pages)) return true;
  (void)runs_.resize(first, before);
  return false;
}

std::uint32_t SharedHeap::used_pages() {
  const HeapGuard guard(lock_);
  return runs_.used_pages();
}

// --- Regions of the device -----------------------------------------------------------------------

bool SharedHeap::hold(const void* from, std::size_t bytes, SharedHeapPart& part) {
  const auto* const last = static_cast<const std::byte*>(from) + bytes - 1;
  if (bytes == 0 || !contains(from) || !contains(last) || last < from || !is_alive()) return false;
  const HeapGuard guard(lock_);
  const std::uint32_t first = page_of(from);
  const std::uint32_t end = page_of(last) + 1;
  if (!can_hold(first, end) || !file_.is_there()) return false;
  for (std::uint32_t page = first; page < end;) {
    const std::uint32_t block = runs_.start_of(page);
    ++runs_.holds(block);
    page = block + runs_.length(block);
  }
  part = {.descriptor = file_.descriptor(),
          .inode = file_.inode(),
          .offset_bytes = reinterpret_cast<std::uintptr_t>(from) - base_};
  return true;
}

bool SharedHeap::can_hold(std::uint32_t first, std::uint32_t end) const {
  for (std::uint32_t page = first; page < end;) {
    const std::uint32_t block = runs_.start_of(page);
    if (block == PageRuns::none || runs_.leaves(block)) return false;
    page = block + runs_.length(block);
  }
  return !altered_ || std::none_of(states_ + first, states_ + end,
                                   [](const PageState& state) { return state.is_private; });
}

void SharedHeap::release(const void* from, std::size_t bytes) {
  if (!is_alive()) return;
  const HeapGuard guard(lock_);
  const std::uint32_t end = page_of(static_cast<const std::byte*>(from) + bytes - 1) + 1;
  for (std::uint32_t page = page_of(from); page < end;) {
    const std::uint32_t block = runs_.start_of(page);
    // In a child of fork(2), where the heap may have begun anew.
    if (block == PageRuns::none) return;
    page = block + runs_.length(block);
    drop_hold(block, true);
  }
}

void SharedHeap::drop_hold(std::uint32_t first, bool dirty) {
  std::uint32_t& holds = runs_.holds(first);
  if (holds > 0) --holds;
  if (holds == 0 && runs_.leaves(first)) give(first, dirty);
}

// --- What the program does to pages --------------------------------------------------------------

void SharedHeap::note_protection(const void* from, std::size_t bytes, int protection) {
  if (bytes == 0 || !contains(from) || !is_alive()) return;
  const HeapGuard guard(lock_);
  const std::uint32_t first = page_of(from);
  const std::uint32_t end = std::min(total(), first + pages_for(bytes));
  const bool usual = protection == (PROT_READ | PROT_WRITE);
  for (std::uint32_t page = first; page < end; ++page) {
    states_[page].protection = usual ? 0 : static_cast<std::uint8_t>(protection | has_protection);
  }
  altered_ = true;
}

// Each part by the call that empties it, since a thread's stack may be a part of a block.
int SharedHeap::discard(void* from, std::size_t bytes) {
  auto* next = static_cast<std::byte*>(from);
  std::size_t left = bytes;
  do {
    const Part part = part_of_one_kind(next, left);
    if (raw::madvise(next, part.bytes, part.is_private ? MADV_DONTNEED : MADV_REMOVE) != 0) {
      return -1;
    }
    next += part.bytes;
    left -= part.bytes;
  } while (left > 0);
  return 0;
}

// What lies behind the heap is not of the file.
SharedHeap::Part SharedHeap::part_of_one_kind(const void* from, std::size_t bytes) {
  if (!contains(from)) return {.bytes = bytes, .is_private = true};
  const HeapGuard guard(lock_);
  const std::uint32_t first = page_of(from);
  const std::uint32_t end = end_of_state(first, std::min(total(), first + pages_for(bytes)));
  return {.bytes = std::min(bytes, (end - first) * page_bytes_),
          .is_private = altered_ && states_[first].is_private};
}

void SharedHeap::make_private(const void* from, std::size_t bytes) {
  if (bytes == 0 || !contains(from) || !is_alive()) return;
  const HeapGuard guard(lock_);
  const auto* const last = static_cast<const std::byte*>(from) + bytes - 1;
  make_private_locked(page_of(from), contains(last) ? page_of(last) + 1 : total());
}

std::uint32_t SharedHeap::end_of_state(std::uint32_t from, std::uint32_t end) const {
  if (!altered_) return end;
  const PageState& state = states_[from];
  std::uint32_t page = from + 1;
  while (page < end && states_[page].protection == state.protection &&
         states_[page].is_private == state.is_private) {
    ++page;
  }
  return page;
}

// Not where a region lies on the block, whose peers write to the file. Pages that cannot be read,
// such as the guard below a stack, stay what they are.
void SharedHeap::make_private_locked(std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t page = first; page < end;) {
    const std::uint32_t block = runs_.start_of(page);
    const std::uint32_t block_end =
        block == PageRuns::none ? page + 1 : block + runs_.length(block);
    const std::uint32_t next = end_of_state(page, std::min(end, block_end));
    const PageState state = states_[page];
    const bool readable = state.protection == 0 || (state.protection & PROT_READ) != 0;
    if (block != PageRuns::none && runs_.holds(block) == 0 && !state.is_private && readable &&
        replace_by_private(at(page), (next - page) * page_bytes_)) {
      altered_ = true;
      for (std::uint32_t each = page; each < next; ++each) states_[each].is_private = true;
      if (state.protection != 0) {
        (void)raw::mprotect(at(page), (next - page) * page_bytes_,
                            state.protection & ~has_protection);
      }
    }
    page = next;
  }
}

// For the next user of the pages. Those that cannot be mapped again stay private.
void SharedHeap::restore(std::uint32_t first, std::uint32_t pages) {
  const std::uint32_t end = first + pages;
  for (std::uint32_t page = first, next = 0; page < end; page = next) {
    next = end_of_state(page, end);
    const PageState state = states_[page];
    const std::size_t bytes = (next - page) * page_bytes_;
    if (state.protection != 0) (void)raw::mprotect(at(page), bytes, PROT_READ | PROT_WRITE);
    const bool shared =
        !state.is_private || file_.map(at(page), page * std::uint64_t{page_bytes_}, bytes);
    std::fill(states_ + page, states_ + next, PageState{.protection = 0, .is_private = !shared});
  }
}

// --- fork(2) -------------------------------------------------------------------------------------

// A signal handler may have interrupted this thread in the heap; then the lock is held already, and
// what is copied does not depend on what is half changed.
void SharedHeap::before_fork() {
  const bool held = lock_.is_held();
  if (!held) lock_.lock();
  fork_locks_ = !held;
  fork_alive_ = is_alive();
  if (!fork_alive_) return;
  // The stack of this thread may be a block of a program that switches stacks itself.
  const void* const stack = __builtin_frame_address(0);
  if (contains(stack)) {
    const std::uint32_t block = runs_.start_of(page_of(stack));
    if (block != PageRuns::none) make_private_locked(block, block + runs_.length(block));
  }
  if (mapped_ > 0 && (held || runs_.used_pages() > 0)) {
    copy_.make(file_, at(0), mapped_ * page_bytes_, bytes_);
  }
}

void SharedHeap::after_fork_in_parent() {
  copy_.drop();
  if (fork_locks_) lock_.unlock();
}

// The first function that is called in the child, before handlers of the program.
void SharedHeap::after_fork_in_child() {
  if (fork_alive_) {
    if (mapped_ > 0 && fork_locks_ && runs_.used_pages() == 0) {
      forget_contents();
      *alive_ = 1;
    } else if (place_copy()) {
      *alive_ = 1;
    } else {
      constexpr char text[] =
          "weft: no memory for the child's copy of the shared heap; what it accesses there ends "
          "it\n";
      [[maybe_unused]] const auto written =
          ::syscall(SYS_write, STDERR_FILENO, text, sizeof text - 1);
    }
  }
  if (fork_locks_) lock_.unlock();
}

// Nothing is allocated: the child begins anew.
void SharedHeap::forget_contents() {
  reserve_again(0, mapped_);
  file_.close();
  mapped_ = 0;
  runs_.clean_free_runs([](std::uint32_t, std::uint32_t) { return true; });
  if (altered_) std::fill(states_, states_ + total(), PageState());
  altered_ = false;
}

// Otherwise the kernel may put another mapping of the child there.
void SharedHeap::reserve_again(std::uint32_t first, std::uint32_t pages) const {
  (void)raw::mmap(at(first), pages * page_bytes_, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// Private pages are the child's own already.
bool SharedHeap::place_copy() {
  bool placed = true;
  for (std::uint32_t page = 0, next = 0; page < mapped_; page = next) {
    next = end_of_state(page, mapped_);
    const PageState state = states_[page];
    if (state.is_private) continue;
    const std::size_t bytes = (next - page) * page_bytes_;
    if (!copy_.place(at(0), page * std::uint64_t{page_bytes_}, bytes)) {
      placed = false;
      reserve_again(page, next - page);
    }
    if (state.protection != 0) {
      (void)raw::mprotect(at(page), bytes, state.protection & ~has_protection);
    }
  }
  file_.close();
  file_ = copy_.take_file();
  if (file_.is_open() || !placed) return placed;
  // The copy is in ordinary memory.
  altered_ = true;
  for (std::uint32_t page = 0; page < mapped_; ++page) states_[page].is_private = true;
  return true;
}

}  // namespace weft::interpose
