// What a connection over TCP counts, and what it waits for.
#include "device/queue_pair/stream_carrier.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::device {

void CreditWait::note(bool waits, QueuePairCounters& counters) {
  if (waits == waits_) return;
  waits_ = waits;
  const std::uint64_t now_ns = sys::now_ns();
  if (waits) {
    ++counters.credit_waits;
    since_ns_ = now_ns;
  } else {
    counters.credit_wait_ns += now_ns - since_ns_;
  }
}

// A tagged segment is of a Write, and its quoted header is that of the first segment at fault. An
// atomic quotes no more than its untagged header, which names no memory.
RefusedAccess RefusedAccess::quoted(const wire::Terminate& message) {
  if (message.has_read_request) {
    const wire::ReadRequest& read = message.read_request;
    return {.stag = read.source_stag,
            .offset = read.source_offset,
            .length_bytes = read.size_bytes,
            .right = iwarp::RemoteRight::read};
  }
  if (message.ddp_header_bytes != wire::DdpTagged::header_bytes) return {};
  const auto header = wire::DdpTagged::parse(Bytes(message.ddp_header));
  if (!header) return {};
  const std::uint16_t bytes = message.ddp_segment_bytes;
  return {.stag = header->stag,
          .offset = header->tagged_offset,
          .length_bytes =
              bytes > wire::DdpTagged::header_bytes ? bytes - wire::DdpTagged::header_bytes : 0,
          .right = iwarp::RemoteRight::write};
}

void StreamCarrier::note_peer_access(const iwarp::PeerAccess& access) {
  QueuePairCounters& counters = parts_.completions.counters();
  Traffic& traffic = access.right == iwarp::RemoteRight::read     ? counters.peer_reads
                     : access.right == iwarp::RemoteRight::atomic ? counters.peer_atomics
                                                                  : counters.peer_writes;
  traffic.bytes += access.bytes;
  if (access.last) ++traffic.operations;
  parts_.memory.count(access);
}

Carrier::Waits StreamCarrier::waits() const {
  if (connection_.ended()) return {};
  return {.room = writing_,
          .credits = connection_.awaits_credit(),
          .receive = connection_.message_waits()};
}

// Waits for room begin and end rarely, so `weft top` learns of them here.
void StreamCarrier::note_room(bool waits) {
  if (parts_.observation) parts_.observation->watch.waits(QueuePairTrace::Wait::room, waits);
}

}  // namespace weft::device
