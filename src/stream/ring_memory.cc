#include "stream/ring_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/memory_file.h"
#include "base/own_descriptors.h"
#include "base/system_call.h"
#include "weft/error.hpp"

namespace weft::stream::detail {
namespace {

// A peer that maps the file must not be able to shrink it: an access here would end in SIGBUS
// (memfd_create(2)).
constexpr int size_seals = F_SEAL_GROW | F_SEAL_SHRINK;

// By bare system calls: a library that replaces fcntl(2) does not know the descriptor.
long file_control(int file, int command, int argument) {
  return system_call(SYS_fcntl, file, command, argument);
}

Descriptor make_file(std::size_t bytes) {
  Descriptor file(
      own_descriptors::moved_high(memfd_create("weft-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (file.valid() && ftruncate(file.get(), static_cast<off_t>(bytes)) == 0 &&
      file_control(file.get(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) == 0) {
    return file;
  }
  return {};
}

}  // namespace

// MAP_NORESERVE: a ring that may grow takes pages only as far as it is used.
RingMemory::RingMemory(std::size_t bytes) {
  void* const made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) {
    throw Error(errno, fmt::format("cannot allocate {} bytes for the buffers of a stream", bytes));
  }
  bytes_ = {static_cast<std::byte*>(made), bytes};
}

// Empty where it cannot be mapped.
RingMemory RingMemory::map(int file, std::size_t bytes) {
  RingMemory memory;
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) memory.bytes_ = {static_cast<std::byte*>(at), bytes};
  return memory;
}

RingMemory RingMemory::make_shared(std::size_t bytes, Descriptor& file) {
  file = make_file(bytes);
  if (file.valid()) {
    RingMemory memory = map(file.get(), bytes);
    if (!memory.bytes_.empty()) return memory;
    file.reset();
  }
  return RingMemory(bytes);
}

std::optional<RingMemory> RingMemory::open(Descriptor file, std::size_t bytes) {
  struct stat status {};
  const long seals = file_control(file.get(), F_GET_SEALS, 0);
  if (seals < 0 || (seals & size_seals) != size_seals || fstat(file.get(), &status) != 0 ||
      !has_ordinary_pages(status) ||
      // The size that the greeting implies. Memory of another layout has another size.
      status.st_size != static_cast<off_t>(bytes)) {
    return std::nullopt;
  }
  RingMemory memory = map(file.get(), bytes);
  if (memory.bytes_.empty()) return std::nullopt;
  return memory;
}

// madvise(2): MADV_REMOVE takes the pages out of the file.
void RingMemory::give_back(std::size_t from, std::size_t to, bool shared) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t first = (from + page - 1) / page * page;
  const std::size_t end = to / page * page;
  if (first >= end) return;
  (void)madvise(bytes_.data() + first, end - first, shared ? MADV_REMOVE : MADV_DONTNEED);
}

RingMemory::~RingMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace weft::stream::detail
