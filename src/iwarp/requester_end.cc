// How the requests still under way complete when the stream ends.
#include "iwarp/requester.h"

namespace weft::iwarp {
namespace {

using wire::Terminate;

// The length of the quoted header distinguishes the two kinds: 14 and 18 bytes (RFC 5041 §4).
bool quotes_tagged(const Terminate& message) {
  return message.ddp_header_bytes == wire::DdpTagged::header_bytes;
}

bool quotes_untagged(const Terminate& message) {
  return message.ddp_header_bytes == wire::DdpUntagged::header_bytes;
}

std::uint32_t quoted_queue(const Terminate& message) {
  const auto header = wire::DdpUntagged::parse(Bytes(message.ddp_header));
  return header ? header->queue : UINT32_MAX;
}

// The status of the request at fault. Layers 0 and 1 with type 1 are RDMAP's and DDP's protection
// errors (RFC 5040 §4.8, RFC 5041 §7). A message of queue 0 without a buffer found no receive,
// which on InfiniBand ends as exhausted RNR retries; on queue 1 the peer's IRD was exceeded.
Status status_of(const Terminate& message) {
  const auto& code = message.code;
  if (code.layer <= 1 && code.type == 1) return Status::remote_access;
  // The second one: there is no shared receive queue of the number that the request names (XRC).
  if (code == wire::terminate::untagged_too_long ||
      code == wire::terminate::untagged_invalid_queue) {
    return Status::remote_invalid_request;
  }
  if (code == wire::terminate::untagged_no_buffer) {
    return quoted_queue(message) == wire::queue::send ? Status::rnr_retry_exceeded
                                                      : Status::remote_invalid_request;
  }
  return Status::remote_operation;
}

// Whether a tagged header that a Terminate quotes belongs to this request. A Write carries no
// sequence number, so any segment of it matches.
bool blamed_by_tagged(const SendQueue::Entry& entry, const Terminate& message) {
  const StoredRequest& request = entry.request;
  const bool write =
      request.operation == Operation::write || request.operation == Operation::write_immediate;
  const auto header = wire::DdpTagged::parse(Bytes(message.ddp_header));
  // It may also quote one of our Read Responses, which is no request's fault.
  if (!write || !header || header->stag != request.rkey ||
      wire::rdmap_opcode(header->rdmap_control) != wire::RdmapOpcode::write) {
    return false;
  }
  // Unsigned: an offset before the request's target becomes large and does not match. An empty
  // Write matches by its address alone.
  const std::uint64_t offset = header->tagged_offset - request.remote_address;
  return offset == 0 || offset < entry.length_bytes;
}

// The same for an untagged header: MSN and queue name the message. A Send with immediate has two
// messages, the announcement and the Send.
bool blamed_by_untagged(const SendQueue::Entry& entry, const Terminate& message) {
  const Operation operation = entry.request.operation;
  const auto header = wire::DdpUntagged::parse(Bytes(message.ddp_header));
  if (!header) return false;
  const bool announced = operation == Operation::send_immediate;
  // MSNs are counted for each queue, so the queue is compared as well, below.
  if (entry.msn != header->msn && !(announced && entry.msn - 1 == header->msn)) return false;
  // It has sent no message, so its msn means nothing.
  if (is_local(operation)) return false;
  const bool answered = is_answered(operation);
  if (header->queue == wire::queue::request) return answered;
  return header->queue == wire::queue::send && !answered && operation != Operation::write;
}

bool blamed(const SendQueue::Entry& entry, const Terminate& message) {
  const StoredRequest& request = entry.request;
  if (message.has_read_request) {
    // More reliable than the DDP header before it, since the kernel's siw overwrites the MSN there.
    const wire::ReadRequest& read = message.read_request;
    return request.operation == Operation::read && !entry.answered &&
           read.source_stag == request.rkey && read.source_offset == request.remote_address;
  }
  if (quotes_tagged(message)) return blamed_by_tagged(entry, message);
  return quotes_untagged(message) && blamed_by_untagged(entry, message);
}

}  // namespace

// The index of the request at fault; tail() where the fault is in none of our requests. The count
// of executed messages, where the peer reported it, decides; otherwise the header that the
// Terminate quotes (RFC 5040 §4.8). The peer also knows a request that is partly built, or that
// has asked for a grant or named its receive queue.
std::uint64_t Requester::find_guilty(const Terminate& message,
                                     std::optional<std::uint64_t> executed) const {
  const bool known = mid_message_ || queue_named_ || window_.awaits_grant();
  const std::uint64_t started = queue_.next() + (known ? 1 : 0);
  for (std::uint64_t index = queue_.head(); index != started; ++index) {
    const Entry& candidate = queue_.entry(index);
    if (executed) {
      // The first request that the peer did not carry out whole. The count needs no header, so it
      // is exact even for equal Writes.
      if (!candidate.built || candidate.last_message > *executed) return index;
    } else if (!proofs_.covers(index) && blamed(candidate, message)) {
      // A proven request succeeded, so it cannot be at fault, even if a later one looks the same.
      return index;
    }
  }
  return queue_.tail();
}

// The peer carries out messages in order (RFC 5040 §5.5), so the requests before the one at fault
// succeeded, except reads and atomics without a response.
void Requester::end_by_terminate(const Terminate& message, std::optional<std::uint64_t> executed) {
  if (options_.unreliable) return end_unreliably();
  const std::uint64_t guilty = find_guilty(message, executed);
  // The fault is in framing, or in an answer: no request can be named, so all are flushed.
  if (guilty == queue_.tail()) return flush();
  for (; queue_.head() != guilty; queue_.pop()) {
    const Entry& earlier = queue_.entry(queue_.head());
    if (is_answered(earlier.request.operation) && !earlier.answered) {
      complete(queue_.head(), Status::flushed);
    } else if (earlier.request.signaled) {
      complete(queue_.head(), Status::success);
    }
  }
  complete(guilty, status_of(message));
  queue_.pop();
  flush();
}

// An unreliable connection reports no failure of the peer: on InfiniBand the requests would have
// been sent and completed, whether or not anything received them.
void Requester::end_unreliably() {
  for (; !queue_.idle(); queue_.pop()) {
    const Entry& oldest = queue_.entry(queue_.head());
    if (oldest.failure != Status::success) {
      complete(queue_.head(), oldest.failure);
    } else if (oldest.request.signaled) {
      complete(queue_.head(), Status::success);
    }
  }
  flush();
}

// Requests whose bytes TCP has taken are not concerned: the kernel has copied them.
void Requester::blame_unsent() {
  for (std::uint64_t index = queue_.head(); index != queue_.tail(); ++index) {
    Entry& candidate = queue_.entry(index);
    if (candidate.built && candidate.end_position <= out_.taken_position()) continue;
    candidate.failure = Status::local_protection;
    return;
  }
}

// Without a Terminate nothing is at fault: requests that the peer carried out, or at least its TCP
// acknowledged, succeed. The first other one reports the loss as exhausted retries, as an
// InfiniBand adapter does. Nothing behind an unanswered read may succeed. Where this side was
// closing the stream itself, the loss is no failure.
void Requester::end_by_loss(std::uint64_t acknowledged_position,
                            std::optional<std::uint64_t> executed) {
  // What is proven, or was answered, completes in the ordinary way first.
  retire();
  if (options_.unreliable) return end_unreliably();
  for (; !queue_.idle(); queue_.pop()) {
    const Entry& oldest = queue_.entry(queue_.head());
    const bool arrived = oldest.built && !is_answered(oldest.request.operation) &&
                         (executed ? oldest.last_message <= *executed
                                   : oldest.end_position <= acknowledged_position);
    if (!arrived) break;
    if (oldest.request.signaled) complete(queue_.head(), Status::success);
  }
  const bool lost = !queue_.idle() && queue_.entry(queue_.head()).failure == Status::success;
  if (lost && !finishing_) {
    complete(queue_.head(), Status::retry_exceeded);
    queue_.pop();
  }
  flush();
}

}  // namespace weft::iwarp
