// The queue: what is posted, and what may go out when.
#include "iwarp/requester.h"

#include <algorithm>
#include <cstring>

#include "iwarp/scatter.h"

namespace weft::iwarp {
namespace {

// So much may be under way without proof before a proof is asked for between two requests.
constexpr std::uint64_t unproven_limit_bytes = 256 * 1024;

}  // namespace

Requester::Requester(const QueueLimits& limits, const Options& options, Host& host,
                     Transmitter& out, ControlOutbox& control)
    : limits_(limits),
      options_(options),
      host_(host),
      out_(out),
      control_(control),
      entries_(std::max<std::uint32_t>(limits.send_requests, 1)),
      slices_(entries_.size() * std::max<std::uint32_t>(limits.send_slices, 1)),
      inline_data_(entries_.size() * limits.inline_bytes) {}

std::span<LocalSlice> Requester::slices_of(std::uint64_t index) {
  const std::size_t per_entry = slices_.size() / entries_.size();
  return std::span(slices_).subspan(static_cast<std::size_t>(index % entries_.size()) * per_entry,
                                    entry(index).slice_count);
}

bool Requester::acceptable(const QueueLimits& limits, const WorkRequest& request) {
  const std::uint64_t length = total_bytes(request.slices);
  if (request.slices.size() > limits.send_slices || length > UINT32_MAX) return false;
  // There is no such thing as a sink that is copied when the request is posted.
  if (request.inline_data && (length > limits.inline_bytes || fetches(request.operation))) {
    return false;
  }
  return !is_atomic(request.operation) || (length == 8 && request.slices.size() == 1);
}

Requester::Posted Requester::post(const WorkRequest& request) {
  if (tail_ - head_ == entries_.size()) return Posted::queue_full;
  if (!acceptable(limits_, request)) return Posted::invalid;
  if (request.operation == Operation::send_immediate && !options_.send_immediate) {
    return Posted::unsupported;
  }
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
                                 fetches(request.operation), gathered_);
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
    window_closed_ = options_.window_bytes != 0 && !window_open(current);
    if (window_closed_) return false;
    if (!start(current)) return true;
    mid_message_ = true;
  }
  bool complete = true;
  switch (current.request.operation) {
    case Operation::send:
    case Operation::send_invalidate:
    case Operation::send_immediate:
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
    case Operation::atomic_write:
      complete = build_atomic(current);
      break;
    case Operation::bind_window:
    case Operation::local_invalidate:
      complete = carry_out(current);
      break;
  }
  if (complete) finish_build(current);
  return true;
}

bool Requester::carry_out(Entry& entry) {
  const Status status = host_.carry_out_local();
  if (status != Status::success) fail(entry, status);
  return status == Status::success;
}

void Requester::finish_build(Entry& entry) {
  mid_message_ = false;
  entry.built = true;
  entry.end_position = out_.end_position();
  entry.last_message = messages_;
  if (options_.window_bytes != 0) charge(entry);
  entry.sent_cost = sent_cost_;
  if (!is_answered(entry.request.operation)) unproven_bytes_ += entry.length_bytes;
  ++next_;
  if (is_local(entry.request.operation)) return retire();
  const bool half_full = (next_ - head_) * 2 >= entries_.size();
  if (options_.acknowledge && !is_answered(entry.request.operation) &&
      (entry.request.signaled || half_full)) {
    proof_wanted_ = next_;
  }
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
  if (!proves() || !acknowledgement_possible()) return;
  build_probe();
  ++acknowledgement_reads_;
}

}  // namespace weft::iwarp
