#include "device/memory/special_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "device/context.h"
#include "device/limits.h"

namespace weft::device {
namespace {

// A cache line, so that device memory shares none with other data.
constexpr std::size_t least_alignment_bytes = 64;
// Adapters copy in words of this size, so a program that does otherwise would fail there.
constexpr std::uint64_t copy_unit_bytes = 4;
// Larger than the longest slice. Does not fit into a 32-bit address space.
constexpr std::uint64_t null_bytes = std::uint64_t{1} << 32;
constexpr auto mapped_bytes = static_cast<std::size_t>(null_bytes);
constexpr std::size_t sink_piece_bytes = std::size_t{1} << 26;

bool may_copy(const DeviceMemory& memory, std::uint64_t offset, std::size_t length_bytes) {
  return offset % copy_unit_bytes == 0 && length_bytes % copy_unit_bytes == 0 &&
         memory.contains(offset, length_bytes);
}

// The application has no address for device memory (ibv_alloc_dm(3)), so it is written and read by
// these two only.
int copy_in(ibv_dm* dm, std::uint64_t offset, const void* from, std::size_t length_bytes) {
  DeviceMemory& memory = *DeviceMemory::of(dm);
  if (!may_copy(memory, offset, length_bytes)) return EINVAL;
  std::memcpy(memory.at(offset), from, length_bytes);
  return 0;
}

int copy_out(void* to, ibv_dm* dm, std::uint64_t offset, std::size_t length_bytes) {
  DeviceMemory& memory = *DeviceMemory::of(dm);
  if (!may_copy(memory, offset, length_bytes)) return EINVAL;
  std::memcpy(to, memory.at(offset), length_bytes);
  return 0;
}

// MAP_NORESERVE: only address space is used; reading maps the kernel's zero page.
std::byte* reserve(int protection) {
  if (mapped_bytes != null_bytes) return nullptr;
  void* at =
      mmap(nullptr, mapped_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

// Maps one piece of memory repeatedly over the whole sink, so that writes to it use 64 MiB at most.
bool fill_with_one_piece(std::byte* sink) {
  const int piece = memfd_create("weft-null", MFD_CLOEXEC);
  bool done = piece >= 0 && ftruncate(piece, sink_piece_bytes) == 0;
  for (std::uint64_t at = 0; done && at < null_bytes; at += sink_piece_bytes) {
    done = mmap(sink + at, sink_piece_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece,
                0) != MAP_FAILED;
  }
  if (piece >= 0) close(piece);
  return done;
}

// Whether the user asked that this registration fails; errno is set then.
bool fails_on_purpose(const ibv_pd* pd) {
  const int failed = Context::of(pd->context)->device().fault_of(faults::Point::register_memory);
  if (failed != 0) errno = failed;
  return failed != 0;
}

}  // namespace

// std::aligned_alloc() requires a size that is a multiple of the alignment.
DeviceMemory::DeviceMemory(ibv_context* context, std::size_t length_bytes,
                           std::size_t alignment_bytes)
    : length_bytes_(length_bytes) {
  const std::size_t alignment = std::max(alignment_bytes, least_alignment_bytes);
  const std::size_t room = (length_bytes + alignment - 1) / alignment * alignment;
  bytes_ = static_cast<std::byte*>(std::aligned_alloc(alignment, room));
  if (!bytes_) throw std::bad_alloc();
  // A peer must not be able to read what this process has left in its heap.
  std::memset(bytes_, 0, room);
  dm_.context = context;
  dm_.memcpy_to_dm = copy_in;
  dm_.memcpy_from_dm = copy_out;
}

DeviceMemory::~DeviceMemory() {
  std::free(bytes_);
}

// May be repeated after a failure: what succeeded is kept.
int NullMemory::prepare() {
  const std::lock_guard lock(mutex_);
  if (!zeros_) zeros_ = reserve(PROT_READ);
  if (zeros_ && !sink_) {
    sink_ = reserve(PROT_NONE);
    if (sink_ && !fill_with_one_piece(sink_)) {
      munmap(sink_, mapped_bytes);
      sink_ = nullptr;
    }
  }
  return zeros_ && sink_ ? 0 : ENOMEM;
}

NullMemory::~NullMemory() {
  if (zeros_) munmap(zeros_, mapped_bytes);
  if (sink_) munmap(sink_, mapped_bytes);
}

ibv_dm* allocate_device_memory(ibv_context* context, ibv_alloc_dm_attr* attributes) {
  const bool wrong = attributes->length == 0 ||
                     attributes->length > limits::max_device_memory_bytes ||
                     attributes->log_align_req > limits::max_device_memory_alignment_log;
  if (wrong || attributes->comp_mask != 0) {
    errno = wrong ? EINVAL : EOPNOTSUPP;
    return nullptr;
  }
  auto made = std::make_unique<DeviceMemory>(context, attributes->length,
                                             std::size_t{1} << attributes->log_align_req);
  ++Context::of(context)->objects;
  Context::of(context)->sharing().add(*made);
  return made.release()->verbs();
}

int free_device_memory(ibv_dm* dm) {
  DeviceMemory* memory = DeviceMemory::of(dm);
  if (memory->users() > 0) return EBUSY;
  --Context::of(dm->context)->objects;
  Context::of(dm->context)->sharing().remove(*memory);
  delete memory;
  return 0;
}

// The region counts as a user of the device memory, which therefore cannot be freed before it.
ibv_mr* register_device_memory(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset,
                               std::size_t length_bytes, unsigned access) {
  if (fails_on_purpose(pd)) return nullptr;
  DeviceMemory& memory = *DeviceMemory::of(dm);
  // ibv_reg_dm_mr(3) requires zero-based access: the application has no address for device memory.
  const bool wrong = dm->context != pd->context || (access & IBV_ACCESS_ZERO_BASED) == 0 ||
                     !memory.contains(offset, length_bytes);
  if (wrong) {
    errno = EINVAL;
    return nullptr;
  }
  Context& context = *Context::of(pd->context);
  ibv_mr* made = context.register_memory(*ProtectionDomain::of(pd), memory.at(offset), length_bytes,
                                         0, access);
  if (!made) return nullptr;
  // ibv_reg_dm_mr(3): accesses are zero-based, so there is no address to show.
  made->addr = nullptr;
  Region::of(made)->holder = &memory.users();
  ++memory.users();
  ++context.objects;
  return made;
}

ibv_mr* allocate_null_region(ibv_pd* pd) {
  if (fails_on_purpose(pd)) return nullptr;
  Context& context = *Context::of(pd->context);
  if (const int failed = context.null_memory().prepare()) {
    errno = failed;
    return nullptr;
  }
  return context.allocate_null_region(*ProtectionDomain::of(pd));
}

}  // namespace weft::device
