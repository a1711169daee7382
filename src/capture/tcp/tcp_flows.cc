#include "weft/capture/tcp_flows.hpp"

#include <iterator>
#include <utility>

#include "capture/tcp/tcp_flow.h"

namespace weft::capture {

TcpFlows::TcpFlows(const Limits& limits, MakeReader make_reader, LooksNew looks_new)
    : limits_(limits),
      budget_(limits.held_bytes),
      make_reader_(std::move(make_reader)),
      looks_new_(looks_new) {}

TcpFlows::~TcpFlows() = default;

// The constant is 2^64 divided by the golden ratio. The product spreads the ports, which often
// differ in a few low bits only.
std::size_t TcpFlows::KeyHash::operator()(const Key& key) const {
  const std::uint64_t ports = std::uint64_t{key.low_port} << 16 | key.high_port;
  return key.low.hash() * 31 + key.high.hash() +
         static_cast<std::size_t>(ports * 0x9E3779B97F4A7C15U >> 16);
}

TcpFlows::Key TcpFlows::key_of(const TcpSegment& segment) {
  return key_of({segment.source, segment.destination, segment.header.source_port,
                 segment.header.destination_port});
}

// Both directions of a connection have the same key, because its ends are ordered.
TcpFlows::Key TcpFlows::key_of(const TcpEndpoints& ends) {
  if (std::pair(ends.address_a, ends.port_a) < std::pair(ends.address_b, ends.port_b)) {
    return {ends.address_a, ends.address_b, ends.port_a, ends.port_b};
  }
  return {ends.address_b, ends.address_a, ends.port_b, ends.port_a};
}

TcpFlows::Entries::iterator TcpFlows::find(const Key& key) {
  // In bulk traffic most segments belong to the same connection as the one before.
  if (!entries_.empty() && entries_.front().key == key) return entries_.begin();
  const auto found = index_.find(key);
  if (found == index_.end()) return entries_.end();
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.begin();
}

std::unique_ptr<TcpFlows::Flow> TcpFlows::make_flow(const TcpSegment& segment) {
  ++connections_;
  return std::make_unique<Flow>(*this, budget_, segment);
}

// Finds or creates the connection of a segment. If a new connection uses the ports, the old one is
// finished first.
void TcpFlows::on_segment(const TcpSegment& segment) {
  now_ = segment.stamp;
  const Key key = key_of(segment);
  auto entry = find(key);
  if (entry == entries_.end()) {
    // This bounds the memory: the connection that was used least recently makes room.
    if (entries_.size() == limits_.flows) {
      forget(std::prev(entries_.end()));
      ++forgotten_;
    }
    entries_.push_front({key, make_flow(segment)});
    entry = entries_.begin();
    index_.emplace(key, entry);
  } else if (entry->flow->succeeded_by(segment)) {
    entry->flow->finish(segment.stamp);
    entry->flow = make_flow(segment);
  }
  entry->flow->on_segment(segment);
}

// The key is a part of the entry, so the index is cleared while the entry still exists.
void TcpFlows::forget(Entries::iterator entry) {
  entry->flow->finish(now_);
  index_.erase(entry->key);
  entries_.erase(entry);
}

void TcpFlows::forget(const TcpEndpoints& endpoints) {
  const auto found = index_.find(key_of(endpoints));
  if (found != index_.end()) forget(found->second);
}

void TcpFlows::finish() {
  // Least recently used first.
  while (!entries_.empty()) forget(std::prev(entries_.end()));
}

}  // namespace weft::capture
