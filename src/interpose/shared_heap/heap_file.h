// The file of memory behind the shared heap (memfd_create(2)).
//
// Its descriptor belongs to the process, whose program may close it by mistake or give the number
// to a file of its own. So each use by the number looks first whether it is still the same file.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace weft::interpose {

// Functions return true if it went well. They allocate nothing, and may be called in the child of
// fork(2). Trivial destructor, because programs free memory until their very end.
class HeapFile {
 public:
  // A new file of this size, without pages, that can never be shrunk. Any earlier one is forgotten.
  [[nodiscard]] bool create(std::size_t bytes);
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  // Whether the descriptor still is that of the file.
  [[nodiscard]] bool is_there() const;
  void close();

  // Maps a part for reading and writing, in the place of what is there. A child of fork(2) has no
  // such mapping.
  [[nodiscard]] bool map(std::byte* at, std::uint64_t offset_bytes, std::size_t bytes) const;
  // Writes to a part of the file, not through a mapping.
  [[nodiscard]] bool write(const std::byte* from, std::uint64_t offset_bytes,
                           std::size_t bytes) const;
  // Gives the pages of a part back: it contains zeros from now on.
  [[nodiscard]] bool punch(std::uint64_t offset_bytes, std::size_t bytes) const;
  // Finds the next part that has pages, from `offset_bytes` on. False: there is none.
  [[nodiscard]] bool next_part(std::uint64_t& offset_bytes, std::uint64_t& end_bytes) const;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::uint64_t inode() const { return inode_; }

 private:
  int descriptor_ = -1;
  std::uint64_t inode_ = 0;
  std::uint64_t device_ = 0;
};

}  // namespace weft::interpose
