#include "iwarp/requester.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "iwarp/scatter.h"

namespace weft::iwarp {
namespace {

using wire::RdmapOpcode;

// So much may be under way without proof before a proof is asked for between two requests.
constexpr std::uint64_t unproven_limit_bytes = 256 * 1024;

bool is_atomic(Operation operation) {
  return operation == Operation::compare_swap || operation == Operation::fetch_add;
}

bool is_answered(Operation operation) {
  return operation == Operation::read || is_atomic(operation);
}

bool writes_locally(Operation operation) {
  return is_answered(operation);
}

RdmapOpcode send_opcode(const WorkRequest& request) {
  const bool invalidate = request.operation == Operation::send_invalidate;
  if (request.solicited) {
    return invalidate ? RdmapOpcode::send_solicited_invalidate : RdmapOpcode::send_solicited;
  }
  return invalidate ? RdmapOpcode::send_invalidate : RdmapOpcode::send;
}

}  // namespace

Requester::Requester(const QueueLimits& limits, const Options& options, Host& host,
                     Transmitter& out)
    : limits_(limits),
      options_(options),
      host_(host),
      out_(out),
      entries_(std::max<std::uint32_t>(limits.send_requests, 1)),
      slices_(entries_.size() * std::max<std::uint32_t>(limits.send_slices, 1)),
      inline_data_(entries_.size() * limits.inline_bytes) {}

std::span<LocalSlice> Requester::slices_of(std::uint64_t index) {
  const std::size_t per_entry = slices_.size() / entries_.size();
  return std::span(slices_).subspan((index % entries_.size()) * per_entry,
                                    entry(index).slice_count);
}

bool Requester::acceptable(const QueueLimits& limits, const WorkRequest& request) {
  const std::uint64_t length = total_bytes(request.slices);
  if (request.slices.size() > limits.send_slices || length > UINT32_MAX) return false;
  // There is no such thing as a sink that is copied when the request is posted.
  if (request.inline_data && (length > limits.inline_bytes || is_answered(request.operation))) {
    return false;
  }
  return !is_atomic(request.operation) || (length == 8 && request.slices.size() == 1);
}

Requester::Posted Requester::post(const WorkRequest& request) {
  if (tail_ - head_ == entries_.size()) return Posted::queue_full;
  if (!acceptable(limits_, request)) return Posted::invalid;
  const std::uint64_t length = total_bytes(request.slices);
  Entry& added = entry(tail_);
  added = Entry{.request = request, .length_bytes = static_cast<std::uint32_t>(length)};
  store_slices(request);
  ++tail_;
  return Posted::ok;
}

void Requester::store_slices(const WorkRequest& request) {
  Entry& added = entry(tail_);
  if (!request.inline_data) {
    added.slice_count = static_cast<std::uint32_t>(request.slices.size());
    std::copy(request.slices.begin(), request.slices.end(), slices_of(tail_).begin());
    return;
  }
  std::byte* at = inline_data_.data() + (tail_ % entries_.size()) * limits_.inline_bytes;
  for (const auto& slice : request.slices) {
    if (slice.length_bytes == 0) continue;
    std::memcpy(at, reinterpret_cast<const void*>(slice.address), slice.length_bytes);
    at += slice.length_bytes;
  }
}

bool Requester::may_start(const Entry& entry) const {
  if (failed_) return false;
  const WorkRequest& request = entry.request;
  if (request.fence && users_outstanding_ > 0) return false;
  if (!is_answered(request.operation)) return true;
  // With no ORD at all the request can never go: start() completes it in error.
  if (options_.ord == 0) return true;
  return users_outstanding_ < options_.ord && outstanding_.size() < options_.wire_ord;
}

// Checks what can be checked before the first byte leaves.
bool Requester::start(Entry& entry) {
  const WorkRequest& request = entry.request;
  if (is_answered(request.operation) && options_.ord == 0) {
    fail(entry, Status::local_operation);
    return false;
  }
  if (is_atomic(request.operation) && request.remote_address % 8 != 0) {
    fail(entry, Status::remote_invalid_request);
    return false;
  }
  if (request.inline_data) return true;
  gathered_.clear();
  const Fault fault = map_slices(host_, slices_of(next_), 0, entry.length_bytes,
                                 writes_locally(request.operation), gathered_);
  if (fault == Fault::none) return true;
  fail(entry, Status::local_protection);
  return false;
}

void Requester::fail(Entry& entry, Status status) {
  entry.failure = status;
  failed_ = true;
  mid_message_ = false;
  if (entry.built_bytes > 0) {
    failed_locally_ = true;  // a message cut in two: this stream cannot go on even to prove things
    return;
  }
  // The error is reported in its turn, so what went before must be proven.
  proof_wanted_ = std::max(proof_wanted_, next_);
  retire();
}

bool Requester::build() {
  if (next_ == tail_) return false;
  Entry& current = entry(next_);
  if (!mid_message_) {
    if (!may_start(current)) return false;
    if (!start(current)) return true;
    mid_message_ = true;
  }
  bool complete = true;
  switch (current.request.operation) {
    case Operation::send:
    case Operation::send_invalidate:
      complete = build_send(current);
      break;
    case Operation::write:
    case Operation::write_immediate:
      complete = build_write(current);
      break;
    case Operation::read:
      build_read(current);
      break;
    case Operation::compare_swap:
    case Operation::fetch_add:
      build_atomic(current);
      break;
  }
  if (complete) finish_build(current);
  return true;
}

void Requester::finish_build(Entry& entry) {
  mid_message_ = false;
  entry.built = true;
  entry.end_position = out_.end_position();
  if (!is_answered(entry.request.operation)) unproven_bytes_ += entry.length_bytes;
  ++next_;
  const bool half_full = (next_ - head_) * 2 >= entries_.size();
  if (!is_answered(entry.request.operation) && (entry.request.signaled || half_full)) {
    proof_wanted_ = next_;
  }
}

// Collects the next `bytes` bytes of a request's payload into gathered_.
bool Requester::gather(std::uint64_t index, std::uint32_t bytes) {
  gathered_.clear();
  Entry& current = entry(index);
  if (bytes == 0) return true;
  if (current.request.inline_data) {
    std::byte* data = inline_data_.data() + (index % entries_.size()) * limits_.inline_bytes;
    gathered_.push_back({data + current.built_bytes, bytes});
    return true;
  }
  const Fault fault = map_slices(host_, slices_of(index), current.built_bytes, bytes,
                                 writes_locally(current.request.operation), gathered_);
  return fault == Fault::none;
}

// Returns true when the message is complete (RFC 5041 §5.3: segments in order of offset).
bool Requester::build_send(Entry& entry) {
  const std::size_t room = out_.mulpdu_bytes() - wire::DdpUntagged::header_bytes;
  if (entry.built_bytes == 0) entry.msn = send_msn_;
  do {
    const auto part = static_cast<std::uint32_t>(
        std::min<std::size_t>(room, entry.length_bytes - entry.built_bytes));
    if (!gather(next_, part)) {
      fail(entry, Status::local_protection);
      return false;
    }
    const bool last = entry.built_bytes + part == entry.length_bytes;
    const wire::DdpUntagged header{
        .last = last,
        .rdmap_control = wire::rdmap_control(send_opcode(entry.request)),
        .invalidate_stag =
            entry.request.operation == Operation::send_invalidate ? entry.request.rkey : 0,
        .queue = wire::queue::send,
        .msn = entry.msn,
        .message_offset = entry.built_bytes};
    std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
    header.emit(bytes);
    out_.add(bytes, gathered_);
    entry.built_bytes += part;
  } while (entry.built_bytes < entry.length_bytes && out_.has_room());
  if (entry.built_bytes < entry.length_bytes) return false;
  ++send_msn_;
  return true;
}

bool Requester::build_write(Entry& entry) {
  const std::size_t room = out_.mulpdu_bytes() - wire::DdpTagged::header_bytes;
  do {
    const auto part = static_cast<std::uint32_t>(
        std::min<std::size_t>(room, entry.length_bytes - entry.built_bytes));
    if (!gather(next_, part)) {
      fail(entry, Status::local_protection);
      return false;
    }
    const wire::DdpTagged header{.last = entry.built_bytes + part == entry.length_bytes,
                                 .rdmap_control = wire::rdmap_control(RdmapOpcode::write),
                                 .stag = entry.request.rkey,
                                 .tagged_offset = entry.request.remote_address + entry.built_bytes};
    std::array<std::byte, wire::DdpTagged::header_bytes> bytes;
    header.emit(bytes);
    out_.add(bytes, gathered_);
    entry.built_bytes += part;
  } while (entry.built_bytes < entry.length_bytes && out_.has_room());
  if (entry.built_bytes < entry.length_bytes) return false;
  if (entry.request.operation == Operation::write_immediate) build_immediate(entry);
  return true;
}

// RFC 7306 §6: behind the Write, with nothing of ours in between.
void Requester::build_immediate(Entry& entry) {
  entry.msn = send_msn_++;
  const auto opcode =
      entry.request.solicited ? RdmapOpcode::immediate_data_solicited : RdmapOpcode::immediate_data;
  const wire::DdpUntagged header{.last = true,
                                 .rdmap_control = wire::rdmap_control(opcode),
                                 .queue = wire::queue::send,
                                 .msn = entry.msn};
  std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
  header.emit(bytes);
  std::array<std::byte, wire::ImmediateData::header_bytes> payload;
  wire::ImmediateData{.data_be = entry.request.immediate_be}.emit(payload);
  const iovec piece{payload.data(), payload.size()};
  out_.add(bytes, {&piece, 1});
}

// Adds a message of queue 1 and remembers that its answer is to come.
void Requester::add_request(RdmapOpcode opcode, Bytes payload, Outstanding outstanding) {
  outstanding.msn = request_msn_++;
  const wire::DdpUntagged header{.last = true,
                                 .rdmap_control = wire::rdmap_control(opcode),
                                 .queue = wire::queue::request,
                                 .msn = outstanding.msn};
  std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
  header.emit(bytes);
  const iovec piece{const_cast<std::byte*>(payload.data()), payload.size()};
  out_.add(bytes, {&piece, 1});
  if (outstanding.ours) {
    ours_outstanding_ = true;
  } else {
    ++users_outstanding_;
  }
  outstanding_.push_back(outstanding);
  unproven_bytes_ = 0;  // its answer proves all that went before
}

// The sink is named by the first slice. Nobody looks it up: a response is checked against the
// outstanding read, so the slices need no remote rights (and may be several).
void Requester::build_read(Entry& entry) {
  const auto slices = slices_of(next_);
  Outstanding outstanding{.index = next_, .size_bytes = entry.length_bytes};
  if (!slices.empty()) {
    outstanding.sink_stag = slices.front().lkey;
    outstanding.sink_offset = slices.front().address;
  }
  const wire::ReadRequest request{.sink_stag = outstanding.sink_stag,
                                  .sink_offset = outstanding.sink_offset,
                                  .size_bytes = entry.length_bytes,
                                  .source_stag = entry.request.rkey,
                                  .source_offset = entry.request.remote_address};
  std::array<std::byte, wire::ReadRequest::header_bytes> payload;
  request.emit(payload);
  entry.msn = request_msn_;
  add_request(RdmapOpcode::read_request, payload, outstanding);
}

void Requester::build_atomic(Entry& entry) {
  const WorkRequest& work = entry.request;
  const bool swap = work.operation == Operation::compare_swap;
  constexpr std::uint64_t whole = ~std::uint64_t{0};
  // RFC 7306 §5.1: plain FetchAdd has an add mask of zero; compare fields are then not significant.
  const wire::AtomicRequest request{
      .opcode = swap ? wire::AtomicOpcode::compare_swap : wire::AtomicOpcode::fetch_add,
      .request_id = request_msn_,
      .stag = work.rkey,
      .tagged_offset = work.remote_address,
      .add_or_swap = swap ? work.swap : work.compare_or_add,
      .add_or_swap_mask = swap ? whole : 0,
      .compare = swap ? work.compare_or_add : 0,
      .compare_mask = whole};
  std::array<std::byte, wire::AtomicRequest::header_bytes> payload;
  request.emit(payload);
  entry.msn = request_msn_;
  add_request(RdmapOpcode::atomic_request, payload, {.atomic = true, .index = next_});
}

void Requester::build_probe() {
  std::array<std::byte, wire::ReadRequest::header_bytes> payload;
  wire::ReadRequest{}.emit(payload);  // zero length: STags and offsets are not checked (§5.2.1)
  add_request(RdmapOpcode::read_request, payload, {.ours = true, .index = next_});
}

bool Requester::acknowledgement_due() const {
  return unproven_bytes_ >= unproven_limit_bytes && proof_wanted_ > proven_;
}

bool Requester::acknowledgement_possible() const {
  if (mid_message_ || ours_outstanding_ || proof_wanted_ <= proven_) return false;
  if (outstanding_.size() >= options_.wire_ord) return false;
  // A read of the application behind the last of them proves them as well.
  return outstanding_.empty() || outstanding_.back().index < proof_wanted_;
}

void Requester::acknowledge() {
  if (!options_.acknowledge || !acknowledgement_possible()) return;
  build_probe();
  ++acknowledgement_reads_;
}

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
  if (finished.ours) {
    ours_outstanding_ = false;
  } else {
    --users_outstanding_;
    entry(finished.index).answered = true;
    proven_ = std::max(proven_, finished.index + 1);
  }
  retire();
}

TerminateRaised Requester::atomic_response(const wire::AtomicResponse& response) {
  if (outstanding_.empty() || !outstanding_.front().atomic ||
      outstanding_.front().msn != response.request_id) {
    return wire::terminate::rdma_unexpected_opcode;
  }
  const Outstanding finished = outstanding_.front();
  std::vector<iovec> target;
  if (map_slices(host_, slices_of(finished.index), 0, sizeof response.original_value, true,
                 target) != Fault::none) {
    entry(finished.index).failure = Status::local_protection;
    failed_ = true;
    return wire::terminate::rdma_stream_catastrophic;
  }
  std::memcpy(target.front().iov_base, &response.original_value, sizeof response.original_value);
  outstanding_.pop_front();
  answered(finished);
  return std::nullopt;
}

bool Requester::done(std::uint64_t index) const {
  const Entry& candidate = entry(index);
  if (!candidate.built) return false;
  if (is_answered(candidate.request.operation)) return candidate.answered;
  if (options_.acknowledge) return index < proven_;
  return candidate.end_position <= out_.taken_position();
}

void Requester::retire() {
  while (head_ != tail_ && !failed_locally_) {
    const Entry& oldest = entry(head_);
    if (oldest.failure != Status::success) {
      failed_locally_ = true;
      complete(oldest, oldest.failure);
    } else if (done(head_)) {
      if (oldest.request.signaled) complete(oldest, Status::success);
    } else {
      return;
    }
    ++head_;
  }
}

void Requester::complete(const Entry& entry, Status status) {
  host_.complete_send({.wr_id = entry.request.wr_id,
                       .operation = entry.request.operation,
                       .status = status,
                       .signaled = entry.request.signaled,
                       .length_bytes = entry.length_bytes});
}

void Requester::flush() {
  for (; head_ != tail_; ++head_) {
    const Entry& oldest = entry(head_);
    complete(oldest, oldest.failure == Status::success ? Status::flushed : oldest.failure);
  }
  next_ = tail_;
  mid_message_ = false;
  outstanding_.clear();
}

}  // namespace weft::iwarp
