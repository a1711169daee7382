#include "weft/capture/byte_map.hpp"

#include <algorithm>
#include <iterator>

#include "base/size.h"

namespace weft::capture {
namespace {

// The number of ranges with a missing or doubtful byte that are remembered. Further ones extend the
// last range, so that an endless series of contradictions needs no more memory.
constexpr std::size_t max_notes = 1024;

}  // namespace

// Splits the new bytes at the borders of the extents: each piece either overwrites stored bytes or
// fills a gap.
ByteMap::Placed ByteMap::place(std::uint64_t offset, Bytes bytes) {
  Placed placed;
  while (!bytes.empty()) {
    auto next = extents_.upper_bound(offset);
    if (next != extents_.begin()) {
      auto& [begin, extent] = *std::prev(next);
      if (offset < begin + extent.size()) {
        const std::size_t size =
            to_size(std::min<std::uint64_t>(bytes.size(), begin + extent.size() - offset));
        overwrite(extent, begin, offset, bytes.first(size), placed);
        offset += size;
        bytes = bytes.subspan(size);
        continue;
      }
    }
    const auto room = next == extents_.end() ? bytes.size() : next->first - offset;
    const std::size_t size = to_size(std::min<std::uint64_t>(bytes.size(), room));
    add(offset, bytes.first(size), placed);
    offset += size;
    bytes = bytes.subspan(size);
  }
  return placed;
}

// Replaces stored bytes. The range from the first to the last difference becomes a conflict.
void ByteMap::overwrite(std::vector<std::byte>& extent, std::uint64_t begin, std::uint64_t offset,
                        Bytes bytes, Placed& placed) {
  const MutableBytes there = MutableBytes(extent).subspan(to_size(offset - begin), bytes.size());
  if (std::ranges::equal(there, bytes)) {
    placed.repeated += bytes.size();
    return;
  }
  std::uint64_t first = bytes.size();
  std::uint64_t last = 0;
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (there[i] == bytes[i]) continue;
    first = std::min<std::uint64_t>(first, i);
    last = i;
    ++different;
  }
  placed.conflicting += different;
  placed.repeated += bytes.size() - different;
  note(offset + first, last - first + 1, Flaw::conflict);
  // The later bytes replace the earlier ones; the conflict marks both as doubtful.
  std::ranges::copy(bytes, there.begin());
}

// Adds bytes to a gap. If the budget is used up, they are dropped and noted.
// Bytes behind an extent are appended to it. Extents that become adjacent otherwise stay separate,
// and take() joins them in its result.
void ByteMap::add(std::uint64_t offset, Bytes bytes, Placed& placed) {
  if (!budget_->take(bytes.size())) {
    placed.dropped += bytes.size();
    note(offset, bytes.size(), Flaw::dropped);
    return;
  }
  placed.added += bytes.size();
  const auto next = extents_.upper_bound(offset);
  if (next != extents_.begin()) {
    auto& [begin, extent] = *std::prev(next);
    if (begin + extent.size() == offset) {
      extent.insert(extent.end(), bytes.begin(), bytes.end());
      return;
    }
  }
  extents_.emplace_hint(next, offset, std::vector<std::byte>(bytes.begin(), bytes.end()));
}

void ByteMap::note(std::uint64_t offset, std::uint64_t size, Flaw flaw) {
  if (size == 0) return;
  if (notes_.size() < max_notes) {
    notes_.push_back({offset, offset + size, flaw});
    return;
  }
  // The range may then cover sound bytes too, but no flaw gets lost.
  FlawedRange& rest = notes_.back();
  rest.begin = std::min(rest.begin, offset);
  rest.end = std::max(rest.end, offset + size);
}

std::uint64_t ByteMap::present(std::uint64_t size) const {
  std::uint64_t bytes = 0;
  for (const auto& [begin, extent] : extents_) {
    if (begin >= size) break;
    bytes += std::min<std::uint64_t>(extent.size(), size - begin);
  }
  return bytes;
}

std::uint64_t ByteMap::end() const {
  return extents_.empty() ? 0 : extents_.rbegin()->first + extents_.rbegin()->second.size();
}

std::uint64_t ByteMap::reached() const {
  std::uint64_t last = end();
  for (const FlawedRange& range : notes_) last = std::max(last, range.end);
  return last;
}

// Appends zeros for a gap; parts of it with a note get its flaw, and the rest is missing.
void ByteMap::append_gap(Assembled& out, std::uint64_t begin, std::uint64_t end) const {
  while (begin < end) {
    Flaw flaw = Flaw::missing;
    std::uint64_t until = end;
    for (const FlawedRange& range : notes_) {
      if (range.flaw == Flaw::conflict || range.end <= begin) continue;
      if (range.begin <= begin) {
        flaw = range.flaw;
        until = std::min(end, range.end);
        break;
      }
      until = std::min(until, range.begin);
    }
    out.append_flawed(until - begin, flaw);
    begin = until;
  }
}

// Copies stored bytes and gaps in order, then adds the conflicts, which are in stored bytes.
Assembled ByteMap::take(std::uint64_t begin, std::uint64_t end) const {
  Assembled out;
  std::uint64_t at = begin;
  auto extent = extents_.upper_bound(begin);
  if (extent != extents_.begin()) --extent;
  for (; extent != extents_.end() && at < end; ++extent) {
    const std::uint64_t extent_end = extent->first + extent->second.size();
    if (extent_end <= at) continue;
    if (extent->first >= end) break;
    if (extent->first > at) append_gap(out, at, extent->first);
    at = std::max(at, extent->first);
    const std::uint64_t until = std::min(end, extent_end);
    out.append(Bytes(extent->second).subspan(to_size(at - extent->first), to_size(until - at)));
    at = until;
  }
  if (at < end) append_gap(out, at, end);
  for (const FlawedRange& range : notes_) {
    if (range.flaw != Flaw::conflict) continue;
    const auto from = std::max(range.begin, begin);
    const auto to = std::min(range.end, end);
    if (from < to) out.mark({from - begin, to - begin, Flaw::conflict});
  }
  return out;
}

void ByteMap::clear() {
  for (const auto& [begin, extent] : extents_) budget_->give_back(extent.size());
  extents_.clear();
  notes_.clear();
}

}  // namespace weft::capture
