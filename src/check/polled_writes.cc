#include "check/polled_writes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/guarded_memory.h"
#include "check/checker.h"
#include "check/memory_of_requests.h"
#include "check/symbols.h"

namespace weft::check {
namespace {

constexpr std::size_t most_regions = 64;
constexpr std::size_t most_candidates = 16;
constexpr std::uint64_t window_bytes = 65536;
// Traps of one arming: about a millisecond of a program that only waits.
constexpr unsigned most_traps = 512;
// How often one instruction must have found the byte unchanged: then it waits.
constexpr unsigned least_reads = 2;
// After this many looks that have found new Writes, another byte is watched.
constexpr unsigned most_looks = 16;
constexpr unsigned most_looks_unread = 3;

MemoryRegionCounters counters_of(const ibv_mr* mr) {
  MemoryRegionCounters counters;
  (void)checker().below.table->read_mr_counters(const_cast<ibv_mr*>(mr), &counters);
  return counters;
}

std::uint64_t writes_to(const ibv_mr* mr) {
  return counters_of(mr).peer_writes.operations;
}

}  // namespace

// --- In the signal handler -----------------------------------------------------------------------

void PolledWrites::Taker::begin(std::uint64_t at) {
  address = at;
  left = most_traps;
  reads = 0;
  begun = false;
  writes = received = 0;
  found = exhausted = false;
}

void PolledWrites::Taker::restart(std::byte now, std::uint64_t writes_now,
                                  std::uint64_t receives_now) {
  value = now;
  writes = writes_now;
  received = receives_now;
  readers = {};
}

// An instruction that finds no place takes the last one.
unsigned& PolledWrites::Taker::times_of(std::uintptr_t instruction) {
  const auto place = std::find_if(readers.begin(), readers.end() - 1, [&](const Reader& reader) {
    return reader.instruction == instruction || reader.instruction == 0;
  });
  if (place->instruction != instruction) *place = {.instruction = instruction};
  return place->times;
}

void PolledWrites::Taker::take(Trap& at) {
  if (busy.exchange(true, std::memory_order_acquire)) return;
  std::byte now{};
  const std::uint64_t writes_now = watchpoint.writes();
  const std::uint64_t receives_now = receives.load(std::memory_order_relaxed);
  const bool seen = !found && copy_unseen(&now, address, sizeof now);
  if (!seen || left == 0 || --left == 0) {
    watchpoint.stop();
    exhausted = !found;
  }
  if (seen) {
    if (writes_now == writes) ++reads;
    if (!begun || writes_now != writes || receives_now != received) {
      restart(now, writes_now, receives_now);
      begun = true;
    }
    unsigned& times = times_of(at.instruction);
    if (now != value && times >= least_reads) {
      watchpoint.stop();
      trap = at;
      trap.take_stack();
      found = true;
    } else if (now != value) {
      restart(now, writes_now, receives_now);
    } else {
      ++times;
    }
  }
  busy.store(false, std::memory_order_release);
}

// --- What to watch -------------------------------------------------------------------------------

void PolledWrites::add(const MemoryRegion& region) {
  const bool open = (region.access & IBV_ACCESS_REMOTE_WRITE) != 0 && !region.any_address &&
                    region.memory != 0 && region.length > 0;
  if (!open) return;
  const std::lock_guard lock(mutex_);
  regions_.push_back(
      {.mr = region.mr, .memory = {region.memory, region.length}, .made = region.made});
  if (regions_.size() > most_regions) regions_.pop_front();
}

void PolledWrites::remove(const ibv_mr* mr) {
  const std::lock_guard lock(mutex_);
  std::erase_if(regions_, [&](const Watched& region) { return region.mr == mr; });
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.mr == mr; });
  if (current_.mr != mr) return;
  current_ = {};
  end();
  taker_.found = false;
}

PolledWrites::Watched* PolledWrites::find(const ibv_mr* mr) {
  const auto found = std::find_if(regions_.begin(), regions_.end(),
                                  [&](const Watched& region) { return region.mr == mr; });
  return found == regions_.end() ? nullptr : &*found;
}

// The newest come first; one that is known moves there.
void PolledWrites::add_candidate(const ibv_mr* mr, std::uint64_t address) {
  if (address == current_.address) return;
  const auto known = std::find_if(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& each) { return each.address == address; });
  Candidate candidate{mr, address};
  if (known != candidates_.end()) {
    candidate.tries = known->tries;
    candidates_.erase(known);
  }
  candidates_.push_front(candidate);
  if (candidates_.size() > most_candidates) candidates_.pop_back();
}

// Of a large region one part is compared at a time, until nothing has changed there: every other
// time the last one, where benchmarks and messages have their last byte.
void PolledWrites::move_window(Watched& region) {
  const std::uint64_t bytes = std::min(region.memory.bytes, window_bytes);
  const std::uint64_t parts = (region.memory.bytes + window_bytes - 1) / window_bytes;
  const std::uint64_t back = region.memory.bytes - bytes;
  const bool is_last = region.moves % 2 == 0;
  const std::uint64_t offset =
      is_last ? back : std::min(region.moves / 2 % parts * window_bytes, back);
  const std::uint64_t next = region.memory.first + offset;
  ++region.moves;
  region.window = {next, bytes};
  region.bytes.resize(static_cast<std::size_t>(region.window.bytes));
  const auto* from = reinterpret_cast<const void*>(next);
  if (!guarded_load(region.bytes.data(), from, region.bytes.size())) region.bytes.clear();
}

bool PolledWrites::compare(Watched& region) {
  const std::uint64_t writes = writes_to(region.mr);
  const bool is_first = region.bytes.empty();
  if (!is_first && writes == region.writes) return false;
  region.writes = writes;
  if (is_first) {
    move_window(region);
    return true;
  }
  std::vector<std::byte> now(static_cast<std::size_t>(region.window.bytes));
  const auto* from = reinterpret_cast<const void*>(region.window.first);
  if (!guarded_load(now.data(), from, now.size())) return true;
  const auto first = std::mismatch(now.begin(), now.end(), region.bytes.begin()).first;
  if (first == now.end()) {
    move_window(region);
    return true;
  }
  const auto last = std::mismatch(now.rbegin(), now.rend(), region.bytes.rbegin()).first;
  const auto front = static_cast<std::uint64_t>(first - now.begin());
  const auto back = static_cast<std::uint64_t>(now.rend() - last - 1);
  add_candidate(region.mr, region.window.first + front);
  add_candidate(region.mr, region.window.first + back);
  region.bytes = std::move(now);
  return true;
}

void PolledWrites::end() {
  taker_.watchpoint.disarm();
  if (current_.mr) candidates_.push_back(current_);
  current_ = {};
}

// A byte that the program writes itself and does not read is not one of them.
bool PolledWrites::is_waited_for() const {
  if (taker_.reads == 0) return looks_ < most_looks_unread && taker_.watchpoint.writes() == 0;
  return looks_ < most_looks;
}

void PolledWrites::choose(std::uint64_t now) {
  if (taker_.watchpoint.is_armed() && is_waited_for()) {
    if (!taker_.exhausted || !armings_.allows(now)) return;
    // It has not changed yet.
    armings_.note(now);
    taker_.left = most_traps;
    taker_.exhausted = false;
    return taker_.watchpoint.enable();
  }
  if (!armings_.allows(now)) return;
  end();
  const auto best = std::min_element(
      candidates_.begin(), candidates_.end(),
      [](const Candidate& one, const Candidate& other) { return one.tries < other.tries; });
  if (best == candidates_.end() || stopped_) return;
  armings_.note(now);
  if (!may_watch()) return;
  current_ = *best;
  candidates_.erase(best);
  ++current_.tries;
  looks_ = 0;
  const MemoryRegionCounters counters = counters_of(current_.mr);
  writes_at_first_ = counters.peer_writes.operations;
  atomics_at_first_ = counters.peer_atomics.operations;
  taker_.begin(current_.address);
  if (taker_.watchpoint.arm(current_.address, 1, true) != 0) end();
}

void PolledWrites::look() {
  const std::uint64_t now = now_ns();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || regions_.empty() || stopped_ || taker_.found) return;
  if (next_ >= regions_.size()) next_ = 0;
  if (comparisons_.allows(now) && compare(regions_[next_++])) {
    comparisons_.note(now);
    ++looks_;
  }
  if (now >= pause_ns_) choose(now);
}

// --- Findings ------------------------------------------------------------------------------------

// After one the register rests: the next one is most likely at the same place.
std::vector<Finding> PolledWrites::take_findings(Stacks& stacks) {
  constexpr std::uint64_t rest_ns = 200'000'000;
  constexpr unsigned most_calls = 1000;
  const std::lock_guard lock(mutex_);
  if (!taker_.found) return {};
  const Candidate at = current_;
  const Watched* const region = find(at.mr);
  const MemoryRegionCounters counters = region ? counters_of(region->mr) : MemoryRegionCounters();
  const bool written = region && counters.peer_writes.operations != writes_at_first_;
  // A peer on this host counts its Writes after it has made them.
  if (region && !written && ++looks_ < most_calls) return {};
  const Trap trap = taker_.trap;
  end();
  taker_.found = false;
  pause_ns_ = now_ns() + rest_ns;
  if (!written || counters.peer_atomics.operations != atomics_at_first_) return {};
  const StackId stack = stacks.add(trap.stack());
  if (is_from_weft(stacks.get(stack))) return {};
  return {
      {.rule = Rule::polled_write,
       .what = fmt::format(
           "The byte at {:#x} was read again and again until a Write of the peer changed it. "
           "It belongs to a region of {} bytes at {:#x}, and no receive completed "
           "meanwhile.",
           at.address, region->memory.bytes, region->memory.first),
       .places = {{"It was read here", stack}, {"The region was registered here", region->made}}}};
}

void PolledWrites::release() {
  const std::lock_guard lock(mutex_);
  if (!taker_.found) end();
}

void PolledWrites::stop() {
  release();
  const std::lock_guard lock(mutex_);
  stopped_ = true;
}

void PolledWrites::after_fork_in_child() {
  taker_.watchpoint.abandon_after_fork();
  taker_.found = taker_.busy = false;
  regions_.clear();
  candidates_.clear();
  current_ = {};
  mutex_.unlock();
}

}  // namespace weft::check
