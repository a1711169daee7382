#include "device/memory/context_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/full_barrier.h"
#include "base/own_descriptors.h"
#include "device/memory/memory.h"

namespace weft::device {
namespace {

// "WeftCtx1": the number changes with the layout.
constexpr std::uint64_t magic = 0x3178744374666557;
constexpr std::uint32_t places = 1U << 15;

struct Header {
  std::uint64_t magic = 0;
  std::int32_t owner = 0;              // the process
  std::int32_t descriptor = -1;        // of the file, in the owner
  std::atomic<std::uint32_t> used{0};  // places that were ever in use
};

struct Place {
  std::atomic<std::uint32_t> handle{0};  // written last; 0: free
  SharedObject::Kind kind = SharedObject::Kind::domain;
  std::uint32_t access = 0;
  std::uint64_t iova = 0;
  std::uint64_t base = 0;
  std::uint64_t length_bytes = 0;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

constexpr std::size_t header_bytes = 64;
static_assert(sizeof(Header) <= header_bytes);
constexpr std::size_t file_bytes = header_bytes + places * sizeof(Place);

Header& header_of(const SharedMemory& memory) {
  return *reinterpret_cast<Header*>(memory.data());
}

Place& place_of(const SharedMemory& memory, std::uint32_t index) {
  return reinterpret_cast<Place*>(memory.data() + header_bytes)[index];
}

// One line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t inode = 0;
  unsigned major = 0;
  unsigned minor = 0;
  bool shared = false;
};

bool parse(const std::string& line, Mapping& mapping) {
  std::array<char, 5> rights{};
  unsigned long long begin = 0;
  unsigned long long end = 0;
  unsigned long long offset = 0;
  unsigned long long inode = 0;
  if (std::sscanf(line.c_str(), "%llx-%llx %4s %llx %x:%x %llu", &begin, &end, rights.data(),
                  &offset, &mapping.major, &mapping.minor, &inode) != 7) {
    return false;
  }
  mapping.begin = begin;
  mapping.end = end;
  mapping.offset_bytes = offset;
  mapping.inode = inode;
  mapping.shared = rights[3] == 's';
  return true;
}

// The shared mappings of [begin, end), cut to this range and with those joined that continue each
// other, because two processes may have cut the same memory differently. Empty where a part is not
// mapped, or is private.
std::vector<Mapping> mappings(const std::string& path, std::uint64_t begin, std::uint64_t end) {
  std::vector<Mapping> found;
  std::ifstream lines(path);
  std::uint64_t at = begin;
  for (std::string line; at < end && std::getline(lines, line);) {
    Mapping next;
    if (!parse(line, next) || next.end <= at) continue;
    if (next.begin > at || !next.shared) return {};
    next.offset_bytes += at - next.begin;
    next.begin = at;
    next.end = std::min(next.end, end);
    at = next.end;
    const bool continues =
        !found.empty() && found.back().inode == next.inode && found.back().major == next.major &&
        found.back().minor == next.minor &&
        found.back().offset_bytes + (found.back().end - found.back().begin) == next.offset_bytes;
    if (continues) {
      found.back().end = next.end;
    } else {
      found.push_back(next);
    }
  }
  return at < end ? std::vector<Mapping>() : found;
}

bool is_same(const Mapping& a, const Mapping& b) {
  return a.begin == b.begin && a.end == b.end && a.offset_bytes == b.offset_bytes &&
         a.inode == b.inode && a.major == b.major && a.minor == b.minor;
}

// Whether that descriptor of the process is the same file.
bool holds(int process, int descriptor, const struct stat& file) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", process, descriptor);
  struct stat there {};
  return ::stat(path.data(), &there) == 0 && there.st_ino == file.st_ino &&
         there.st_dev == file.st_dev;
}

}  // namespace

void ContextFile::create() {
  memory_ = SharedMemory::create("weft-context", file_bytes);
  if (!memory_.valid()) return;
  read_only_ = memory_.read_only_file();
  struct stat status {};
  if (!read_only_.valid() || fstat(read_only_.get(), &status) != 0) {
    read_only_.reset();
    return;
  }
  inode_ = status.st_ino;
  Header& header = header_of(memory_);
  header.owner = getpid();
  header.descriptor = read_only_.get();
  header.magic = magic;
  memory_.close_file();
}

bool ContextFile::is_named_by(int descriptor) const {
  struct stat status {};
  struct stat own {};
  return read_only_.valid() && fstat(descriptor, &status) == 0 && status.st_ino == inode_ &&
         fstat(read_only_.get(), &own) == 0 && status.st_dev == own.st_dev;
}

Listed ContextFile::show_domain(std::uint32_t handle) {
  return show({.kind = SharedObject::Kind::domain, .handle = handle});
}

Listed ContextFile::show(const Region& region) {
  if (region.null || region.file || region.on_demand()) return std::nullopt;
  return show({.kind = SharedObject::Kind::region,
               .handle = region.mr.handle,
               .access = region.access,
               .iova = region.iova,
               .base = reinterpret_cast<std::uintptr_t>(region.base),
               .length_bytes = region.length_bytes});
}

Listed ContextFile::show(const SharedObject& object) {
  if (!read_only_.valid() || !memory_.valid()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Header& header = header_of(memory_);
  std::uint32_t index = header.used.load(std::memory_order_relaxed);
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (index == places) {
    return std::nullopt;
  } else {
    header.used.store(index + 1, std::memory_order_release);
  }
  Place& place = place_of(memory_, index);
  place.kind = object.kind;
  place.access = object.access;
  place.iova = object.iova;
  place.base = object.base;
  place.length_bytes = object.length_bytes;
  place.handle.store(object.handle, std::memory_order_release);
  return index;
}

void ContextFile::withdraw(Listed object) {
  if (!object || !memory_.valid()) return;
  const std::lock_guard lock(mutex_);
  place_of(memory_, *object).handle.store(0, std::memory_order_release);
  free_.push_back(*object);
}

void ContextFile::abandon() {
  memory_.abandon();
  (void)read_only_.release();
}

// The file is this process's word for who owns it, so the owner must have it open. It closes it
// with its context, and execve(2) does as well.
std::optional<ForeignContext> ForeignContext::open(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return std::nullopt;
  sys::Descriptor own(own_descriptors::copy_high(descriptor));
  ForeignContext made;
  made.memory_ = SharedMemory::open(std::move(own), file_bytes, false);
  if (!made.memory_.valid() || header_of(made.memory_).magic != magic) {
    errno = EINVAL;
    return std::nullopt;
  }
  made.owner_ = header_of(made.memory_).owner;
  if (!holds(made.owner_, header_of(made.memory_).descriptor, status)) {
    errno = EOPNOTSUPP;
    return std::nullopt;
  }
  return made;
}

// A place may change while it is read: then its handle is another one afterwards.
std::optional<SharedObject> ForeignContext::find(SharedObject::Kind kind,
                                                 std::uint32_t handle) const {
  const std::uint32_t used = std::min(header_of(memory_).used.load(), places);
  for (std::uint32_t index = 0; handle != 0 && index < used; ++index) {
    const Place& place = place_of(memory_, index);
    if (place.handle.load(std::memory_order_acquire) != handle || place.kind != kind) continue;
    const SharedObject found{.kind = kind,
                             .handle = handle,
                             .access = place.access,
                             .iova = place.iova,
                             .base = place.base,
                             .length_bytes = place.length_bytes};
    full_barrier();
    if (place.handle.load(std::memory_order_relaxed) == handle) return found;
  }
  return std::nullopt;
}

bool ForeignContext::maps_alike(const SharedObject& region) const {
  const std::uint64_t end = region.base + region.length_bytes;
  if (region.length_bytes == 0 || end < region.base) return false;
  const auto ours = mappings("/proc/self/maps", region.base, end);
  const auto theirs = mappings("/proc/" + std::to_string(owner_) + "/maps", region.base, end);
  return !ours.empty() && std::ranges::equal(ours, theirs, is_same);
}

}  // namespace weft::device
