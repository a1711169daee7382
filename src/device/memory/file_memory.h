// Memory of a sealed file (memfd_create(2)), which the device maps itself: for regions by
// descriptor (ibv_reg_dmabuf_mr(3)). Peers on this host map the same file, and then access the
// memory by plain loads and stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/system.h"

namespace weft::device {

// Where a peer finds the file. `descriptor` is a number of the owner, who keeps it open as long as
// the region exists.
struct FileName {
  int descriptor = -1;
  std::uint64_t inode = 0;
  std::uint64_t offset_bytes = 0;  // of the region's first byte

  [[nodiscard]] bool valid() const { return descriptor >= 0; }
};

// A mapping of a part of such a file. Immovable; unmaps in its destructor.
class FileMemory {
 public:
  FileMemory() = default;
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // Maps `length_bytes` bytes, and keeps a descriptor of its own. 0, or an errno value: EBADF;
  // EOPNOTSUPP for other files, and for one that can be shrunk, because an access behind its end
  // would be fatal; EINVAL if the file does not have these bytes; EACCES, EPERM or ENOMEM where it
  // cannot be mapped for writing.
  [[nodiscard]] int open(int file, std::uint64_t offset_bytes, std::size_t length_bytes);
  // The same for the file of another process, found by its name. False where it cannot be opened,
  // is another one, or has huge pages, which could end this process (memory_file.h). Maps the whole
  // file where it has at most `whole_bytes`, for its other regions.
  [[nodiscard]] bool open(int process, const FileName& name, std::size_t length_bytes,
                          std::uint64_t whole_bytes);

  // In the child after fork(), which has no mapping.
  void abandon() { mapping_ = nullptr; }

  [[nodiscard]] std::byte* data() const { return at_; }
  // Where a part of the file is mapped; null where it is another file, or not all of it is mapped.
  [[nodiscard]] std::byte* find(const FileName& name, std::uint64_t length_bytes) const {
    const std::uint64_t into = name.offset_bytes - name_.offset_bytes;
    const bool covered = name.inode == name_.inode && name.offset_bytes >= name_.offset_bytes &&
                         into <= length_bytes_ && length_bytes <= length_bytes_ - into;
    return covered ? at_ + into : nullptr;
  }
  [[nodiscard]] std::uint64_t length_bytes() const { return length_bytes_; }
  [[nodiscard]] const FileName& name() const { return name_; }

 private:
  [[nodiscard]] int map(int file, std::uint64_t offset_bytes, std::size_t length_bytes,
                        std::uint64_t whole_bytes);

  sys::Descriptor file_;
  FileName name_;
  std::byte* at_ = nullptr;
  std::uint64_t length_bytes_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
};

}  // namespace weft::device
