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

void PathFindings::on_close(ConnectionId connection) {
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
  for (const Connection& connection : connections_) on_close(connection.id);
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
