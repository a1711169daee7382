// How the requests still under way complete when the stream ends.
#include "iwarp/requester.h"

namespace weft::iwarp {
namespace {

using wire::Terminate;

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

Status status_of(const Terminate& message) {
  const auto& code = message.code;
  if (code.layer <= 1 && code.type == 1) return Status::remote_access;
  if (code == wire::terminate::untagged_too_long) return Status::remote_invalid_request;
  if (code == wire::terminate::untagged_no_buffer) {
    return quoted_queue(message) == wire::queue::send ? Status::rnr_retry_exceeded
                                                      : Status::remote_invalid_request;
  }
  return Status::remote_operation;
}

}  // namespace

// Whether the quoted header is one of this request's. A Write carries no sequence number, so any
// segment of it matches.
bool Requester::blamed(const Entry& entry, const Terminate& message) const {
  const WorkRequest& request = entry.request;
  if (message.has_read_request) {
    // Surer than the header in front of it, whose sequence number the kernel's siw overwrites.
    const wire::ReadRequest& read = message.read_request;
    return request.operation == Operation::read && !entry.answered &&
           read.source_stag == request.rkey && read.source_offset == request.remote_address;
  }
  const bool write =
      request.operation == Operation::write || request.operation == Operation::write_immediate;
  if (quotes_tagged(message)) {
    const auto header = wire::DdpTagged::parse(Bytes(message.ddp_header));
    // It may also quote one of our Read Responses, which is no request's fault.
    if (!write || !header || header->stag != request.rkey ||
        wire::rdmap_opcode(header->rdmap_control) != wire::RdmapOpcode::write) {
      return false;
    }
    const std::uint64_t offset = header->tagged_offset - request.remote_address;
    return offset == 0 || offset < entry.length_bytes;
  }
  if (!quotes_untagged(message)) return false;
  const auto header = wire::DdpUntagged::parse(Bytes(message.ddp_header));
  if (!header) return false;
  const bool announced = request.operation == Operation::send_immediate;
  if (entry.msn != header->msn && !(announced && entry.msn - 1 == header->msn)) return false;
  if (is_local(request.operation)) return false;
  const bool answered = is_answered(request.operation);
  if (header->queue == wire::queue::request) return answered;
  return header->queue == wire::queue::send && !answered && request.operation != Operation::write;
}

// The index of the request at fault; tail_ where it is none of ours.
std::uint64_t Requester::find_guilty(const Terminate& message,
                                     std::optional<std::uint64_t> executed) const {
  const std::uint64_t started = next_ + (mid_message_ || grant_ == Grant::asked ? 1 : 0);
  for (std::uint64_t index = head_; index != started; ++index) {
    const Entry& candidate = entry(index);
    if (executed) {
      if (!candidate.built || candidate.last_message > *executed) return index;
    } else if (index >= proven_ && blamed(candidate, message)) {
      return index;
    }
  }
  return tail_;
}

void Requester::end_by_terminate(const Terminate& message, std::optional<std::uint64_t> executed) {
  if (options_.unreliable) return end_unreliably();
  const std::uint64_t guilty = find_guilty(message, executed);
  if (guilty == tail_) return flush();

  // The peer works in order: what went before the request at fault was carried out.
  for (; head_ != guilty; ++head_) {
    const Entry& earlier = entry(head_);
    if (is_answered(earlier.request.operation) && !earlier.answered) {
      complete(head_, Status::flushed);
    } else if (earlier.request.signaled) {
      complete(head_, Status::success);
    }
  }
  complete(head_++, status_of(message));
  flush();
}

// On InfiniBand they would have left all the same.
void Requester::end_unreliably() {
  for (; head_ != tail_; ++head_) {
    const Entry& oldest = entry(head_);
    if (oldest.failure != Status::success) {
      complete(head_, oldest.failure);
    } else if (oldest.request.signaled) {
      complete(head_, Status::success);
    }
  }
  flush();
}

void Requester::blame_unsent() {
  for (std::uint64_t index = head_; index != tail_; ++index) {
    Entry& candidate = entry(index);
    if (candidate.built && candidate.end_position <= out_.taken_position()) continue;
    candidate.failure = Status::local_protection;
    return;
  }
}

void Requester::end_by_loss(std::uint64_t acknowledged_position,
                            std::optional<std::uint64_t> executed) {
  retire();
  if (options_.unreliable) return end_unreliably();
  for (; head_ != tail_; ++head_) {
    const Entry& oldest = entry(head_);
    const bool arrived = oldest.built && !is_answered(oldest.request.operation) &&
                         (executed ? oldest.last_message <= *executed
                                   : oldest.end_position <= acknowledged_position);
    if (!arrived) break;
    if (oldest.request.signaled) complete(head_, Status::success);
  }
  if (head_ != tail_ && entry(head_).failure == Status::success) {
    complete(head_++, Status::retry_exceeded);
  }
  flush();
}

}  // namespace weft::iwarp
