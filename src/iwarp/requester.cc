// Class Requester: this file, requester_messages.cc, requester_answers.cc and requester_end.cc.
// What is posted, and what may be sent when: ORD, fences, the peer's window, and probes.
#include "iwarp/requester.h"

#include <algorithm>

#include "iwarp/scatter.h"

namespace weft::iwarp {

Requester::Requester(const QueueLimits& limits, const Options& options, Host& host,
                     Transmitter& out, ControlOutbox& control)
    : options_(options),
      limits_(limits),
      host_(host),
      out_(out),
      control_(control),
      queue_(limits),
      window_({.limit_bytes = options.window_bytes, .provable = options.wire_ord != 0}, control) {}

bool Requester::acceptable(const QueueLimits& limits, const WorkRequest& request) {
  const std::uint64_t length = total_bytes(request.slices);
  if (request.slices.size() > limits.send_slices || length > UINT32_MAX) return false;
  // Inline data is copied when the request is posted, so it cannot be the sink of a response.
  if (request.inline_data && (length > limits.inline_bytes || fetches(request.operation))) {
    return false;
  }
  // RFC 7306 §5: an atomic works on 64 bits. verbs has one slice of 8 bytes for the value
  // (ibv_post_send(3)).
  return !is_atomic(request.operation) || (length == 8 && request.slices.size() == 1);
}

Requester::Posted Requester::post(const WorkRequest& request) {
  if (queue_.full()) return Posted::queue_full;
  if (!acceptable(limits_, request)) return Posted::invalid;
  if (request.operation == Operation::send_immediate && !options_.send_immediate) {
    return Posted::unsupported;
  }
  if (queue_.idle()) out_.begin_alone();
  queue_.push(request, static_cast<std::uint32_t>(total_bytes(request.slices)));
  return Posted::ok;
}

// Requests leave in the order of posting, so one that may not start holds up all behind it. A fence
// waits for the application's earlier reads and atomics, not for probes: ibv_post_send(3),
// IBV_SEND_FENCE. RFC 5040 §3.3: no more reads and atomics are under way than the peer has room for
// (ORD); a place of those is set aside for the probe.
bool Requester::may_start(const Entry& entry) const {
  if (failed_ || finishing_) return false;
  const StoredRequest& request = entry.request;
  if (request.fence && users_outstanding_ > 0) return false;
  if (!is_answered(request.operation)) return true;
  // Without any ORD the request could never be sent: start() completes it in error.
  if (options_.ord == 0) return true;
  return users_outstanding_ < options_.ord && outstanding_.size() < options_.wire_ord;
}

// Asks the peer's window, and for the proof that would open it. The probe itself is sent once
// nothing else can be: see Connection::fill().
bool Requester::admitted(const Entry& entry) {
  // send_msn_ is the MSN that the message will have: a grant names it.
  const auto admission = window_.admit(entry.request.operation, entry.length_bytes, send_msn_);
  if (admission == PeerWindow::Admission::needs_proof) proofs_.want(queue_.next());
  return admission == PeerWindow::Admission::open;
}

// Checks everything that can be checked before the first byte is sent: a fault found here fails the
// request alone, while one in the middle of a message would cut the message in two. Atomics need an
// aligned target (RFC 7306 §5.1); the status is that of InfiniBand's responder.
bool Requester::start(Entry& entry) {
  const StoredRequest& request = entry.request;
  if (is_answered(request.operation) && options_.ord == 0) {
    fail(entry, Status::local_operation);
    return false;
  }
  if (is_atomic(request.operation) && request.remote_address % 8 != 0) {
    fail(entry, Status::remote_invalid_request);
    return false;
  }
  whole_gathered_ = false;
  // The data was copied when the request was posted.
  if (request.inline_data) return true;
  gathered_.clear();
  // The sink of a response needs local write access. It is checked before the peer is asked.
  const Fault fault = map_slices(host_, queue_.slices(queue_.next()), 0, entry.length_bytes,
                                 fetches(request.operation), gathered_);
  whole_gathered_ = fault == Fault::none;
  if (whole_gathered_) return true;
  fail(entry, Status::local_protection);
  return false;
}

// The entry completes with `status` when everything posted before it has completed. For that the
// earlier requests must be proven, so the stream lives on until then. A message of which the peer
// has a part already leaves no way to prove anything: the stream ends at once.
void Requester::fail(Entry& entry, Status status) {
  entry.failure = status;
  failed_ = true;
  mid_message_ = false;
  if (entry.built_bytes > 0) {
    failed_locally_ = true;
    return;
  }
  proofs_.want(queue_.next());
  retire();
}

bool Requester::build() {
  if (queue_.all_built()) return false;
  Entry& current = queue_.entry(queue_.next());
  // A message that has begun was admitted already, and must be finished before anything else.
  if (!mid_message_) {
    if (!may_start(current)) return false;
    // Before admitted(), which may ask for a receive of that queue.
    if (names_next_queue(current)) return true;
    if (window_.limited() && !admitted(current)) return false;
    // The request has failed without sending anything; the caller looks at failed_locally().
    if (!start(current)) return true;
    mid_message_ = true;
    queue_named_ = false;
  }
  if (build_operation(current)) finish_build(current);
  return true;
}

// Returns true when the request is built whole.
bool Requester::build_operation(Entry& entry) {
  switch (entry.request.operation) {
    case Operation::send:
    case Operation::send_invalidate:
    case Operation::send_immediate:
      return build_send(entry);
    case Operation::write:
    case Operation::write_immediate:
      return build_write(entry);
    case Operation::read:
      build_read(entry);
      return true;
    case Operation::compare_swap:
    case Operation::fetch_add:
    case Operation::atomic_write:
      return build_atomic(entry);
    case Operation::bind_window:
    case Operation::local_invalidate:
      return carry_out(entry);
  }
  return true;
}

// The turn of a local request has come when all before it are built: their memory was looked up by
// then.
bool Requester::carry_out(Entry& entry) {
  const Status status = host_.carry_out_local();
  if (status != Status::success) fail(entry, status);
  return status == Status::success;
}

// Remembers what will show that the request was carried out: its position in the stream, the number
// of its last message, its share of the peer's hold. A signaled request wants a proof. So does an
// unsignaled one when half of the queue waits for proofs: without it a queue of unsignaled requests
// would fill up for good. At the end of the stream each one does, because a flushed request
// completes in any case.
void Requester::finish_build(Entry& entry) {
  mid_message_ = false;
  entry.built = true;
  entry.end_position = out_.end_position();
  entry.last_message = messages_;
  if (window_.limited()) window_.charge(entry.request.operation, entry.length_bytes);
  entry.sent_cost = window_.sent_cost();
  const bool answered = is_answered(entry.request.operation);
  if (!answered) proofs_.count_unproven(entry.length_bytes);
  queue_.advance();
  if (proofs_.should_ask_again(entry.length_bytes, queue_.next())) [[unlikely]] {
    proofs_.ask_again();
    control_.put(wire::ControlWord::prove_all, 0);
  }
  // No answer will come for it, so it may complete now.
  if (is_local(entry.request.operation)) return retire();
  if (options_.acknowledge && !answered &&
      (entry.request.signaled || queue_.half_full_of_built() || finishing_)) {
    proofs_.want(queue_.next());
  }
}

// Reads and atomics at the end of the queue have answers of their own.
void Requester::finish() {
  finishing_ = true;
  if (!options_.acknowledge) return;
  std::uint64_t index = queue_.next();
  while (index != queue_.head() && is_answered(queue_.entry(index - 1).request.operation)) --index;
  proofs_.want(index);
}

// What has completed was sent, and its entry may be in use again.
std::uint64_t Requester::requests_sent() {
  sent_ = std::max(sent_, queue_.head());
  while (sent_ < queue_.next()) {
    const Entry& entry = queue_.entry(sent_);
    if (!entry.built || entry.end_position > out_.taken_position()) break;
    ++sent_;
  }
  return sent_;
}

// A read of the application behind the last request that wants a proof proves it as well.
bool Requester::acknowledgement_possible() const {
  if (!proves() || mid_message_ || !proofs_.probe_useful()) return false;
  // The peer has no place for one more read (ORD). Its next response brings this call again.
  if (outstanding_.size() >= options_.wire_ord) return false;
  return outstanding_.empty() || proofs_.wanted_behind(outstanding_.back().index);
}

void Requester::acknowledge() {
  if (!acknowledgement_possible()) return;
  build_probe();
  ++acknowledgement_reads_;
  if (proofs_.should_agree()) [[unlikely]]
    control_.put(wire::ControlWord::prove_all, 1);
}

}  // namespace weft::iwarp
