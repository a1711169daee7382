#include <algorithm>

#include "capture/report/report.h"

namespace weft::capture {
namespace {

// Returns whether a chunk list of the message has a segment with this handle.
bool names(const RpcMessage& message, std::uint32_t key) {
  const auto is_it = [key](const wire::RdmaSegment& segment) { return segment.handle == key; };
  const auto has_it = [&](const Chunk& chunk) { return std::ranges::any_of(chunk, is_it); };
  const ChunkLists& lists = message.lists;
  return std::ranges::any_of(lists.reads, is_it, &wire::ReadSegment::target) ||
         std::ranges::any_of(lists.writes, has_it) || (lists.reply && has_it(*lists.reply));
}

}  // namespace

// InfiniBand connections have queue pair numbers; for iWARP the number is a TCP port.
bool Selection::takes(const Connection& candidate) const {
  if (connection && shown_number(candidate.id) != *connection) return false;
  if (!queue_pair) return true;
  return candidate.transport != Transport::iwarp &&
         (candidate.a.number == *queue_pair || candidate.b.number == *queue_pair);
}

// Returns whether any part of the connection's life overlaps the time range.
bool Selection::overlaps(const Connection& candidate, const Analysis& analysis) const {
  const std::int64_t origin_ns = analysis.totals().first_ns;
  return (!from_ns || candidate.last.time_ns - origin_ns >= *from_ns) &&
         (!to_ns || candidate.first.time_ns - origin_ns <= *to_ns);
}

bool Selection::shows(const Connection& candidate, const Analysis& analysis) const {
  if (!takes(candidate) || !overlaps(candidate, analysis)) return false;
  return !filter || with_selected.contains(candidate.id) ||
         filter->takes({.connection = &candidate, .origin_ns = analysis.totals().first_ns});
}

bool Selection::takes_whole(const Connection& candidate, const Analysis& analysis) const {
  if (kind || key || xid || !takes(candidate) || !overlaps(candidate, analysis)) return false;
  return !filter ||
         filter->takes({.connection = &candidate, .origin_ns = analysis.totals().first_ns});
}

bool Selection::takes_time(std::int64_t time_ns, const Analysis& analysis) const {
  const std::int64_t since_ns = time_ns - analysis.totals().first_ns;
  return (!from_ns || since_ns >= *from_ns) && (!to_ns || since_ns <= *to_ns);
}

bool Selection::takes(const Rpc& rpc, const Analysis& analysis) const {
  if (xid && rpc.xid != *xid) return false;
  if (key && !(rpc.call && names(*rpc.call, *key)) && !(rpc.reply && names(*rpc.reply, *key))) {
    return false;
  }
  // The call may not have been captured, but one of the two messages always is there.
  const RpcMessage& first = rpc.call ? *rpc.call : *rpc.reply;
  if (!takes_time(first.first.time_ns, analysis)) return false;
  if (!connection && !queue_pair && !filter) return true;
  const Connection& its = analysis.connections()[rpc.connection];
  return takes(its) && (!filter || filter->takes({.connection = &its,
                                                  .rpc = &rpc,
                                                  .origin_ns = analysis.totals().first_ns}));
}

bool Selection::takes(const StorageCommand& command, const Analysis& analysis) const {
  if (xid || (key && std::ranges::find(command.keys, *key) == command.keys.end())) return false;
  if (!takes_time(first_stamp(command).time_ns, analysis)) return false;
  if (!connection && !queue_pair && !filter) return true;
  const Connection& its = analysis.connections()[command.connection];
  return takes(its) && (!filter || filter->takes({.connection = &its,
                                                  .command = &command,
                                                  .origin_ns = analysis.totals().first_ns}));
}

// A management datagram belongs to a connection if it was sent between its hosts while it was open.
bool Selection::takes(const ManagementDatagram& datagram, const Analysis& analysis) const {
  if (xid || key || kind || queue_pair || !takes_time(datagram.stamp.time_ns, analysis)) {
    return false;
  }
  if (connection) {
    const Connection* const its = analysis.connections().find(*connection - 1);
    if (its == nullptr) return false;
    const bool forwards =
        its->a.address == datagram.source && its->b.address == datagram.destination;
    const bool backwards =
        its->b.address == datagram.source && its->a.address == datagram.destination;
    const bool open = its->end == Connection::End::open || its->end == Connection::End::half_open;
    if ((!forwards && !backwards) || datagram.stamp.frame < its->first.frame) return false;
    if (!open && datagram.stamp.frame > its->last.frame) return false;
  }
  return !filter ||
         filter->takes({.management = &datagram, .origin_ns = analysis.totals().first_ns});
}

// A finding matches if it has the key or XID, and one of its frames is in the time range.
bool Selection::takes(const Finding& finding, const Analysis& analysis) const {
  if (xid && finding.xid != *xid) return false;
  if (key && std::ranges::find(finding.keys, *key) == finding.keys.end()) return false;
  const bool then = std::ranges::any_of(
      finding.stamps, [&](const Stamp& stamp) { return takes_time(stamp.time_ns, analysis); });
  if ((from_ns || to_ns) && !then) return false;
  if (!connection && !queue_pair && !filter) return true;
  const Connection& its = analysis.connections()[finding.connection];
  return takes(its) && (!filter || filter->takes({.connection = &its,
                                                  .finding = &finding,
                                                  .origin_ns = analysis.totals().first_ns}));
}

bool Selection::takes(const Operation& operation, const Analysis& analysis) const {
  return takes_but_filter(operation, analysis) &&
         (!filter || filter->takes({.connection = &analysis.connections()[operation.connection],
                                    .operation = &operation,
                                    .origin_ns = analysis.totals().first_ns}));
}

bool Selection::takes_message(const Operation& message, const Analysis& analysis) const {
  return takes_but_filter(message, analysis) &&
         (!filter || filter->takes({.connection = &analysis.connections()[message.connection],
                                    .operation = &message,
                                    .origin_ns = analysis.totals().first_ns,
                                    .message = true}));
}

bool Selection::takes_but_filter(const Operation& operation, const Analysis& analysis) const {
  if (kind && operation.kind != *kind) return false;
  if (key && operation.key != *key && operation.invalidated_key != *key) return false;
  if (!takes_time(operation.start.time_ns, analysis)) return false;
  if (!connection && !queue_pair) return true;
  return takes(analysis.connections()[operation.connection]);
}

}  // namespace weft::capture
