#include "capture/findings/congestion_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "capture/text/units.h"

namespace weft::capture {

// A marked packet is on its way to the receiver; a notification comes from there.
void CongestionFindings::on_congestion(const Origin& origin, Congestion congestion) {
  const Connection& connection = connections_[origin.connection];
  const bool marked = congestion == Congestion::marked;
  const Side sender = marked ? origin.side : other(origin.side);
  const HostAddress& receiver = connection.endpoint(other(sender)).address;
  auto known = ports_.find(receiver);
  if (known == ports_.end()) {
    if (ports_.size() == most_hosts) return;
    known = ports_.emplace(receiver, Port{}).first;
    known->second.first = origin.stamp;
  }
  Port& port = known->second;
  ++(marked ? port.marked : port.notified);
  if (port.senders.size() < most_of_a_host) {
    port.senders.insert(connection.endpoint(sender).address);
  }
  if (port.connections.size() < most_of_a_host) {
    port.connections.emplace(origin.connection, origin.stamp);
  }
}

// The finding needs a connection, so it comes before the last one is forgotten.
void CongestionFindings::on_close(ConnectionId connection) {
  for (auto one = ports_.begin(); one != ports_.end();) {
    auto& connections = one->second.connections;
    if (connections.size() == 1 && connections.contains(connection)) {
      report(*one);
      one = ports_.erase(one);
    } else {
      connections.erase(connection);
      ++one;
    }
  }
}

void CongestionFindings::finish() {
  for (const auto& port : ports_) report(port);
  ports_.clear();
}

void CongestionFindings::report_so_far(FindingSink& sink) {
  FindingSink* const own = std::exchange(sink_, &sink);
  for (const auto& port : ports_) report(port);
  sink_ = own;
}

std::vector<const CongestionFindings::Ports::value_type*> CongestionFindings::spread_from(
    const Ports::value_type& port) const {
  std::vector<const Ports::value_type*> found;
  for (const auto& other : ports_) {
    if (other.first == port.first || other.second.first.frame <= port.second.first.frame) continue;
    const bool shared = std::ranges::any_of(other.second.senders, [&](const HostAddress& sender) {
      return port.second.senders.contains(sender);
    });
    if (shared) found.push_back(&other);
  }
  std::ranges::sort(found, {}, [](const auto* one) { return one->second.first.frame; });
  return found;
}

// With a single sender the congestion may be anywhere on its way.
void CongestionFindings::report(const Ports::value_type& at) {
  const auto& [receiver, port] = at;
  if (port.senders.size() < 2 || port.connections.empty()) return;
  const std::string met =
      port.marked > 0
          ? fmt::format("{} from {} hosts to {} met congestion", count_text(port.marked, "packet"),
                        port.senders.size(), to_string(receiver))
          : fmt::format("{} went from {} to {} hosts that send to it",
                        count_text(port.notified, "congestion notification"), to_string(receiver),
                        port.senders.size());
  std::string sentence =
      fmt::format("{}, from frame {} on: their paths meet at the port towards that host.", met,
                  port.first.frame);
  std::vector<Stamp> stamps;
  for (const auto& [connection, stamp] : port.connections) stamps.push_back(stamp);
  const auto spread = spread_from(at);
  if (!spread.empty()) {
    constexpr std::size_t shown = 4;
    sentence += " It spread: what the same hosts sent to ";
    for (std::size_t one = 0; one < std::min(spread.size(), shown); ++one) {
      sentence += fmt::format("{}{} (frame {})", one == 0 ? "" : ", ",
                              to_string(spread[one]->first), spread[one]->second.first.frame);
      stamps.push_back(spread[one]->second.first);
    }
    if (spread.size() > shown) sentence += fmt::format(" and {} more", spread.size() - shown);
    sentence += " met congestion later.";
  }
  std::ranges::sort(stamps, {}, &Stamp::frame);
  stamps.erase(
      std::unique(stamps.begin(), stamps.end(),
                  [](const Stamp& one, const Stamp& other) { return one.frame == other.frame; }),
      stamps.end());
  if (stamps.size() > max_frames) stamps.resize(max_frames);
  sink_->on_finding(
      {finding::congested_port, port.connections.begin()->first, std::move(sentence), stamps});
}

}  // namespace weft::capture
