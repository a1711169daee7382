// The peer's responses and other proofs, and the completions that follow from them.
#include <algorithm>

#include "base/guarded_memory.h"
#include "iwarp/requester.h"
#include "iwarp/scatter.h"

namespace weft::iwarp {

// RFC 5040 §5.2: responses come in the order of the requests, so a segment can only belong to the
// oldest outstanding read. It must name that read's sink, continue without a gap, and be the last
// exactly where the read ends.
TerminateRaised Requester::check_read_response(const Segment& segment) const {
  const auto& header = segment.tagged_header;
  if (outstanding_.empty() || outstanding_.front().atomic) {
    return wire::terminate::tagged_invalid_stag;
  }
  const Outstanding& front = outstanding_.front();
  if (front.probe) return std::nullopt;  // see discards()
  // RFC 5040 §5.2.1: the sink of an empty read is not checked.
  const bool empty = front.size_bytes == 0;
  // A response is not looked up in the table of regions. So a peer cannot write to other memory by
  // it, even if the sink has no remote rights.
  if (!empty && header.stag != front.sink_stag) return wire::terminate::tagged_invalid_stag;
  // The L flag must agree with the length that was asked for; otherwise a short answer could
  // complete a read.
  const std::uint64_t left = front.size_bytes - front.received_bytes;
  if (segment.payload_bytes > left || header.last != (segment.payload_bytes == left)) {
    return wire::terminate::tagged_bounds;
  }
  if (!empty && header.tagged_offset != front.sink_offset + front.received_bytes) {
    return wire::terminate::tagged_bounds;
  }
  return std::nullopt;
}

// The kernel's siw answers an empty read with the bytes of its previous message where the read had
// to wait. The response is a proof all the same.
bool Requester::discards(const Segment& segment) const {
  return segment.tagged && segment.opcode == wire::RdmapOpcode::read_response &&
         !outstanding_.empty() && outstanding_.front().probe;
}

TerminateRaised Requester::read_targets(const Segment& /*segment*/, std::uint32_t offset,
                                        std::uint32_t length, std::vector<iovec>& out) {
  const Outstanding& front = outstanding_.front();
  const Fault fault = map_slices(host_, queue_.slices(front.index), front.received_bytes + offset,
                                 length, true, out);
  if (fault == Fault::none) return std::nullopt;
  // Looked up again for each part: the application may have deregistered its sink while the answer
  // was on its way.
  return read_lost();
}

// Our application has withdrawn or unmapped the sink. The response cannot be placed, so the stream
// ends.
wire::TerminateCode Requester::read_lost() {
  queue_.entry(outstanding_.front().index).failure = Status::local_protection;
  failed_ = true;
  return wire::terminate::rdma_stream_catastrophic;
}

void Requester::deliver_read_response(const Segment& segment) {
  Outstanding& front = outstanding_.front();
  front.received_bytes += segment.payload_bytes;
  if (front.probe) discarded_answer_bytes_ += segment.payload_bytes;
  if (!segment.last()) return;
  // A copy: `answered()` reports completions, and pop_front() would destroy the original before.
  const Outstanding finished = front;
  outstanding_.pop_front();
  answered(finished);
}

// A response proves every message that was sent before its request (RFC 5040 §5.5).
void Requester::answered(const Outstanding& finished) {
  // The response proves that the peer has emptied its hold up to here, also where completions need
  // no proof.
  window_.prove(finished.sent_cost);
  if (finished.probe) {
    proofs_.probe_answered();
    proofs_.prove(finished.index);
  } else {
    --users_outstanding_;
    queue_.entry(finished.index).answered = true;
    // The read or atomic itself is answered as well, unlike a probe, which lies between two
    // requests.
    proofs_.prove(finished.index + 1);
  }
  retire();
}

// `messages` counts messages, requests are proven as a whole: by their last one.
void Requester::placed(std::uint64_t messages) {
  // Entries that have completed are not in the ring any more.
  std::uint64_t index = std::max(proofs_.proven(), queue_.head());
  for (; index != queue_.next(); ++index) {
    const Entry& candidate = queue_.entry(index);
    if (candidate.last_message > messages) break;
    window_.prove(candidate.sent_cost);
  }
  proofs_.prove(index);
  retire();
}

// Stores the value that the peer's memory had before the atomic. An atomic write has no place for
// it: its slice is the source.
bool Requester::store_original(std::uint64_t index, std::uint64_t value) {
  if (!fetches(queue_.entry(index).request.operation)) return true;
  std::vector<iovec> target;
  if (map_slices(host_, queue_.slices(index), 0, sizeof value, true, target) != Fault::none) {
    return false;
  }
  return guarded_store(target.front().iov_base, &value, sizeof value);
}

// RFC 7306 §5.2.2: the response carries the identifier of its request, for which we use the MSN.
TerminateRaised Requester::atomic_response(const wire::AtomicResponse& response) {
  if (outstanding_.empty() || !outstanding_.front().atomic ||
      outstanding_.front().msn != response.request_id) {
    return wire::terminate::rdma_unexpected_opcode;
  }
  const Outstanding finished = outstanding_.front();
  // Before pop_front(), since read_lost() blames the oldest outstanding request.
  if (!store_original(finished.index, response.original_value)) return read_lost();
  outstanding_.pop_front();
  answered(finished);
  return std::nullopt;
}

// Whether a request may complete successfully. Without acknowledgement "sent" means that TCP has
// taken its last byte.
bool Requester::done(std::uint64_t index) const {
  const Entry& candidate = queue_.entry(index);
  // Also a request that needs no answer must have been sent whole.
  if (!candidate.built) return false;
  if (is_local(candidate.request.operation)) return true;
  if (is_answered(candidate.request.operation)) return candidate.answered;
  if (options_.acknowledge) return proofs_.covers(index);
  return candidate.end_position <= out_.taken_position();
}

// Requests complete in the order of posting. An unsignaled one completes without a report: the next
// reported completion covers it.
void Requester::retire() {
  // Stops behind a failed request: what follows it is flushed when the stream ends.
  while (!queue_.idle() && !failed_locally_) {
    const std::uint64_t index = queue_.head();
    const Entry& oldest = queue_.entry(index);
    if (oldest.failure != Status::success) {
      failed_locally_ = true;
      complete(index, oldest.failure);
    } else if (done(index)) {
      if (oldest.request.signaled) complete(index, Status::success);
    } else {
      return;
    }
    queue_.pop();
  }
}

// Reports a completion for the entry. Requests that completed unreported since the last one are
// counted with it, so that the host can free their places.
void Requester::complete(std::uint64_t index, Status status) {
  const Entry& finished = queue_.entry(index);
  host_.complete_send({.wr_id = finished.request.wr_id,
                       .operation = finished.request.operation,
                       .status = status,
                       .signaled = finished.request.signaled,
                       .length_bytes = finished.length_bytes,
                       .covered = static_cast<std::uint32_t>(index + 1 - reported_)});
  reported_ = index + 1;
}

void Requester::flush() {
  for (; !queue_.idle(); queue_.pop()) {
    const Entry& oldest = queue_.entry(queue_.head());
    complete(queue_.head(), oldest.failure == Status::success ? Status::flushed : oldest.failure);
  }
  // Nothing may be built for requests that have completed.
  queue_.stop();
  mid_message_ = false;
  outstanding_.clear();
}

}  // namespace weft::iwarp
