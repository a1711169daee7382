// RingMemory: memory for rings, of which only the pages that were used are resident.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "base/descriptor.h"

namespace weft::stream::detail {

// Owns a mapping of zero bytes, which begins at a page.
class RingMemory {
 public:
  // Memory of this process. Throws Error(ENOMEM).
  explicit RingMemory(std::size_t bytes);
  // Memory that another process can map: `file` is its descriptor. The size of such memory can
  // never change. Where the kernel refuses it, this is memory of this process, and `file` is not
  // valid. Throws Error(ENOMEM).
  [[nodiscard]] static RingMemory make_shared(std::size_t bytes, Descriptor& file);
  // Maps the shared memory of another process. Nothing if it is not of that size, or if an access
  // could end this process: it can still change its size, or has huge pages.
  [[nodiscard]] static std::optional<RingMemory> open(Descriptor file, std::size_t bytes);
  ~RingMemory();
  RingMemory(RingMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  RingMemory& operator=(RingMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  // Gives the pages that lie between these offsets back to the kernel; they are zero afterwards, in
  // each process that maps them. `shared`: it is memory of a file. Where the kernel refuses,
  // nothing changes.
  void give_back(std::size_t from, std::size_t to, bool shared) const;

 private:
  RingMemory() = default;
  static RingMemory map(int file, std::size_t bytes);

  std::span<std::byte> bytes_;
};

}  // namespace weft::stream::detail
