#include "check/memory_of_requests.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/crc32c.h"
#include "base/guarded_memory.h"
#include "base/size.h"
#include "check/completion_checks.h"

namespace weft::check {
namespace {

constexpr std::size_t block_bytes = 4096;
constexpr std::uint64_t whole_bytes = 65536;

std::string range(const ibv_sge& piece) {
  return fmt::format("{} bytes at {:#x}", piece.length, piece.addr);
}

// Whether all pages are mapped: msync(2). It writes nothing back where the memory is no file.
bool is_mapped(std::uint64_t address, std::uint64_t bytes) {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = address & ~(page - 1);
  return bytes == 0 ||
         msync(reinterpret_cast<void*>(static_cast<std::uintptr_t>(first)),
               to_size(address + bytes - first), MS_ASYNC) == 0 ||
         errno != ENOMEM;
}

// Memory of the device, and pages on demand, need not be there. That memory was freed is reported
// once.
bool must_be_mapped(const MemoryRegion& region) {
  return region.is_placed() && !region.freed && (region.access & IBV_ACCESS_ON_DEMAND) == 0;
}

void report_unknown(Call& call, const ibv_sge& piece, const Use& use) {
  call.report(
      Rule::unknown_key,
      fmt::format("{} names {} with lkey {:#x}. No region of this process has had this key.",
                  use.request, range(piece), piece.lkey),
      "It was posted here");
}

void report_region(Call& call, Rule rule, const MemoryRegion& region, const std::string& what) {
  std::vector<Place> places;
  if (region.gone != 0) places.push_back({"The region was deregistered here", region.gone});
  places.push_back({"The region was registered here", region.made});
  call.report(rule, what, "The request was posted here", std::move(places));
}

void check_piece(Call& call, const ibv_sge& piece, const Use& use) {
  Checker& state = checker();
  MemoryRegion region;
  bool same_domain = false;
  {
    const std::lock_guard lock(state.mutex);
    const MemoryRegion* found = state.regions.find(piece.lkey);
    if (found) region = *found;
    same_domain = state.parent_domains.are_one(region.domain, use.domain);
  }
  const std::string names =
      fmt::format("{} names {} with lkey {:#x}", use.request, range(piece), piece.lkey);
  if (!region.mr) return report_unknown(call, piece, use);
  if (region.gone != 0) {
    return report_region(call, Rule::dead_key, region,
                         fmt::format("{}. That was the key of a {}, which is deregistered.", names,
                                     describe(region)));
  }
  if (!same_domain) {
    return report_region(call, Rule::wrong_domain, region,
                         fmt::format("{}. This {} is in another protection domain than the queue.",
                                     names, describe(region)));
  }
  if (!region.covers(piece.addr, piece.length)) {
    return report_region(call, Rule::region_too_small, region,
                         fmt::format("{}. The {} does not cover them.", names, describe(region)));
  }
  const std::uint64_t memory = region.memory + (piece.addr - region.first);
  if (must_be_mapped(region) && !is_mapped(memory, piece.length)) {
    report_region(call, Rule::unmapped_memory, region,
                  fmt::format("{}, and this memory of the {} is not mapped any more.", names,
                              describe(region)));
  }
  if (use.writes && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    report_region(call, Rule::missing_right, region,
                  fmt::format("{} as the place for its data, and the {} grants no local write.",
                              names, describe(region)));
  }
}

// Where the bytes of a piece are in this process; 0: not known. `may` is asked about the region.
template <typename May>
std::uint64_t memory_of(const ibv_sge& piece, May may) {
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  const MemoryRegion* region = state.regions.find(piece.lkey);
  if (!region || region->gone != 0 || region->memory == 0) return 0;
  if (!region->covers(piece.addr, piece.length) || !may(*region)) return 0;
  return region->memory + (piece.addr - region->first);
}

std::uint64_t memory_of(const ibv_sge& piece) {
  return memory_of(piece, [](const MemoryRegion&) { return true; });
}

template <typename May>
MemoryRanges ranges_of(std::span<const ibv_sge> pieces, May may) {
  MemoryRanges ranges;
  for (const ibv_sge& piece : pieces) {
    if (piece.length == 0) continue;
    const std::uint64_t address = memory_of(piece, may);
    if (address == 0) return {};
    ranges.push_back({address, piece.length});
  }
  return ranges;
}

bool add(Crc32c& checksum, std::uint64_t address, std::uint64_t bytes) {
  std::array<std::byte, block_bytes> block;
  while (bytes > 0) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, block.size()));
    if (!guarded_load(block.data(), reinterpret_cast<const void*>(address), part)) return false;
    checksum.update(Bytes(block.data(), part));
    address += part;
    bytes -= part;
  }
  return true;
}

// The first and the last 16 KiB, and 64 bytes of each page between.
bool add_samples(Crc32c& checksum, std::uint64_t address, std::uint64_t bytes) {
  constexpr std::uint64_t end_bytes = whole_bytes / 4;
  constexpr std::uint64_t sample_bytes = 64;
  if (!add(checksum, address, end_bytes)) return false;
  for (std::uint64_t at = end_bytes; at + end_bytes < bytes; at += block_bytes) {
    if (!add(checksum, address + at, sample_bytes)) return false;
  }
  return add(checksum, address + bytes - end_bytes, end_bytes);
}

}  // namespace

std::string describe(const MemoryRegion& region) {
  return fmt::format("region of {} bytes at {:#x}", region.length, region.first);
}

void check_mapped(Call& call, const ibv_mr& mr) {
  Checker& state = checker();
  MemoryRegion region;
  {
    const std::lock_guard lock(state.mutex);
    if (const MemoryRegion* found = state.regions.find(mr.lkey)) region = *found;
  }
  if (!region.mr || !must_be_mapped(region) || is_mapped(region.memory, region.length)) return;
  call.report(Rule::unmapped_memory,
              fmt::format("Memory of the {} is not mapped any more.", describe(region)),
              "The region was deregistered here", {{"It was registered here", region.made}});
}

void check_pieces(Call& call, std::span<const ibv_sge> pieces, const Use& use) {
  for (const ibv_sge& piece : pieces) {
    if (piece.length != 0) check_piece(call, piece, use);
  }
}

std::optional<std::uint32_t> checksum_of(std::span<const ibv_sge> pieces) {
  Crc32c checksum;
  for (const ibv_sge& piece : pieces) {
    if (piece.length == 0) continue;
    const std::uint64_t address = memory_of(piece);
    if (address == 0) return std::nullopt;
    const bool read = piece.length <= whole_bytes ? add(checksum, address, piece.length)
                                                  : add_samples(checksum, address, piece.length);
    if (!read) return std::nullopt;
  }
  return checksum.value();
}

MemoryRanges ranges_of(std::span<const ibv_sge> pieces) {
  return ranges_of(pieces, [](const MemoryRegion&) { return true; });
}

MemoryRanges written_ranges_of(std::span<const ibv_sge> pieces, const ibv_pd* domain) {
  return ranges_of(pieces, [domain](const MemoryRegion& region) {
    return (region.access & IBV_ACCESS_LOCAL_WRITE) != 0 &&
           checker().parent_domains.are_one(region.domain, domain);
  });
}

namespace {

constexpr std::size_t compared_bytes = 64;

// Calls `each` with the address and the checksum of each block, until it returns false. False if
// the memory cannot be read. A block may lie in several ranges.
template <typename Each>
bool for_each_block(const MemoryRanges& ranges, Each each) {
  std::uint64_t left = whole_bytes;
  std::array<std::byte, compared_bytes> block;
  std::size_t filled = 0;
  std::uint64_t begin = 0;
  const auto flush = [&] {
    const bool more = each(begin, crc32c(Bytes(block.data(), filled)));
    filled = 0;
    return more;
  };
  for (const MemoryRange& range : ranges) {
    for (std::uint64_t at = 0; at < range.bytes && left > 0;) {
      const auto part = static_cast<std::size_t>(
          std::min({range.bytes - at, left, std::uint64_t{block.size() - filled}}));
      if (filled == 0) begin = range.first + at;
      const auto* from = reinterpret_cast<const void*>(range.first + at);
      if (!guarded_load(block.data() + filled, from, part)) return false;
      filled += part;
      at += part;
      left -= part;
      if (filled == block.size() && !flush()) return true;
    }
  }
  if (filled > 0) flush();
  return true;
}

}  // namespace

std::vector<std::uint32_t> block_checksums(const MemoryRanges& ranges) {
  std::vector<std::uint32_t> blocks;
  const bool read = for_each_block(ranges, [&](std::uint64_t, std::uint32_t checksum) {
    blocks.push_back(checksum);
    return true;
  });
  return read ? blocks : std::vector<std::uint32_t>{};
}

std::optional<std::uint64_t> changed_behind(const MemoryRanges& ranges,
                                            const std::vector<std::uint32_t>& blocks,
                                            std::uint64_t placed) {
  const std::uint64_t first = (placed + compared_bytes - 1) / compared_bytes;
  if (first >= blocks.size()) return std::nullopt;
  std::optional<std::uint64_t> changed;
  std::size_t number = 0;
  const bool read = for_each_block(ranges, [&](std::uint64_t at, std::uint32_t checksum) {
    if (number >= first && number < blocks.size() && blocks[number] != checksum) changed = at;
    ++number;
    return !changed;
  });
  return read ? changed : std::nullopt;
}

// The receive is over, and not among the posted ones any more.
bool may_be_written_by_others(const Request& receive) {
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  if (state.requests.any_writes(receive.writes)) return true;
  if (state.writers.any_since(receive.posted_at, receive.writes, receive.ended_at)) return true;
  return std::any_of(receive.writes.begin(), receive.writes.end(), [&](const MemoryRange& range) {
    return state.regions.any_for_peers(range.first, range.bytes);
  });
}

FilledMemory::FilledMemory(const MemoryRanges& ranges, std::uint64_t remote_address,
                           std::uint32_t rkey) {
  constexpr std::uint64_t end_bytes = whole_bytes / 4;
  std::uint64_t source = remote_address;
  {
    const std::lock_guard lock(checker().mutex);
    const MemoryRegion* region = checker().regions.find(rkey);
    if (region && region->memory != 0) source = region->memory + (remote_address - region->first);
  }
  std::uint64_t bytes = 0;
  for (const MemoryRange& range : ranges) bytes += range.bytes;
  const MemoryRanges from{{source, bytes}};
  if (overlap(ranges, from)) return;
  for (const MemoryRange& range : ranges) {
    if (range.bytes <= whole_bytes) {
      fill(range.first, range.bytes);
    } else {
      fill(range.first, end_bytes);
      fill(range.first + range.bytes - end_bytes, end_bytes);
    }
  }
}

void FilledMemory::fill(std::uint64_t first, std::uint64_t bytes) {
  const std::size_t size = to_size(bytes);
  std::vector<std::byte> old(size);
  const std::vector<std::byte> pattern(size, std::byte{undefined_byte});
  auto* const at = reinterpret_cast<void*>(static_cast<std::uintptr_t>(first));
  if (!guarded_load(old.data(), at, size)) return;
  if (!guarded_store(at, pattern.data(), size)) return;
  saved_.push_back({first, std::move(old)});
}

void FilledMemory::restore() const {
  for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved) {
    (void)guarded_store(reinterpret_cast<void*>(saved->first), saved->bytes.data(),
                        saved->bytes.size());
  }
}

}  // namespace weft::check
