#include "check/freed_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/heap_hooks.h"
#include "check/checker.h"
#include "check/describing.h"
#include "check/memory_of_requests.h"

namespace weft::check {
namespace {

MemoryRange to_range(const void* block, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(block), bytes};
}

// What is wrong with giving back a block.
struct Case {
  Rule rule = Rule::freed_memory;
  MemoryRange bytes;  // of the region, or of the piece of the request
  std::string what;   // "The region of 64 bytes at 0x7f00 is registered there."
  std::vector<Place> places;
};

// The bytes of the process that a request uses, within the given ones.
std::optional<MemoryRange> used_bytes(const Request& request, const Regions& regions,
                                      const MemoryRange& within) {
  for (const ibv_sge& piece : request.pieces) {
    const MemoryRegion* const region = regions.find(piece.lkey);
    if (!region || !region->is_placed() || !region->covers(piece.addr, piece.length)) continue;
    const MemoryRange used{region->memory + (piece.addr - region->first), piece.length};
    if (used.bytes != 0 && used.overlaps(within)) return used;
  }
  return std::nullopt;
}

// A request of one queue that uses the bytes. `name` gives its name.
template <typename Name>
std::optional<Case> find_user(const std::deque<Request>& requests, const Regions& regions,
                              const MemoryRange& within, Name name) {
  for (const Request& request : requests) {
    const auto used = used_bytes(request, regions, within);
    if (!used) continue;
    return Case{.rule = Rule::freed_posted,
                .bytes = *used,
                .what = fmt::format("{} uses {} bytes at {:#x} of it, and its completion was not "
                                    "polled.",
                                    name(request), used->bytes, used->first),
                .places = {{"The request was posted here", request.posted}}};
  }
  return std::nullopt;
}

// With the mutex. In the error state and in RESET requests do not use their memory any more.
std::optional<Case> find_posted(const Checker& state, const MemoryRange& block) {
  for (const auto& account : state.requests.queue_pairs()) {
    const ibv_qp_state in = account->qp->state;
    if (in == IBV_QPS_ERR || in == IBV_QPS_RESET) continue;
    auto found = find_user(account->sends, state.regions, block, [&](const Request& request) {
      return describe(request, account->number);
    });
    if (found) return found;
    found = find_user(account->receives, state.regions, block, [&](const Request& request) {
      return fmt::format("Receive {:#x} on queue pair {:#x}", request.wr_id, account->number);
    });
    if (found) return found;
  }
  for (const auto& shared : state.requests.shared()) {
    auto found = find_user(shared->receives, state.regions, block, [](const Request& request) {
      return fmt::format("Receive {:#x} on a shared receive queue", request.wr_id);
    });
    if (found) return found;
  }
  return std::nullopt;
}

// A region that is within the block. One that has bytes outside of it belongs to memory from which
// the program, or an allocator of its own, takes blocks, and may stay; so may regions on demand.
std::optional<Case> find_region(const Regions& regions, const MemoryRange& block) {
  std::optional<Case> found;
  regions.find_overlapping(block, [&](const MemoryRegion& region) {
    if (region.freed || (region.access & IBV_ACCESS_ON_DEMAND) != 0) return false;
    if (!block.contains(region.range())) return false;
    found = Case{.bytes = region.range(),
                 .what = fmt::format("The {} is registered there.", describe(region)),
                 .places = {{"The region was registered here", region.made}}};
    return true;
  });
  return found;
}

std::optional<Case> find_case(const MemoryRange& block) {
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  bool any = false;
  state.regions.find_overlapping(block, [&](const MemoryRegion&) { return any = true; });
  if (!any) return std::nullopt;
  auto posted = find_posted(state, block);
  return posted ? posted : find_region(state.regions, block);
}

// What the allocator and its next user do with the memory is no finding of its own.
void stop_comparing(Checker& state, const MemoryRange& block) {
  const auto stop = [&](std::deque<Request>& requests) {
    for (Request& request : requests) {
      if (!used_bytes(request, state.regions, block)) continue;
      request.checksum.reset();
      request.blocks.clear();
    }
  };
  for (const auto& account : state.requests.queue_pairs()) {
    stop(account->sends);
    stop(account->receives);
  }
  for (const auto& shared : state.requests.shared()) stop(shared->receives);
}

void report(Call& call, const MemoryRange& block, Case found) {
  Checker& state = checker();
  {
    const std::lock_guard lock(state.mutex);
    state.regions.note_freed(block);
    if (found.rule == Rule::freed_posted) stop_comparing(state, block);
  }
  call.report(found.rule,
              fmt::format("{} gives back a block of {} bytes at {:#x}. {}", call.function(),
                          block.bytes, block.first, found.what),
              "It was freed here", std::move(found.places));
}

// Most blocks are not near registered memory. What Weft frees itself is none of the program's; the
// child of a fork(2) has registered nothing of what it inherits.
bool may_matter(const MemoryRange& block) {
  return checker().regions.pages().any(block) && !Inside::any();
}

void on_free(const void* block, std::size_t bytes) {
  const MemoryRange range = to_range(block, bytes);
  if (!may_matter(range)) return;
  Call call("free");
  const KeptErrno kept;
  if (auto found = find_case(range)) report(call, range, std::move(*found));
}

// Looks before the allocator has the block, and reports if it has moved, or has become too small.
void* on_reallocate(void* block, std::size_t bytes, const Allocator& allocator) {
  const MemoryRange before = to_range(block, allocator.usable(block));
  if (!may_matter(before)) return allocator.reallocate(block, bytes);
  Call call("realloc");
  auto found = find_case(before);
  void* const now = allocator.reallocate(block, bytes);
  const KeptErrno kept;
  if (!found || (!now && bytes != 0)) return now;
  if (now == block) {
    const MemoryRange after = to_range(now, allocator.usable(now));
    if (after.bytes >= before.bytes || MemoryRange{after.first, bytes}.contains(found->bytes)) {
      return now;
    }
  }
  report(call, before, std::move(*found));
  return now;
}

constexpr HeapHooks hooks{.free = on_free, .reallocate = on_reallocate};

void set_hooks(const HeapHooks* wanted) {
  auto* const set = reinterpret_cast<SetHeapHooks*>(dlsym(RTLD_DEFAULT, set_heap_hooks_name));
  if (set) set(wanted);
}

}  // namespace

void watch_heap() {
  set_hooks(&hooks);
}

void unwatch_heap() {
  set_hooks(nullptr);
}

}  // namespace weft::check
