// The peer's responses, and the completions that they prove.
#include <algorithm>
#include <cstring>

#include "iwarp/requester.h"
#include "iwarp/scatter.h"

namespace weft::iwarp {

TerminateRaised Requester::check_read_response(const Segment& segment) const {
  const auto& header = segment.tagged_header;
  if (outstanding_.empty() || outstanding_.front().atomic) {
    return wire::terminate::tagged_invalid_stag;
  }
  const Outstanding& front = outstanding_.front();
  // RFC 5040 §5.2.1: the sink of an empty read is not checked.
  const bool empty = front.size_bytes == 0;
  if (!empty && header.stag != front.sink_stag) return wire::terminate::tagged_invalid_stag;
  const std::uint64_t left = front.size_bytes - front.received_bytes;
  if (segment.payload_bytes > left || header.last != (segment.payload_bytes == left)) {
    return wire::terminate::tagged_bounds;
  }
  if (!empty && header.tagged_offset != front.sink_offset + front.received_bytes) {
    return wire::terminate::tagged_bounds;
  }
  return std::nullopt;
}

TerminateRaised Requester::read_targets(const Segment& /*segment*/, std::uint32_t offset,
                                        std::uint32_t length, std::vector<iovec>& out) {
  const Outstanding& front = outstanding_.front();
  const Fault fault =
      map_slices(host_, slices_of(front.index), front.received_bytes + offset, length, true, out);
  if (fault == Fault::none) return std::nullopt;
  entry(front.index).failure = Status::local_protection;
  failed_ = true;
  return wire::terminate::rdma_stream_catastrophic;
}

void Requester::deliver_read_response(const Segment& segment) {
  Outstanding& front = outstanding_.front();
  front.received_bytes += segment.payload_bytes;
  if (!segment.last()) return;
  const Outstanding finished = front;
  outstanding_.pop_front();
  answered(finished);
}

void Requester::answered(const Outstanding& finished) {
  proven_ = std::max(proven_, finished.index);
  proven_cost_ = std::max(proven_cost_, finished.sent_cost);
  if (finished.ours) {
    ours_outstanding_ = false;
  } else {
    --users_outstanding_;
    entry(finished.index).answered = true;
    proven_ = std::max(proven_, finished.index + 1);
  }
  retire();
}

void Requester::placed(std::uint64_t messages) {
  for (proven_ = std::max(proven_, head_); proven_ != next_; ++proven_) {
    const Entry& candidate = entry(proven_);
    if (candidate.last_message > messages) break;
    proven_cost_ = std::max(proven_cost_, candidate.sent_cost);
  }
  retire();
}

// What the word was before goes to who asked for it; an atomic write does not.
bool Requester::store_original(std::uint64_t index, std::uint64_t value) {
  if (!fetches(entry(index).request.operation)) return true;
  std::vector<iovec> target;
  if (map_slices(host_, slices_of(index), 0, sizeof value, true, target) != Fault::none) {
    return false;
  }
  std::memcpy(target.front().iov_base, &value, sizeof value);
  return true;
}

TerminateRaised Requester::atomic_response(const wire::AtomicResponse& response) {
  if (outstanding_.empty() || !outstanding_.front().atomic ||
      outstanding_.front().msn != response.request_id) {
    return wire::terminate::rdma_unexpected_opcode;
  }
  const Outstanding finished = outstanding_.front();
  if (!store_original(finished.index, response.original_value)) {
    entry(finished.index).failure = Status::local_protection;
    failed_ = true;
    return wire::terminate::rdma_stream_catastrophic;
  }
  outstanding_.pop_front();
  answered(finished);
  return std::nullopt;
}

bool Requester::done(std::uint64_t index) const {
  const Entry& candidate = entry(index);
  if (!candidate.built) return false;
  if (is_local(candidate.request.operation)) return true;
  if (is_answered(candidate.request.operation)) return candidate.answered;
  if (options_.acknowledge) return index < proven_;
  return candidate.end_position <= out_.taken_position();
}

void Requester::retire() {
  while (head_ != tail_ && !failed_locally_) {
    const Entry& oldest = entry(head_);
    if (oldest.failure != Status::success) {
      failed_locally_ = true;
      complete(head_, oldest.failure);
    } else if (done(head_)) {
      if (oldest.request.signaled) complete(head_, Status::success);
    } else {
      return;
    }
    ++head_;
  }
}

void Requester::complete(std::uint64_t index, Status status) {
  const Entry& finished = entry(index);
  host_.complete_send({.wr_id = finished.request.wr_id,
                       .operation = finished.request.operation,
                       .status = status,
                       .signaled = finished.request.signaled,
                       .length_bytes = finished.length_bytes,
                       .covered = static_cast<std::uint32_t>(index + 1 - told_)});
  told_ = index + 1;
}

void Requester::flush() {
  for (; head_ != tail_; ++head_) {
    const Entry& oldest = entry(head_);
    complete(head_, oldest.failure == Status::success ? Status::flushed : oldest.failure);
  }
  next_ = tail_;
  mid_message_ = false;
  outstanding_.clear();
}

}  // namespace weft::iwarp
