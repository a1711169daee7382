// The part of SegmentTable that takes single packets: by PSN on InfiniBand, by sink on iWARP.
#include <algorithm>
#include <iterator>

#include "weft/capture/segment_table.hpp"

namespace weft::capture {
namespace {

// Limit on the sub-segments of one segment, and on the requests of one sink. A segment of 1 MiB
// that is read in pieces of 4 KiB has 256. Above the limit the oldest are removed.
constexpr std::size_t max_remembered = 4096;
// PSNs have 24 bits: a distance from here on means that the packet lies before.
constexpr std::uint32_t half_of_psns = 1U << 23;

// These are the path MTUs of InfiniBand.
bool is_mtu(std::uint64_t bytes) {
  return bytes == 256 || bytes == 512 || bytes == 1024 || bytes == 2048 || bytes == 4096;
}

using Place = IbFragment::Place;

// Returns the offset of the fragment in the sub-segment; nothing if it cannot belong to it.
std::optional<std::uint64_t> offset_in(SubSegment& sub, const IbFragment& fragment) {
  const std::uint64_t distance = sub.distance(fragment.psn);
  const std::uint64_t size = fragment.bytes.size();
  if (size > sub.length()) return {};
  if (fragment.place == Place::only) {
    return distance == 0 && size == sub.length() ? std::optional<std::uint64_t>(0) : std::nullopt;
  }
  if (fragment.place == Place::last) {
    // A last packet ends where the sub-segment ends, so its distance must be a multiple of an MTU.
    const std::uint64_t offset = sub.length() - size;
    if (distance == 0 || offset % distance != 0 || !is_mtu(offset / distance)) return {};
    const std::uint64_t mtu = offset / distance;
    if (size == 0 || size > mtu || (sub.mtu_bytes() != 0 && sub.mtu_bytes() != mtu)) return {};
    return offset;
  }
  // First and middle packets have a full MTU of payload, so the first one that is seen reveals it.
  const std::uint64_t mtu = sub.mtu_bytes() == 0 ? size : sub.mtu_bytes();
  if (size != mtu || size == 0 || (distance == 0) != (fragment.place == Place::first)) return {};
  if (distance >= (sub.length() + mtu - 1) / mtu || (distance + 1) * mtu >= sub.length()) return {};
  sub.learn_mtu(mtu);
  return distance * mtu;
}

// Returns the sub-segment that the fragment opens: a new one, or the same one for a retransmission.
SubSegment& sub_segment_of(Segment& segment, const IbFragment& fragment) {
  auto& subs = segment.sub_segments();
  const auto same = std::ranges::find_if(subs, [&](const SubSegment& sub) {
    return sub.first_psn() == fragment.psn && sub.read() == fragment.read &&
           sub.address() == fragment.reth->address;
  });
  if (same != subs.end()) return *same;
  if (subs.size() == max_remembered) subs.erase(subs.begin());
  return subs.emplace_back(fragment.psn, fragment.reth->address, fragment.reth->length,
                           fragment.read);
}

}  // namespace

SegmentTable::Outcome SegmentTable::add_ib_fragment(const IbFragment& fragment) {
  return fragment.reth ? open_sub_segment(fragment) : place_by_psn(fragment);
}

// A packet with a RETH names the segment by handle and address.
SegmentTable::Outcome SegmentTable::open_sub_segment(const IbFragment& fragment) {
  Segment* segment = find(fragment.reth->key, fragment.reth->address);
  if (segment == nullptr) return {};
  SubSegment& sub = sub_segment_of(*segment, fragment);
  // A Read request has no payload; its responses are placed by their PSNs later.
  if (fragment.read) return {Verdict::placed, segment, {}};
  // The offset itself is not needed: a packet with a RETH begins the sub-segment.
  if (!offset_in(sub, fragment)) return {Verdict::wrong_length, segment, {}};
  return {Verdict::placed, segment, segment->place(sub.address(), fragment.bytes)};
}

// PSNs of the requests of one side never overlap, so the fragment can only belong to the
// sub-segment with the nearest first PSN before it.
SegmentTable::Outcome SegmentTable::place_by_psn(const IbFragment& fragment) {
  Segment* owner = nullptr;
  SubSegment* nearest = nullptr;
  for (Segment& segment : segments_) {
    for (SubSegment& sub : segment.sub_segments()) {
      const auto distance = sub.distance(fragment.psn);
      if (sub.read() != fragment.read || distance >= half_of_psns) continue;
      if (nearest != nullptr && distance > nearest->distance(fragment.psn)) continue;
      nearest = &sub;
      owner = &segment;
    }
  }
  if (nearest == nullptr) return {Verdict::no_sub_segment, nullptr, {}};
  const auto packets = nearest->packets();
  if (packets != 0 && nearest->distance(fragment.psn) >= packets) {
    return {Verdict::no_sub_segment, nullptr, {}};
  }
  const auto offset = offset_in(*nearest, fragment);
  if (!offset) return {Verdict::wrong_length, owner, {}};
  return {Verdict::placed, owner, owner->place(nearest->address() + *offset, fragment.bytes)};
}

bool SegmentTable::add_iwarp_request(const wire::ReadRequest& request) {
  const Segment* segment = find(request.source_stag, request.source_offset);
  if (segment == nullptr) return false;
  auto& requests = requests_[request.sink_stag];
  if (requests.size() == max_remembered) requests.pop_front();
  requests.push_back({ReadMapping(request), segment});
  return true;
}

// Requests are answered in order (RFC 5040 §5.2.2). If a sink is used again while responses to its
// earlier use are missing, its data belongs to the newer request as soon as the older one is closed
// or filled.
SegmentTable::Request* SegmentTable::choose(const IwarpFragment& fragment) {
  const auto sink = requests_.find(fragment.stag);
  if (sink == requests_.end()) return nullptr;
  Request* late = nullptr;
  for (Request& request : sink->second) {
    if (!request.mapping.contains(fragment.offset)) continue;
    const auto source = request.mapping.source_of(fragment.offset);
    const bool filled = request.segment->holds(source, fragment.bytes.size());
    if (!request.closed && !filled) return &request;
    if (!filled || late == nullptr) late = &request;
  }
  return late;
}

// A fragment of a later request shows that the earlier ones are complete.
SegmentTable::Outcome SegmentTable::add_iwarp_fragment(const IwarpFragment& fragment) {
  if (!fragment.read) return place(fragment.stag, fragment.offset, fragment.bytes);
  Request* chosen = choose(fragment);
  if (chosen == nullptr) return {Verdict::no_request, nullptr, {}};
  if (fragment.last) chosen->closed = true;
  for (Request& request : requests_[fragment.stag]) {
    if (&request == chosen) break;
    request.closed = true;
  }
  return place(chosen->mapping.request().source_stag, chosen->mapping.source_of(fragment.offset),
               fragment.bytes);
}

std::optional<std::uint64_t> SegmentTable::source_of(std::uint32_t sink_stag,
                                                     std::uint64_t sink_offset) {
  Request* chosen = choose({.stag = sink_stag, .offset = sink_offset, .read = true, .bytes = {}});
  if (chosen == nullptr) return {};
  return chosen->mapping.source_of(sink_offset);
}

}  // namespace weft::capture
