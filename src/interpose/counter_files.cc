#include "interpose/counter_files.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>

#include "interpose/next.h"

#define WEFT_NODE_EXPORT extern "C" __attribute__((visibility("default")))

namespace weft::interpose {
namespace {

using Publish = void();

std::atomic<const char*> found_tree{nullptr};
std::atomic<Publish*> publish{nullptr};

// Descriptors beyond these are not watched: their counters are up to date when they are opened.
constexpr std::size_t most_descriptors = 1024;
std::array<std::atomic<bool>, most_descriptors> watched{};
std::atomic<bool> any_watched{false};

const char* find_tree() {
  void* const library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  using Function = const char*();
  auto* ask = library ? reinterpret_cast<Function*>(dlsym(library, "ibv_get_sysfs_path")) : nullptr;
  if (library) publish = reinterpret_cast<Publish*>(dlsym(library, "weft_publish_counters"));
  return ask ? ask() : "/sys";
}

// The number may be another file's by now; sockets and pipes have no position.
void before_read(int descriptor, off_t at) {
  if (!any_watched.load(std::memory_order_relaxed)) [[likely]]
    return;
  const auto index = static_cast<std::size_t>(descriptor);
  if (index >= most_descriptors || !watched[index].load(std::memory_order_relaxed)) return;
  const int saved = errno;
  if (at < 0) at = lseek(descriptor, 0, SEEK_CUR);
  if (at < 0) watched[index] = false;
  errno = saved;
  if (at == 0) publish_counters();
}

constinit next::Function<ssize_t(int, void*, std::size_t, std::size_t)> read_checked{"__read_chk"};
constinit next::Function<ssize_t(int, void*, std::size_t, off_t)> positioned{"pread64"};

// When this library is loaded, because read(2) may be called where dlsym(3) may not: in handlers of
// signals, and after fork(2).
[[gnu::constructor]] void look_up() {
  next::read.look_up();
}

}  // namespace

const char* sysfs_tree() {
  static const char* const found = find_tree();
  found_tree.store(found, std::memory_order_release);
  return found;
}

bool is_counter_file(std::string_view path) {
  const char* const tree = found_tree.load(std::memory_order_acquire);
  if (!tree || !path.starts_with(tree)) return false;
  return path.find("/counters/") != path.npos || path.find("/hw_counters/") != path.npos;
}

void publish_counters() {
  const int saved = errno;
  if (auto* call = publish.load()) call();
  errno = saved;
}

void watch_counter_file(int descriptor) {
  const auto index = static_cast<std::size_t>(descriptor);
  if (index >= most_descriptors) return;
  watched[index] = true;
  any_watched = true;
}

}  // namespace weft::interpose

WEFT_NODE_EXPORT ssize_t read(int descriptor, void* bytes, std::size_t count) {
  weft::interpose::before_read(descriptor, -1);
  return weft::interpose::next::read(descriptor, bytes, count);
}

// Programs that were built with _FORTIFY_SOURCE call it. `room`: behind `bytes`.
WEFT_NODE_EXPORT ssize_t __read_chk(int, void*, std::size_t, std::size_t);
ssize_t __read_chk(int descriptor, void* bytes, std::size_t count, std::size_t room) {
  weft::interpose::before_read(descriptor, -1);
  return weft::interpose::read_checked(descriptor, bytes, count, room);
}

WEFT_NODE_EXPORT ssize_t pread(int descriptor, void* bytes, std::size_t count, off_t at) {
  weft::interpose::before_read(descriptor, at);
  return weft::interpose::positioned(descriptor, bytes, count, at);
}

WEFT_NODE_EXPORT ssize_t pread64(int descriptor, void* bytes, std::size_t count, off64_t at) {
  return pread(descriptor, bytes, count, at);
}
