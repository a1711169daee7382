// Memory that two processes map: an anonymous file (memfd_create(2)). One process creates it and
// sends its descriptor to the other. The kernel frees it with the last mapping, however the
// processes end.
#pragma once

#include <cstddef>
#include <span>

#include "device/system.h"

namespace weft::device {

// One mapping of shared memory. Movable; unmaps in its destructor.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // New, zeroed memory that can be neither grown nor shrunk. Empty where the kernel refuses.
  // `name` shows in /proc/PID/maps.
  [[nodiscard]] static SharedMemory create(const char* name, std::size_t bytes);
  // Maps what another process has created. Empty where it is not exactly of that size, can still
  // change its size (an access behind its end would be fatal), has huge pages (memory_file.h), or
  // cannot be mapped. `writable`: the owner of a read-only file gives out a descriptor that allows
  // no more.
  [[nodiscard]] static SharedMemory open(sys::Descriptor file, std::size_t bytes, bool writable);

  [[nodiscard]] bool valid() const { return at_ != nullptr; }
  [[nodiscard]] std::byte* data() const { return at_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  // To be sent to the other process. Owned by this object.
  [[nodiscard]] int file() const { return file_.get(); }
  // A descriptor of the same memory that cannot be mapped for writing, or one that is not valid.
  [[nodiscard]] sys::Descriptor read_only_file() const;
  // Closes the descriptor; the mapping stays.
  void close_file() { file_.reset(); }
  // In the child after fork(), which has no mapping.
  void abandon() {
    at_ = nullptr;
    file_.reset();
  }

 private:
  void unmap();

  sys::Descriptor file_;
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace weft::device
