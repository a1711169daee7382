// What ibv_import_device(3) needs of a context: a file of shared memory whose descriptor is the
// context's `cmd_fd`. A process that passes this descriptor to another one, by a Unix socket or by
// fork(2), shares its protection domains and regions.
//
// The file lists both. The importing process makes objects of its own from it, with the same keys,
// on a device of its own. Only memory that both processes have mapped at the same address can be
// shared so: each device accesses memory by its own process's mappings.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "device/local/shared_memory.h"

namespace weft::device {

struct Region;

// Where a ContextFile lists an object; nothing if it does not.
using Listed = std::optional<std::uint32_t>;

// A protection domain or a region, by the handle of its C structure.
struct SharedObject {
  enum class Kind : std::uint32_t { domain, region };

  Kind kind = Kind::domain;
  std::uint32_t handle = 0;  // of a region: its key
  // Of regions only.
  std::uint32_t access = 0;  // IBV_ACCESS_*
  std::uint64_t iova = 0;
  std::uint64_t base = 0;  // in the owner's address space
  std::uint64_t length_bytes = 0;
};

// The owner's side. Thread-safe.
class ContextFile {
 public:
  // Without a file nothing is listed, and the context cannot be imported.
  ContextFile() = default;
  ContextFile(const ContextFile&) = delete;
  ContextFile& operator=(const ContextFile&) = delete;

  // Leaves the file missing where there is no shared memory.
  void create();
  // Cannot be written to. -1 where the file is missing. Owned by this object.
  [[nodiscard]] int descriptor() const { return read_only_.get(); }
  // Whether this descriptor of the process, which may be a duplicate, is one of this file.
  [[nodiscard]] bool is_named_by(int descriptor) const;

  // The functions return where the object is listed. What finds no place cannot be imported.
  [[nodiscard]] Listed show_domain(std::uint32_t handle);
  // Leaves out null regions, pages on demand, and files that the device has mapped itself.
  [[nodiscard]] Listed show(const Region& region);
  void withdraw(Listed object);
  // In the child after fork(), which has no mapping. The descriptor stays open, so that the child
  // can import the context.
  void abandon();

 private:
  [[nodiscard]] Listed show(const SharedObject& object);

  SharedMemory memory_;
  sys::Descriptor read_only_;
  ino_t inode_ = 0;
  std::mutex mutex_;
  std::vector<std::uint32_t> free_;  // places below the header's count
};

// The importing side: the file of another process. The values are that process's word.
class ForeignContext {
 public:
  // Nothing with errno: EBADF; EINVAL for another file than that of a context; EOPNOTSUPP where its
  // owner has ended or belongs to another user.
  [[nodiscard]] static std::optional<ForeignContext> open(int descriptor);

  [[nodiscard]] int owner() const { return owner_; }  // its process number
  [[nodiscard]] std::optional<SharedObject> find(SharedObject::Kind kind,
                                                 std::uint32_t handle) const;
  // Whether this process and the owner have the same memory at these addresses: mappings of the
  // same file, or of the same anonymous memory, with MAP_SHARED.
  [[nodiscard]] bool maps_alike(const SharedObject& region) const;

 private:
  SharedMemory memory_;
  int owner_ = 0;
};

}  // namespace weft::device
