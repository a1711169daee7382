#include "device/local/mapped_access.h"

#include <algorithm>
#include <array>

#include "base/checked_store.h"
#include "base/full_barrier.h"
#include "base/guarded_memory.h"

namespace weft::device {
namespace {

// Mappings that a connection remembers. A new one takes the place of the oldest.
constexpr std::size_t most_entries = 16;

// A thread is interrupted once in a time slice. More often in a row happens under a debugger that
// executes single steps, where no sequence ever ends.
constexpr unsigned most_attempts = 100;

// What a Read of withdrawn memory can have loaded before it notices.
constexpr std::size_t read_part_bytes = 16384;
// What a Write stores in one sequence, and what it copies to memory of the device before.
constexpr std::size_t write_part_bytes = 16384;
constexpr std::size_t staged_bytes = 4096;

}  // namespace

// The program may have unmapped memory of this process itself. Then the access ends with a fault.
std::byte* MappedAccess::find(const GrantView::Found& found) {
  const OwnMemory own = process_.own_memory();
  if (own == OwnMemory::directly && can_store_checked() && may_load_directly(nullptr, 0)) {
    return reinterpret_cast<std::byte*>(found.address);
  }
  if (own == OwnMemory::unseen || !found.file.valid()) return nullptr;
  std::byte* const region = find_region(found);
  return region ? region + found.into : nullptr;
}

// Several regions may share a mapping.
std::byte* MappedAccess::find_region(const GrantView::Found& found) {
  for (Entry& entry : entries_) {
    const bool same = entry.place == found.place && entry.generation == found.generation;
    if (!entry.memory) {
      if (same) return nullptr;
      continue;
    }
    std::byte* const region = entry.memory->find(found.file, found.region_bytes);
    if (!region) continue;
    if (!same) {
      entry.place = found.place;
      entry.generation = found.generation;
    }
    return region;
  }
  return map(found);
}

// A mapping is kept by the connections that use it. Those of regions that the peer has deregistered
// are given up here.
std::byte* MappedAccess::map(const GrantView::Found& found) {
  const GrantView& grants = process_.grants();
  std::erase_if(entries_,
                [&](const Entry& entry) { return !grants.has(entry.place, entry.generation); });
  if (entries_.size() == most_entries) entries_.erase(entries_.begin());
  entries_.push_back({found.place, found.generation, process_.map(found)});
  const auto& memory = entries_.back().memory;
  return memory ? memory->find(found.file, found.region_bytes) : nullptr;
}

template <typename Store>
MappedAccess::Result MappedAccess::run(const GrantView::Found& found, Store store) {
  if (!can_store_checked()) return Result::unavailable;
  const StoreCheck check = process_.grants().check_of(found, &peer_.open);
  announcements_.announce();
  Stored stored = Stored::interrupted;
  for (unsigned i = 0; stored == Stored::interrupted && i < most_attempts; ++i) {
    stored = store(check);
  }
  switch (stored) {
    case Stored::done:
      return Result::done;
    case Stored::withdrawn:
      return Result::withdrawn;
    case Stored::fault:
      return Result::local_fault;
    case Stored::interrupted:
      break;
  }
  return Result::unavailable;
}

MappedAccess::Result MappedAccess::write(const GrantView::Found& found, std::byte* at,
                                         std::span<const iovec> here) {
  for (const iovec& piece : here) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    for (std::size_t left = piece.iov_len; left > 0;) {
      const std::size_t part = std::min(left, write_part_bytes);
      const Result result = write_part(found, at, from, part);
      if (result != Result::done) return result;
      left -= part;
      from += part;
      at += part;
    }
  }
  return Result::done;
}

// A fault may also be one of the memory that is written to, so it is staged then: there the loads
// fail alone.
MappedAccess::Result MappedAccess::write_part(const GrantView::Found& found, std::byte* at,
                                              const std::byte* from, std::size_t bytes) {
  if (may_load_directly(from, bytes)) {
    const Result result =
        run(found, [&](const StoreCheck& check) { return checked_store(check, at, from, bytes); });
    if (result != Result::local_fault) return result;
  }
  return write_staged(found, at, from, bytes);
}

// Where faults of this thread are not caught, the sequence cannot read the program's memory. That
// is copied to memory of the device first.
MappedAccess::Result MappedAccess::write_staged(const GrantView::Found& found, std::byte* at,
                                                const std::byte* from, std::size_t bytes) {
  alignas(64) std::array<std::byte, staged_bytes> staged;  // not initialized
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(bytes - done, staged.size());
    if (!guarded_load(staged.data(), from + done, part)) return Result::local_fault;
    const Result result = run(found, [&](const StoreCheck& check) {
      return checked_store(check, at + done, staged.data(), part);
    });
    if (result == Result::local_fault) return Result::unavailable;
    if (result != Result::done) return result;
    done += part;
  }
  return Result::done;
}

// A look comes after the loads of each part: what was loaded from memory that was granted then was
// granted before, too.
MappedAccess::Result MappedAccess::read(const GrantView::Found& found, const std::byte* at,
                                        std::span<const iovec> here) {
  for (const iovec& piece : here) {
    auto* to = static_cast<std::byte*>(piece.iov_base);
    for (std::size_t left = piece.iov_len; left > 0;) {
      const std::size_t part = std::min(left, read_part_bytes);
      if (!guarded_store(to, at, part)) return Result::local_fault;
      full_barrier();
      const bool granted =
          peer_.open.load(std::memory_order_seq_cst) != 0 && process_.grants().still_there(found);
      if (!granted) return Result::withdrawn;
      left -= part;
      to += part;
      at += part;
    }
  }
  return Result::done;
}

MappedAccess::Result MappedAccess::fetch_add(const GrantView::Found& found, std::byte* at,
                                             std::uint64_t& value) {
  return run(found, [&](const StoreCheck& check) { return checked_fetch_add(check, at, value); });
}

MappedAccess::Result MappedAccess::compare_swap(const GrantView::Found& found, std::byte* at,
                                                std::uint64_t& value, std::uint64_t swap) {
  return run(found,
             [&](const StoreCheck& check) { return checked_compare_swap(check, at, value, swap); });
}

}  // namespace weft::device
