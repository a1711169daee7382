#include "device/memory/heap_memory.h"

#include <dlfcn.h>

#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/shared_heap_hooks.h"
#include "device/settings.h"

namespace weft::device {
namespace {

// Null without the library. It is loaded with the program, or not at all.
const SharedHeapHooks* hooks() {
  static const SharedHeapHooks* const found = [] {
    auto* const get =
        reinterpret_cast<GetSharedHeapHooks*>(dlsym(RTLD_DEFAULT, shared_heap_hooks_name));
    return get ? get() : nullptr;
  }();
  return found;
}

// As LocalCarrier::lasting_obstacle() has them for all connections.
bool may_leave_tcp(const Settings& settings) {
  return settings.same_host != SameHost::off && settings.capture_path.empty() &&
         !settings.link.active();
}

}  // namespace

void HeapMemory::start(const Settings& settings) {
  const SharedHeapSettings& wanted = settings.shared_heap;
  if (wanted.mode == SharedHeapMode::off || !may_leave_tcp(settings) || !hooks()) return;
  const bool all = wanted.mode == SharedHeapMode::all;
  const char* const reason = hooks()->start({.limit_bytes = wanted.limit_bytes, .all = all});
  static std::once_flag once;
  if (!settings.verbose) return;
  std::call_once(once, [&] {
    if (reason) {
      return log_format(LogLevel::info, "shared heap", "no shared heap, because %s", reason);
    }
    log_format(LogLevel::info, "shared heap",
               "shared heap: processes of this user can map the %smemory that is allocated from "
               "now on",
               all ? "page-aligned and large " : "page-aligned ");
  });
}

HeapMemory::HeapMemory(const void* at, std::size_t length_bytes) {
  SharedHeapPart part;
  if (!hooks() || !hooks()->hold(at, length_bytes, &part)) return;
  at_ = at;
  length_bytes_ = length_bytes;
  name_ = {.descriptor = part.descriptor, .inode = part.inode, .offset_bytes = part.offset_bytes};
}

HeapMemory::HeapMemory(HeapMemory&& other) noexcept
    : at_(std::exchange(other.at_, nullptr)),
      length_bytes_(other.length_bytes_),
      name_(std::exchange(other.name_, {})) {}

HeapMemory& HeapMemory::operator=(HeapMemory&& other) noexcept {
  release();
  at_ = std::exchange(other.at_, nullptr);
  length_bytes_ = other.length_bytes_;
  name_ = std::exchange(other.name_, {});
  return *this;
}

HeapMemory::~HeapMemory() {
  release();
}

void HeapMemory::release() {
  if (at_) hooks()->release(at_, length_bytes_);
  at_ = nullptr;
}

}  // namespace weft::device
