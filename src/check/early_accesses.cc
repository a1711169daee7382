#include "check/early_accesses.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "check/symbols.h"

namespace weft::check {
namespace {

// A request that stays posted gives its register to another one.
constexpr std::uint64_t longest_ns = 20'000'000;
constexpr std::uint32_t register_bytes = 8;

std::uint64_t total(const MemoryRanges& ranges) {
  std::uint64_t bytes = 0;
  for (const MemoryRange& range : ranges) bytes += range.bytes;
  return bytes;
}

// The largest aligned bytes within the range of which `address` is one.
MemoryRange widest(const MemoryRange& range, std::uint64_t address) {
  for (std::uint64_t bytes = register_bytes; bytes > 1; bytes /= 2) {
    const std::uint64_t first = address & ~(bytes - 1);
    if (first >= range.first && first + bytes <= range.first + range.bytes) return {first, bytes};
  }
  return {address, 1};
}

}  // namespace

// In the error state a request does not use its memory any more, and the program may.
void EarlyAccesses::Slot::take(Trap& at) {
  if (qp && (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)) return;
  watchpoint.stop();
  if (taken.exchange(true)) return;
  trap = at;
  trap.take_stack();
  found = true;
  has_found = true;
}

void EarlyAccesses::end(Slot& slot) {
  if (!slot.watchpoint.is_armed()) return;
  slot.watchpoint.disarm();
  --armed_;
  if (!slot.found) return;
  found_.push_back({slot.name, slot.bytes.first, slot.posted, slot.trap});
}

template <typename IsOver>
void EarlyAccesses::end_if(IsOver is_over) {
  if (armed_ == 0) return;
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.watchpoint.is_armed() && is_over(slot)) end(slot);
  }
}

void EarlyAccesses::posting(const MemoryRanges& ranges) {
  end_if([&](const Slot& slot) { return overlap(ranges, {slot.bytes}); });
}

void EarlyAccesses::ended(const WatchedRequest& request) {
  end_if([&](const Slot& slot) { return slot.request == request; });
}

void EarlyAccesses::ended_all(const void* queue) {
  end_if([&](const Slot& slot) { return slot.request.queue == queue; });
}

void EarlyAccesses::ended_in(const MemoryRange& memory) {
  end_if([&](const Slot& slot) { return slot.bytes.overlaps(memory); });
}

void EarlyAccesses::release() {
  end_if([](const Slot&) { return true; });
  const std::lock_guard lock(mutex_);
  (void)may_watch();
}

void EarlyAccesses::stop() {
  end_if([](const Slot&) { return true; });
  const std::lock_guard lock(mutex_);
  stopped_ = true;
}

EarlyAccesses::Slot* EarlyAccesses::free_slot(std::uint64_t now) {
  const auto oldest = std::min_element(slots_.begin(), slots_.end(), [](auto& one, auto& other) {
    return std::pair(one.watchpoint.is_armed(), one.armed_ns) <
           std::pair(other.watchpoint.is_armed(), other.armed_ns);
  });
  const bool busy = oldest->watchpoint.is_armed() && now - oldest->armed_ns < longest_ns;
  return busy ? nullptr : &*oldest;
}

bool EarlyAccesses::wants_more() {
  const std::uint64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  return !stopped_ && pace_.allows(now) && free_slot(now) != nullptr;
}

// Programs look at the beginning of a message first, or wait for its end; some of the time it is
// any other byte.
MemoryRange EarlyAccesses::choose(const MemoryRanges& ranges) {
  constexpr std::uint64_t places = 4;
  const std::uint64_t turn = chosen_++;
  const MemoryRange& front = ranges.front();
  const MemoryRange& back = ranges.back();
  if (turn % places == 1) return widest(back, back.first + back.bytes - 1);
  if (turn % places != places - 1) return widest(front, front.first);
  constexpr std::uint64_t multiplier = 6364136223846793005;  // of Knuth's MMIX generator
  std::uint64_t at = (turn * multiplier >> 16) % total(ranges);
  for (const MemoryRange& range : ranges) {
    if (at < range.bytes) return widest(range, range.first + at);
    at -= range.bytes;
  }
  return widest(front, front.first);
}

void EarlyAccesses::watch(const WatchedRequest& request, const ibv_qp* qp, StackId posted,
                          std::string name, const MemoryRanges& ranges) {
  const std::uint64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  Slot* const slot = free_slot(now);
  if (!slot || stopped_ || ranges.empty()) return;
  end(*slot);
  pace_.note(now);
  if (!may_watch()) {
    for (Slot& each : slots_) end(each);
    return;
  }
  slot->request = request;
  slot->qp = qp;
  slot->posted = posted;
  slot->name = std::move(name);
  slot->bytes = choose(ranges);
  slot->armed_ns = now;
  slot->taken = slot->found = false;
  const auto bytes = static_cast<std::uint32_t>(slot->bytes.bytes);
  if (slot->watchpoint.arm(slot->bytes.first, bytes) == 0) ++armed_;
}

std::vector<Finding> EarlyAccesses::take_findings(Stacks& stacks) {
  std::vector<Found> found;
  {
    const std::lock_guard lock(mutex_);
    has_found_ = false;
    for (Slot& slot : slots_) {
      if (slot.watchpoint.is_armed() && slot.found) end(slot);
    }
    found.swap(found_);
  }
  std::vector<Finding> findings;
  for (const Found& each : found) {
    const StackId stack = stacks.add(each.trap.stack());
    if (is_from_weft(stacks.get(stack))) continue;
    findings.push_back({.rule = Rule::early_access,
                        .what = fmt::format("Memory of {} was read or written, at {:#x}, before "
                                            "the poll that returned its completion.",
                                            each.name, each.address),
                        .places = {{"It was accessed here", stack},
                                   {"The request was posted here", each.posted}}});
  }
  return findings;
}

void EarlyAccesses::after_fork_in_child() {
  for (Slot& slot : slots_) slot.watchpoint.abandon_after_fork();
  armed_ = 0;
  chosen_ = 0;
  found_.clear();
  mutex_.unlock();
}

}  // namespace weft::check
