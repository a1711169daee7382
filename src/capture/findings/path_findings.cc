#include "capture/findings/path_findings.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "capture/text/units.h"

namespace weft::capture {
namespace {

// Returns "the hop limit changed from 64 to 62".
std::string change_text(const PathChange& change) {
  const char* what = change.kind == PathChange::Kind::hop_limit
                         ? "the hop limit"
                         : "the UDP source port, by which switches choose a path,";
  return fmt::format("{} changed from {} to {}", what, change.before, change.after);
}

}  // namespace

PathFindings::Pair& PathFindings::pair(ConnectionId connection) {
  if (Pair* known = pairs_.find(connection)) return *known;
  Pair& made = pairs_.get(connection);
  made.iwarp = connections_[connection].transport == Transport::iwarp;
  return made;
}

void PathFindings::on_path_change(const Origin& origin, const PathChange& change) {
  Half& sender = pair(origin.connection).halves[origin.side == Side::a ? 0 : 1];
  sender.paths.add(change, origin.stamp);
}

// A sender divides its messages by the size that TCP has for segments (RFC 5044 §5.1). The path MTU
// of InfiniBand cannot change in a connection: a packet of another size is a violation.
void PathFindings::note(const Origin& origin, std::uint64_t bytes, std::size_t kind) {
  Pair& both = pair(origin.connection);
  if (!both.iwarp) return;
  Half& sender = both.halves[origin.side == Side::a ? 0 : 1];
  if (const auto before = sender.sizes[kind].see(bytes)) {
    sender.mtus.add({*before, bytes}, origin.stamp);
  }
}

// The path MTU of InfiniBand is one of both queue pairs, so a smaller one of a later connection
// shows that the port or the path has another MTU now, or that a program asked for it. Each value
// is reported once, because programs with different requests may alternate.
void PathFindings::compare_mtu(const Connection& connection) {
  const bool has_path =
      connection.transport != Transport::iwarp && connection.transport != Transport::ud;
  if (!has_path || connection.mtu_bytes == 0) return;
  Hosts hosts{connection.a.address, connection.b.address};
  if (hosts.second < hosts.first) std::swap(hosts.first, hosts.second);
  if (mtus_.size() >= max_host_pairs && !mtus_.contains(hosts)) return;
  KnownMtu& known = mtus_[hosts];
  const KnownMtu before = known;
  if (known.bytes != 0 && connection.first.time_ns < known.first.time_ns) return;
  known.bytes = connection.mtu_bytes;
  known.first = connection.first;
  const bool reported =
      before.smallest_reported != 0 && connection.mtu_bytes >= before.smallest_reported;
  if (before.bytes <= connection.mtu_bytes || reported) return;
  known.smallest_reported = connection.mtu_bytes;
  Finding finding{finding::mtu_change,
                  connection.id,
                  fmt::format("The path MTU of this connection is {}. That of an earlier one "
                              "between the same hosts, which begins in frame {}, was {}.",
                              count_text(connection.mtu_bytes, "byte"), before.first.frame,
                              count_text(before.bytes, "byte")),
                  {before.first, connection.first}};
  finding.severity = Severity::note;
  sink_->on_finding(finding);
}

void PathFindings::on_close(ConnectionId connection) {
  compare_mtu(connections_[connection]);
  const Pair* const known = pairs_.find(connection);
  if (known == nullptr) return;
  report(connections_[connection], Side::a, known->halves[0]);
  report(connections_[connection], Side::b, known->halves[1]);
}

void PathFindings::finish() {
  for (const Connection& connection : connections_) on_close(connection.id);
  pairs_.clear();
}

void PathFindings::report_so_far(FindingSink& sink) {
  FindingSink* const own = std::exchange(sink_, &sink);
  const std::map<Hosts, KnownMtu> mtus = mtus_;
  for (const Connection& connection : connections_) on_close(connection.id);
  mtus_ = mtus;
  sink_ = own;
}

void PathFindings::report(const Connection& connection, Side side, const Half& half) {
  const std::string name = endpoint_text(connection, side);
  const auto times = [](std::uint64_t count) {
    return count == 1 ? std::string() : fmt::format(" {}, the first time", times_text(count));
  };
  if (half.paths.count > 0) {
    sink_->on_finding({finding::path_change, connection.id,
                       fmt::format("Packets from {} took another path{}: {}.", name,
                                   times(half.paths.count), change_text(half.paths.first)),
                       half.paths.stamps});
  }
  if (half.mtus.count > 0) {
    const Sizes& sizes = half.mtus.first;
    Finding finding{
        finding::mtu_change, connection.id,
        fmt::format("{} changed the size of its segments{}: they have {} of payload, and had {} "
                    "before. The MTU of the path or the MSS of TCP has changed.",
                    name, times(half.mtus.count), bytes_text(sizes.after),
                    bytes_text(sizes.before)),
        half.mtus.stamps};
    if (sizes.after > sizes.before) finding.severity = Severity::note;
    sink_->on_finding(finding);
  }
}

}  // namespace weft::capture
