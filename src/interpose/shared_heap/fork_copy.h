// The copy of the shared heap that a child of fork(2) gets: it must not share memory with its
// parent, as it would by the mappings alone.
//
// The parent makes the copy before fork(2), in a new file, and the child maps that file in the
// place of the old one. So neither process waits for the other, and the child makes only calls that
// need no memory. As with memory of its own, the child finds what was there at the fork; only what
// other threads of the parent, or peers, write at that very moment may be there or not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/shared_heap/heap_file.h"

namespace weft::interpose {

class ForkCopy {
 public:
  // Copies the first `bytes` bytes of the heap, which is mapped at `base`, and whose file has
  // `whole_bytes`. Where there can be no further file, the copy is in ordinary memory.
  void make(const HeapFile& heap, const std::byte* base, std::size_t bytes,
            std::size_t whole_bytes);
  // In the child, for each part that it needs. False: it is not accessible there.
  [[nodiscard]] bool place(std::byte* base, std::uint64_t offset_bytes, std::size_t bytes) const;
  // In the child, after all parts: the file of its heap; one that is not open where the copy is in
  // ordinary memory, or is missing.
  [[nodiscard]] HeapFile take_file();
  // In the parent.
  void drop();

 private:
  [[nodiscard]] bool copy_to_file(const HeapFile& heap, const std::byte* from);
  [[nodiscard]] bool copy_to_memory(const HeapFile& heap, const std::byte* from);

  HeapFile file_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t whole_bytes_ = 0;
};

}  // namespace weft::interpose
