#include "device/connect/half_open.h"

#include <algorithm>

#include "device/addresses.h"
#include "device/connect/inbound_handshake.h"
#include "device/limits.h"
#include "device/system.h"

namespace weft::device {

// Entries are in the order of arrival, so the oldest one is found from the front.
void HalfOpen::add(const std::shared_ptr<InboundHandshake>& inbound, const sockaddr_storage& peer,
                   std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const Source source = source_of(peer);
  ++counts_[source];
  entries_.push_back(
      {.inbound = inbound, .key = inbound.get(), .source = source, .since_ns = now_ns});
  places_[inbound.get()] = std::prev(entries_.end());
}

void HalfOpen::remove(const InboundHandshake& inbound) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(&inbound);
  if (place == places_.end()) return;
  const auto count = counts_.find(place->second->source);
  if (--count->second == 0) counts_.erase(count);
  entries_.erase(place->second);
  places_.erase(place);
}

bool HalfOpen::full() {
  const std::lock_guard lock(mutex_);
  return is_too_many(entries_.size(), 1);
}

// Half of all places: one address can never fill the list alone.
bool HalfOpen::crowded(const sockaddr_storage& peer) {
  const std::lock_guard lock(mutex_);
  const auto count = counts_.find(source_of(peer));
  return count != counts_.end() && is_too_many(count->second, 2);
}

// For a share of 1 / `part` of all places. The limit on descriptors is asked each time it counts,
// because a program may change it.
bool HalfOpen::is_too_many(std::size_t count, std::size_t part) const {
  if (count < limits::least_half_open / part) return false;
  return count >= std::min(most_, sys::descriptor_limit() / limits::half_open_share) / part;
}

// The caller evicts it without this lock: the handshake takes its own, and removes itself from
// here.
std::shared_ptr<InboundHandshake> HalfOpen::oldest(std::uint64_t before_ns) {
  return find([before_ns](const Entry& entry) { return entry.since_ns < before_ns; });
}

std::shared_ptr<InboundHandshake> HalfOpen::oldest_from(const sockaddr_storage& peer) {
  return find([source = source_of(peer)](const Entry& entry) { return entry.source == source; });
}

template <typename Matches>
std::shared_ptr<InboundHandshake> HalfOpen::find(Matches matches) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<InboundHandshake> first;
  for (const Entry& entry : entries_) {
    if (!matches(entry)) continue;
    auto inbound = entry.inbound.lock();
    if (!inbound) continue;  // on its way out
    // A connection that has sent something is probably a slow client, so silent ones go first.
    if (inbound->silent()) return inbound;
    if (!first) first = std::move(inbound);
  }
  return first;
}

HalfOpen::Source HalfOpen::source_of(const sockaddr_storage& peer) {
  // An IPv6 source counts by its /64 prefix, because one host usually has all addresses of that.
  const ibv_gid gid = gid_of(peer);
  Source source{};
  // Of an IPv4 address, which stands at the end of its GID, the last eight bytes.
  const bool mapped = std::all_of(gid.raw, gid.raw + 8, [](auto byte) { return byte == 0; });
  std::copy_n(gid.raw + (mapped ? 8 : 0), source.size(), source.begin());
  return source;
}

}  // namespace weft::device
