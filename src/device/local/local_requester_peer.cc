// Class LocalRequester: requests that the peer's device completes, and messages that it matches.
#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/full_barrier.h"
#include "base/guarded_memory.h"
#include "device/local/local_requester.h"
#include "iwarp/scatter.h"

namespace weft::device {
namespace {

using iwarp::EndReason;
using iwarp::Operation;
using iwarp::Status;
using iwarp::WorkRequest;

}  // namespace

// --- Sends that the peer matches -----------------------------------------------------------------
//
// Receives of a shared queue belong to no connection before a message takes one, so the peer cannot
// publish them. It finds one when it takes the message out of the ring, and until then the Send is
// under way. What cannot follow such a Send waits until none is.

// Requests that leave before those under way have completed. Only another Send that cannot fail
// here does, because requests complete in order.
LocalRequester::Outcome LocalRequester::execute_behind(const WorkRequest& work) {
  if (connection_.staged()) return execute_behind_staged(work);
  const bool sends =
      work.operation == Operation::send || work.operation == Operation::send_immediate;
  return sends && gather(work) ? send_to_match(work) : Outcome::blocked;
}

LocalRequester::Outcome LocalRequester::send_to_match(const WorkRequest& work) {
  if (length_bytes_ > inbox::matched_inline_bytes) return send_to_fetch(work);
  if (!room_for(length_bytes_)) return Outcome::blocked;
  if (push(inbox::Kind::send, work, local_)) {
    add_under_way(work);
    return Outcome::done;
  }
  // The memory was unmapped. Its turn to fail comes when the others have completed.
  if (!under_way_.empty()) return Outcome::blocked;
  return fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
}

// Several may be under way, and the peer need not be woken for each: one that polls takes them as
// it takes others. Inline data is shorter.
LocalRequester::Outcome LocalRequester::send_to_fetch(const WorkRequest& work) {
  if (work.inline_data || connection_.staged()) {
    return under_way_.empty() ? request_access(work) : Outcome::blocked;
  }
  if (!push_request(work, inbox::flag_unanswered)) return Outcome::blocked;
  UnderWay& sent = add_under_way(work);
  sent.request = asked_.requests;
  sent.slices.assign(work.slices.begin(), work.slices.end());
  return Outcome::done;
}

LocalRequester::UnderWay& LocalRequester::add_under_way(const WorkRequest& work) {
  return under_way_.emplace_back(UnderWay{.end = connection_.pushed(),
                                          .wr_id = work.wr_id,
                                          .length_bytes = length_bytes_,
                                          .operation = work.operation,
                                          .signaled = work.signaled,
                                          .request = 0,
                                          .read = 0,
                                          .slices = {}});
}

// A message that the peer has taken has a receive.
void LocalRequester::retire_taken() {
  while (!under_way_.empty() && connection_.taken(under_way_.front().end)) {
    const UnderWay sent = std::move(under_way_.front());
    under_way_.pop_front();
    length_bytes_ = sent.length_bytes;
    const WorkRequest work{
        .wr_id = sent.wr_id, .operation = sent.operation, .signaled = sent.signaled};
    if (sent.read != 0 && !take_read(sent)) {
      (void)fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
      return;
    }
    (void)complete(work, Status::success);
    receive_found();
  }
}

// The peer tells when the oldest message finds no receive; this end counts the retries.
void LocalRequester::watch_oldest() {
  inbox::Inbox& peer = connection_.peer();
  retire_taken();
  if (failure_) return;
  // The program may sleep until the completion comes: the peer wakes this end when it has taken
  // messages. Asked for first, and then looked again.
  const bool holds_up = connection_.staged() && !pending_.empty();
  if (!under_way_.empty() && (watches_taking_ || holds_up || parts_.completions.awaited())) {
    peer.wants_room.store(1, std::memory_order_relaxed);
    full_barrier();  // the look must not come first
    retire_taken();
    if (failure_) return;
  }
  const std::uint64_t starving = peer.receives.starving.load(std::memory_order_acquire);
  if (starving == 0) return;
  const Failure refused{EndReason::peer_terminated, inbox::End::request_refused};
  if (!under_way_.empty()) {
    // Behind the look at `starving`: the peer writes that after it has taken what comes before.
    retire_taken();
    if (failure_ || under_way_.empty() || starving > under_way_.front().end) return;
    if (!wait_is_over(under_way_.front().length_bytes) || !give_up(starving)) return;
    fail_oldest(Status::rnr_retry_exceeded, refused);
  } else if (reply_awaited_ && takes_receive(pending_.front().request.operation)) {
    const WorkRequest& work = pending_.front().request;
    if (!wait_is_over(iwarp::total_bytes(work.slices)) || !give_up(starving)) return;
    (void)fail(work, Status::rnr_retry_exceeded, refused);
    pending_.pop_front();
  }
}

// False: the peer has found a receive meanwhile.
bool LocalRequester::give_up(std::uint64_t starving) {
  return connection_.peer().receives.starving.compare_exchange_strong(starving,
                                                                      inbox::Receives::given_up);
}

void LocalRequester::fail_oldest(Status status, Failure failure) {
  const UnderWay sent = std::move(under_way_.front());
  under_way_.pop_front();
  length_bytes_ = sent.length_bytes;
  (void)fail({.wr_id = sent.wr_id, .operation = sent.operation}, status, failure);
}

bool LocalRequester::stalls() {
  const inbox::Inbox& peer = connection_.peer();
  const std::uint64_t taken = peer.consumed.load(std::memory_order_acquire);
  const bool same = std::exchange(stalled_at_, taken) == taken;
  return same && peer.receives.starving.load(std::memory_order_relaxed) == 0;
}

// --- Accesses that the peer's device makes -------------------------------------------------------

// The peer's device reads the data later, so inline data must be a copy by then.
LocalRequester::Outcome LocalRequester::request_access(const WorkRequest& work) {
  if (connection_.staged() && fits_in_ring(work, length_bytes_)) return request_in_ring(work);
  if (work.inline_data && !stored_) return Outcome::blocked;
  // Not reached with the limits of this device; a check is cheaper than a wrong message.
  if (local_.size() > inbox::AccessRequest::most_pieces) {
    return fail(work, Status::local_operation, {EndReason::local_error, inbox::End::closed});
  }
  if (connection_.staged()) {
    return fits_in_place(work, length_bytes_) ? read_to_place(work) : request_staged(work);
  }
  if (!push_request(work, 0)) return Outcome::blocked;
  connection_.wake();  // the answer must not wait for the peer's program to poll
  reply_awaited_ = true;
  return Outcome::blocked;
}

// Without what depends on the way of the payload.
inbox::AccessRequest LocalRequester::access_request(const WorkRequest& work,
                                                    std::uint64_t length_bytes) {
  inbox::AccessRequest request;
  request.operation = work.operation;
  request.flags = flags_of(work);
  request.stag = work.rkey;
  request.offset = work.remote_address;
  request.length_bytes = length_bytes;
  request.compare_or_add = work.compare_or_add;
  request.swap = work.swap;
  return request;
}

// False: there is no room.
bool LocalRequester::push_request(const WorkRequest& work, std::uint8_t flags) {
  std::array<inbox::Piece, inbox::AccessRequest::most_pieces> pieces;
  inbox::AccessRequest request = access_request(work, length_bytes_);
  request.number = asked_.requests + 1;
  request.flags |= flags;
  request.pieces = static_cast<std::uint16_t>(local_.size());
  for (std::size_t i = 0; i < local_.size(); ++i) {
    pieces[i] = {reinterpret_cast<std::uint64_t>(local_[i].iov_base), local_[i].iov_len};
  }
  const std::array<iovec, 2> payload{iovec{&request, sizeof request},
                                     iovec{pieces.data(), local_.size() * sizeof(inbox::Piece)}};
  const std::size_t payload_bytes = payload[0].iov_len + payload[1].iov_len;
  if (!room_for(payload_bytes)) return false;
  push(inbox::Kind::request, work, payload);
  ++asked_.requests;
  return true;
}

bool LocalRequester::is_answered() const {
  return !idle() &&
         connection_.own().answer.count.load(std::memory_order_acquire) != asked_.answers;
}

// A copy, since the peer may write at any time.
void LocalRequester::take_answer() {
  const inbox::Answer& answer = connection_.own().answer;
  asked_.answers = answer.count.load(std::memory_order_acquire);
  const inbox::AccessReply reply = answer.reply;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  take_reply(reply);
}

void LocalRequester::take_reply(const inbox::AccessReply& reply) {
  // The next requests do not execute any more.
  if (failure_) return;
  const bool failed = reply.status != Status::success;
  // The peer may send any number.
  const Status status = std::min(reply.status, Status::bad_response);
  // The peer cannot match the oldest message, and it has taken all before.
  if (!under_way_.empty() && failed) {
    retire_taken();
    if (under_way_.empty() || failure_) return;
    const bool ours = status == Status::local_protection;  // the memory of this end
    return fail_oldest(status, ours ? Failure{EndReason::local_error, inbox::End::closed}
                                    : Failure{EndReason::peer_terminated, inbox::End::none});
  }
  // A reply that was not asked for: the peer's memory is not trusted.
  if (!reply_awaited_ || pending_.empty()) return;
  reply_awaited_ = false;
  receive_found();
  const WorkRequest& work = pending_.front().request;
  if (reply.status == Status::local_protection) {
    (void)fail(work, reply.status, {EndReason::local_error, inbox::End::closed});
  } else if (failed) {
    (void)fail(work, status, {EndReason::peer_terminated, inbox::End::none});
  } else if (is_atomic(work.operation) && fetches(work.operation)) {
    const bool found = gather(work) && guarded_store(local_.front().iov_base, &reply.original,
                                                     sizeof reply.original);
    (void)(found ? complete(work, Status::success)
                 : fail(work, Status::local_protection,
                        {EndReason::local_error, inbox::End::closed}));
  } else if (!connection_.staged() || take_part(work)) {
    length_bytes_ = iwarp::total_bytes(work.slices);
    (void)complete(work, Status::success);
  } else if (!failure_) {
    return;  // the next part is under way
  }
  pending_.pop_front();
  advance();
}

// Whether what was gathered is in this memory.
bool LocalRequester::uses(const std::byte* base, std::size_t length_bytes) {
  return std::any_of(local_.begin(), local_.end(), [&](const iovec& piece) {
    const auto* const at = static_cast<const std::byte*>(piece.iov_base);
    return std::less()(at, base + length_bytes) && std::less()(base, at + piece.iov_len);
  });
}

// The peer's device may be about to copy from or to the memory of requests. Those that use other
// memory go on.
void LocalRequester::withdraw_request(const std::byte* base, std::size_t length_bytes) {
  if (reply_awaited_) {
    if (!gather(pending_.front().request) || uses(base, length_bytes)) {
      withdraw(asked_.requests, asked_.requests);
    }
    return;
  }
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < under_way_.size(); ++i) {
    const UnderWay& sent = under_way_[i];
    if (sent.request == 0) continue;
    local_.clear();
    // A slice that is not found is in memory that has left the table of regions.
    const bool found = iwarp::map_slices(parts_.memory, sent.slices, 0, sent.length_bytes, false,
                                         local_) == iwarp::Fault::none;
    if (found && !uses(base, length_bytes)) continue;
    if (first == 0) first = sent.request;
    last = sent.request;
  }
  if (first != 0) withdraw(first, last);
}

// The peer looks at it before each copy; one that has begun is awaited. Requests between two that
// are withdrawn would be flushed in any case.
void LocalRequester::withdraw(std::uint64_t first, std::uint64_t last) {
  inbox::Inbox& own = connection_.own();
  own.withdrawn_from.store(first, std::memory_order_seq_cst);
  own.withdrawn.store(last, std::memory_order_seq_cst);
  connection_.await_access();
}

}  // namespace weft::device
