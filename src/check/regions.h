// The memory regions of the program by their keys, also those that are deregistered.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "check/range_index.h"
#include "check/registered_pages.h"
#include "check/stacks.h"

namespace weft::check {

struct MemoryRegion {
  const ibv_mr* mr = nullptr;
  const ibv_pd* domain = nullptr;
  std::uint32_t key = 0;     // lkey and rkey are equal on this device
  std::uint64_t first = 0;   // the address by which requests name its first byte
  std::uint64_t memory = 0;  // where this byte is in the process; 0: nowhere
  std::uint64_t length = 0;  // bytes
  unsigned access = 0;       // IBV_ACCESS_*
  bool any_address = false;  // null memory, and pages on demand of the whole process
  StackId made = 0;
  StackId gone = 0;    // where it was deregistered; 0: it is registered
  bool freed = false;  // its memory was given back before, which is reported

  [[nodiscard]] bool covers(std::uint64_t address, std::uint64_t bytes) const {
    return any_address ||
           (address >= first && bytes <= length && address - first <= length - bytes);
  }
  // In this process.
  [[nodiscard]] MemoryRange range() const { return {memory, length}; }
  // Whether it has a place in this process, by which free(3) can find it.
  [[nodiscard]] bool is_placed() const { return gone == 0 && memory != 0 && !any_address; }
};

// Not thread-safe.
class Regions {
 public:
  void add(const MemoryRegion& region);
  void remove(std::uint32_t key, StackId stack);
  // These bytes were given back, and that is reported for one of the regions within them.
  void note_freed(const MemoryRange& block);
  // The region that has or had the key; null if none did.
  [[nodiscard]] const MemoryRegion* find(std::uint32_t key) const;
  // Whether peers may write, or might have written, to any of these bytes of the process.
  [[nodiscard]] bool any_for_peers(std::uint64_t first, std::uint64_t bytes) const;
  // Calls `ends` with each registered region that has some of these bytes of the process, until it
  // returns true.
  template <typename Ends>
  void find_overlapping(const MemoryRange& range, Ends ends) const {
    placed_.find_overlapping(range, [&](std::uint64_t key, const MemoryRange& /*bytes*/) {
      return ends(by_key_.at(static_cast<std::uint32_t>(key)));
    });
  }
  // Thread-safe to ask.
  [[nodiscard]] const RegisteredPages& pages() const { return pages_; }
  // In the child of a fork(2), whose memory is no registered memory.
  void unplace_all();

 private:
  void place(const MemoryRegion& region);
  void unplace(const MemoryRegion& region);

  std::unordered_map<std::uint32_t, MemoryRegion> by_key_;
  RangeIndex placed_;  // the keys of the registered ones that have a place in the process
  RegisteredPages pages_;
  std::deque<std::uint32_t> gone_;  // the keys of deregistered regions, the oldest first
};

}  // namespace weft::check
