#include "weft/capture/segment_table.hpp"

#include <algorithm>
#include <iterator>

namespace weft::capture {
namespace {

// Returns whether two segments share an address. The differences are unsigned, so the one that
// would be negative is very large, and the comparison with it fails.
bool overlap(const wire::RdmaSegment& a, const wire::RdmaSegment& b) {
  return a.offset - b.offset < b.length || b.offset - a.offset < a.length;
}

// Returns an empty Assembled with one flaw, for a chunk that is too long to reassemble.
Assembled too_long(std::uint64_t length) {
  Assembled none;
  none.mark({0, length, Flaw::dropped});
  return none;
}

}  // namespace

// Adds a segment, or updates the length of a known one. Overlapping segments with the same handle
// are removed.
SegmentTable::Added SegmentTable::add(const SegmentDescription& description) {
  Added added;
  auto& same_handle = by_handle_[description.target.handle];
  for (std::size_t i = 0; i < same_handle.size();) {
    const auto at = same_handle[i];
    const bool same_place = at->address() == description.target.offset;
    if (same_place && at->description().call == description.call &&
        at->description().use == description.use) {
      added.segment = &*at;
      added.known = true;
    } else if (same_place || overlap(at->description().target, description.target)) {
      // The memory was registered again, so the old segment belongs to an operation that has ended.
      added.replaced = true;
      forget_requests_of(&*at);
      segments_.erase(at);
      same_handle.erase(same_handle.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    ++i;
  }
  if (added.known) {
    added.segment->set_length(description.target.length);
    return added;
  }
  segments_.emplace_back(description, *budget_);
  same_handle.push_back(std::prev(segments_.end()));
  added.segment = &segments_.back();
  return added;
}

// The latest segment with a handle is the last one in its list, because add() appends.
Segment* SegmentTable::find(std::uint32_t handle) {
  const auto found = by_handle_.find(handle);
  return found == by_handle_.end() ? nullptr : &*found->second.back();
}

Segment* SegmentTable::find(std::uint32_t handle, std::uint64_t address) {
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return nullptr;
  const auto& segments = found->second;
  const auto latest = std::find_if(segments.rbegin(), segments.rend(),
                                   [address](const auto& one) { return one->contains(address); });
  return latest == segments.rend() ? nullptr : &**latest;
}

Segment* SegmentTable::find(const wire::RdmaSegment& target, CallNumber call) {
  const auto found = by_handle_.find(target.handle);
  if (found == by_handle_.end()) return nullptr;
  for (const auto at : found->second) {
    if (at->address() == target.offset && at->description().call == call) return &*at;
  }
  return nullptr;
}

SegmentTable::Segments::iterator SegmentTable::erase(Segments::iterator at) {
  forget_requests_of(&*at);
  const auto found = by_handle_.find(at->handle());
  std::erase(found->second, at);
  if (found->second.empty()) by_handle_.erase(found);
  return segments_.erase(at);
}

bool SegmentTable::remove(const Segment* segment) {
  if (segment == nullptr) return false;
  const auto found = by_handle_.find(segment->handle());
  if (found == by_handle_.end()) return false;
  for (const auto at : found->second) {
    if (&*at != segment) continue;
    erase(at);
    return true;
  }
  return false;
}

void SegmentTable::remove_call(CallNumber call) {
  for (auto at = segments_.begin(); at != segments_.end();) {
    at = at->description().call == call ? erase(at) : std::next(at);
  }
}

// The requests and the index point into `segments_`, so the segments are removed last.
void SegmentTable::reset() {
  requests_.clear();
  by_handle_.clear();
  segments_.clear();
}

// Pointers to the segment in read requests would dangle, so those requests are removed too.
void SegmentTable::forget_requests_of(const Segment* segment) {
  for (auto sink = requests_.begin(); sink != requests_.end();) {
    sink->second.remove_if([&](const Request& request) { return request.segment == segment; });
    sink = sink->second.empty() ? requests_.erase(sink) : std::next(sink);
  }
}

// --- Chunk lists ---------------------------------------------------------------------------------

void SegmentTable::process_call(const ChunkLists& lists, CallNumber call) {
  for (const wire::ReadSegment& segment : lists.reads) {
    add({segment.target, SegmentUse::read, segment.position, call});
  }
  for (const Chunk& chunk : lists.writes) {
    for (const wire::RdmaSegment& segment : chunk) add({segment, SegmentUse::write, 0, call});
  }
  if (!lists.reply) return;
  for (const wire::RdmaSegment& segment : *lists.reply) add({segment, SegmentUse::reply, 0, call});
}

// Returns the bytes of one segment of a chunk list, or only missing bytes if it is unknown.
Assembled SegmentTable::take(const wire::RdmaSegment& target, CallNumber call) {
  if (const Segment* segment = find(target, call)) {
    Assembled bytes = segment->take(target.length);
    // The reply may announce more bytes than the call has offered.
    bytes.append_flawed(target.length - bytes.size(), Flaw::missing);
    return bytes;
  }
  Assembled nothing;
  nothing.append_flawed(target.length, Flaw::missing);
  return nothing;
}

ReplyChunks SegmentTable::reply_chunks(const ChunkLists& reply, CallNumber call) {
  const auto collect = [&](const Chunk& chunk) {
    // The lengths come from the wire, so they are limited before memory is reserved for them.
    if (length_of(chunk) > max_message_bytes) return too_long(length_of(chunk));
    Assembled bytes;
    for (const wire::RdmaSegment& segment : chunk) bytes.append(take(segment, call));
    return bytes;
  };
  ReplyChunks chunks;
  for (const Chunk& chunk : reply.writes) chunks.writes.push_back(collect(chunk));
  if (reply.reply) chunks.reply = collect(*reply.reply);
  return chunks;
}

// Collects the bytes of each read chunk. The limit applies to the sum of all chunks.
std::vector<ReadChunk> SegmentTable::read_chunks(const ChunkLists& lists, CallNumber call) {
  std::uint64_t total = 0;
  for (const wire::ReadSegment& segment : lists.reads) total += segment.target.length;
  std::vector<ReadChunk> chunks;
  for (const wire::ReadSegment& segment : lists.reads) {
    auto chunk = std::ranges::find(chunks, segment.position, &ReadChunk::position);
    if (chunk == chunks.end()) {
      chunks.push_back({segment.position, {}});
      chunk = std::prev(chunks.end());
    }
    if (total > max_message_bytes) {
      const auto& before = chunk->bytes.flaws();
      chunk->bytes = too_long((before.empty() ? 0 : before[0].end) + segment.target.length);
    } else {
      chunk->bytes.append(take(segment.target, call));
    }
  }
  std::ranges::sort(chunks, {}, &ReadChunk::position);
  return chunks;
}

// --- Traffic -------------------------------------------------------------------------------------

SegmentTable::Outcome SegmentTable::place(std::uint32_t handle, std::uint64_t address, Bytes bytes,
                                          std::uint64_t missing) {
  Segment* segment = find(handle, address);
  if (segment == nullptr) return {};
  return {Verdict::placed, segment, segment->place(address, bytes, missing)};
}

}  // namespace weft::capture
