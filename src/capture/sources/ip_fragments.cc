#include "capture/sources/ip_fragments.h"

#include <algorithm>
#include <cstring>

namespace weft::capture {

// The ranges are merged when they touch, so a whole datagram has exactly one.
bool IpFragments::Partial::whole() const {
  return end_known && have.size() == 1 && have[0].begin == 0 && have[0].end >= end;
}

// Adds a fragment; the last missing one completes its datagram, which moves to complete_.
const IpFragments::Datagram* IpFragments::add(const IpFragment& fragment) {
  expire(fragment.time_ns);
  const std::uint64_t end = fragment.offset_bytes + std::uint64_t{fragment.payload.size()};
  if (end > limits_.datagram_bytes) {
    ++dropped_;
    return nullptr;
  }
  const auto partial = find(fragment);
  place(*partial, fragment);
  if (!partial->whole()) return nullptr;
  complete_ = std::move(partial->datagram);
  // A damaged fragment may lie behind the end that the last one announces.
  complete_.payload.resize(partial->end);
  partial_.erase(partial);
  return &complete_;
}

// Returns the incomplete datagram that the fragment belongs to, or begins it. Fragments of IPv6
// need not name the same protocol: only that of the first one counts (RFC 8200 §4.5).
std::list<IpFragments::Partial>::iterator IpFragments::find(const IpFragment& fragment) {
  const bool is_ipv6 = fragment.source.kind == HostAddress::Kind::ipv6;
  const auto found = std::ranges::find_if(partial_, [&](const Partial& partial) {
    return partial.id == fragment.id && partial.source == fragment.source &&
           partial.destination == fragment.destination &&
           (is_ipv6 || partial.datagram.protocol == fragment.protocol);
  });
  if (found != partial_.end()) return found;
  // This bounds the memory: the datagram that began first makes room.
  if (partial_.size() == limits_.datagrams) {
    partial_.pop_front();
    ++dropped_;
  }
  Partial& fresh = partial_.emplace_back();
  fresh.source = fragment.source;
  fresh.destination = fragment.destination;
  fresh.id = fragment.id;
  fresh.datagram.protocol = fragment.protocol;
  fresh.begun_ns = fragment.time_ns;
  return std::prev(partial_.end());
}

// The list is sorted by the time of the first fragment, so the test stops at the first one that is
// young enough.
void IpFragments::expire(std::int64_t now_ns) {
  while (!partial_.empty() && now_ns - partial_.front().begun_ns > limits_.lifetime_ns) {
    partial_.pop_front();
    ++dropped_;
  }
}

// Stores the payload of a fragment, and merges its range with those that are stored.
void IpFragments::place(Partial& partial, const IpFragment& fragment) {
  const std::uint32_t begin = fragment.offset_bytes;
  const auto end = static_cast<std::uint32_t>(begin + fragment.payload.size());
  auto& payload = partial.datagram.payload;
  // The gaps are zeros until their fragments come, and whole() is false as long as there is one.
  if (payload.size() < end) payload.resize(end);
  if (begin < end) std::memcpy(&payload[begin], fragment.payload.data(), end - begin);
  // Only the first fragment has the headers of the original packet that reassembly keeps (RFC 8200
  // §4.5).
  if (begin == 0) {
    partial.datagram.headers.assign(fragment.headers.begin(), fragment.headers.end());
    partial.datagram.protocol = fragment.protocol;
  }
  if (!fragment.more) {
    partial.end_known = true;
    partial.end = end;
  }
  // Merges all ranges that overlap or touch the new one.
  Range merged{begin, end};
  std::erase_if(partial.have, [&](const Range& range) {
    if (range.end < merged.begin || range.begin > merged.end) return false;
    merged = {std::min(range.begin, merged.begin), std::max(range.end, merged.end)};
    return true;
  });
  const auto at = std::ranges::find_if(
      partial.have, [&](const Range& range) { return range.begin > merged.begin; });
  partial.have.insert(at, merged);
}

}  // namespace weft::capture
