#include "interpose/shared_heap/fork_copy.h"

#include <algorithm>
#include <cstring>

#include "interpose/shared_heap/raw_calls.h"

namespace weft::interpose {
namespace {

// Calls `copy(offset, bytes)` for each part of the file's first `bytes` bytes that has pages, until
// it returns false.
template <typename Copy>
bool each_part(const HeapFile& file, std::uint64_t bytes, Copy copy) {
  std::uint64_t at = 0;
  std::uint64_t end = 0;
  while (at < bytes && file.next_part(at, end) && at < bytes) {
    end = std::min(end, bytes);
    if (!copy(at, static_cast<std::size_t>(end - at))) return false;
    at = end;
  }
  return true;
}

}  // namespace

// The file is read by a mapping of its own: in that of the heap, the program may have made pages
// inaccessible (mprotect(2)). Where the program has closed the descriptor, only that is left.
void ForkCopy::make(const HeapFile& heap, const std::byte* base, std::size_t bytes,
                    std::size_t whole_bytes) {
  bytes_ = bytes;
  whole_bytes_ = whole_bytes;
  if (!heap.is_there()) {
    const bool done = file_.create(whole_bytes) && file_.write(base, 0, bytes);
    if (!done) file_.close();
    return;
  }
  void* const from =
      raw::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, heap.descriptor(), 0);
  if (from == MAP_FAILED) return;
  if (!copy_to_file(heap, static_cast<const std::byte*>(from))) {
    (void)copy_to_memory(heap, static_cast<const std::byte*>(from));
  }
  raw::munmap(from, bytes);
}

bool ForkCopy::copy_to_file(const HeapFile& heap, const std::byte* from) {
  if (!file_.create(whole_bytes_)) return false;
  const bool done = each_part(heap, bytes_, [&](std::uint64_t at, std::size_t bytes) {
    return file_.write(from + at, at, bytes);
  });
  if (!done) file_.close();
  return done;
}

bool ForkCopy::copy_to_memory(const HeapFile& heap, const std::byte* from) {
  void* const to = raw::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (to == MAP_FAILED) return false;
  memory_ = static_cast<std::byte*>(to);
  return each_part(heap, bytes_, [&](std::uint64_t at, std::size_t bytes) {
    std::memcpy(memory_ + at, from + at, bytes);
    return true;
  });
}

bool ForkCopy::place(std::byte* base, std::uint64_t offset_bytes, std::size_t bytes) const {
  std::byte* const at = base + offset_bytes;
  if (file_.is_open()) return file_.map(at, offset_bytes, bytes);
  return memory_ && raw::move(memory_ + offset_bytes, bytes, at) != MAP_FAILED;
}

HeapFile ForkCopy::take_file() {
  const HeapFile taken = file_;
  if (memory_) raw::munmap(memory_, bytes_);  // what was not placed
  *this = ForkCopy();
  return taken;
}

void ForkCopy::drop() {
  file_.close();
  if (memory_) raw::munmap(memory_, bytes_);
  *this = ForkCopy();
}

}  // namespace weft::interpose
