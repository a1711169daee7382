// Class LocalRequester: requests of a staged connection that the peer's device carries out: see
// staging.h.

#include "device/local/local_requester.h"
#include "device/local/staging.h"
#include "iwarp/scatter.h"

namespace weft::device {
namespace {

using iwarp::EndReason;
using iwarp::Operation;
using iwarp::Status;
using iwarp::WorkRequest;

constexpr std::size_t request_bytes = sizeof(inbox::AccessRequest);

// Other atomics have their operands in the request.
bool has_payload(Operation operation) {
  return !fetches(operation);
}

}  // namespace

// What needs no answer may be one of several that are under way.
bool LocalRequester::fits_in_ring(const WorkRequest& work, std::uint64_t length_bytes) {
  return !iwarp::is_answered(work.operation) && length_bytes > 0 &&
         length_bytes <= inbox::matched_inline_bytes;
}

LocalRequester::Outcome LocalRequester::request_in_ring(const WorkRequest& work) {
  if (!room_for(request_bytes + length_bytes_)) return Outcome::blocked;
  inbox::AccessRequest request = access_request(work, length_bytes_);
  request.number = asked_.requests + 1;
  request.flags |= inbox::flag_unanswered | inbox::flag_in_ring;
  remote_.assign(1, {&request, sizeof request});
  remote_.insert(remote_.end(), local_.begin(), local_.end());
  if (!push(inbox::Kind::request, work, remote_)) {
    // Its turn to fail comes when the others have completed.
    if (!under_way_.empty()) return Outcome::blocked;
    return fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
  }
  ++asked_.requests;
  add_under_way(work);
  connection_.wake();  // the peer's program may not poll
  return Outcome::under_way;
}

bool LocalRequester::fits_in_place(const WorkRequest& work, std::uint64_t length_bytes) {
  return work.operation == Operation::read && length_bytes > 0 &&
         length_bytes <= staging::place_bytes;
}

LocalRequester::Outcome LocalRequester::read_to_place(const WorkRequest& work) {
  if (asked_.reads_under_way == staging::places || !room_for(request_bytes)) {
    return Outcome::blocked;
  }
  inbox::AccessRequest request = access_request(work, length_bytes_);
  request.number = ++asked_.requests;
  request.flags |= inbox::flag_unanswered;
  request.part = staging::place_of(length_bytes_, ++asked_.reads);
  const iovec payload{&request, sizeof request};
  (void)connection_.push(header_of(inbox::Kind::request, work, 0), {&payload, 1});
  UnderWay& sent = add_under_way(work);
  sent.read = asked_.reads;
  sent.slices.assign(work.slices.begin(), work.slices.end());
  ++asked_.reads_under_way;
  connection_.wake();  // the peer's program may not poll
  return Outcome::under_way;
}

// The peer has taken the request, so that the data is in its place. The memory is looked up anew,
// since it may have been deregistered.
bool LocalRequester::take_read(const UnderWay& sent) {
  --asked_.reads_under_way;
  local_.clear();
  return iwarp::map_slices(parts_.memory, sent.slices, 0, sent.length_bytes, true, local_) ==
             iwarp::Fault::none &&
         staging::scatter(local_, staging::place_of(sent.length_bytes, sent.read),
                          connection_.peer_staging());
}

// As execute_behind(). What needs more than the ring and a place waits until nothing is under way,
// and so does what has to come behind Reads (IBV_SEND_FENCE).
LocalRequester::Outcome LocalRequester::execute_behind_staged(const WorkRequest& work) {
  if ((work.fence && asked_.reads_under_way > 0) || is_local(work.operation) || !gather(work)) {
    return Outcome::blocked;
  }
  if (fits_in_place(work, length_bytes_)) return read_to_place(work);
  if (iwarp::is_answered(work.operation)) return Outcome::blocked;
  const bool fits = fits_in_ring(work, length_bytes_);
  if (!takes_receive(work.operation)) return fits ? request_in_ring(work) : Outcome::blocked;
  const bool plain =
      work.operation == Operation::send || work.operation == Operation::send_immediate;
  if (connection_.peer_matches()) {
    if (plain) return send_to_match(work);
    return fits ? request_in_ring(work) : Outcome::blocked;
  }
  if (!receives_.available()) return Outcome::blocked;
  const inbox::Receive& receive = receives_.oldest();
  const bool sends = work.operation != Operation::write_immediate;
  if (sends && length_bytes_ > receive.length_bytes) return Outcome::blocked;
  if (!plain || length_bytes_ > inbox::inline_bytes) {
    return fits ? request_in_ring(work) : Outcome::blocked;
  }
  if (!room_for(length_bytes_) || !(takes_whole(receive) || map_receive(receive)) ||
      !push(inbox::Kind::send, work, local_)) {
    return Outcome::blocked;
  }
  add_under_way(work);
  return Outcome::under_way;
}

// As request_access(), whose checks it has passed. The part that follows is copied while the peer
// carries out the first one.
LocalRequester::Outcome LocalRequester::request_staged(const WorkRequest& work) {
  if (!room_for(request_bytes)) return Outcome::blocked;
  asked_.part = 0;
  if (!fill_part(work)) {
    return fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
  }
  ++asked_.requests;
  if (takes_receive(work.operation)) receives_.claim();
  ask_for_part(work);
  return Outcome::blocked;
}

// Copies the payload of part asked_.part. False: this end's memory cannot be read.
bool LocalRequester::fill_part(const WorkRequest& work) {
  return !has_payload(work.operation) ||
         staging::gather(local_, staging::part_of(length_bytes_, asked_.part),
                         connection_.peer_staging());
}

// Its payload is in the staging area. Fills the next part.
void LocalRequester::ask_for_part(const WorkRequest& work) {
  inbox::AccessRequest request = access_request(work, length_bytes_);
  request.number = asked_.requests;
  request.part = staging::part_of(length_bytes_, asked_.part);
  const iovec payload{&request, sizeof request};
  (void)connection_.push(header_of(inbox::Kind::request, work, 0), {&payload, 1});
  connection_.wake();  // the answer must not wait for the peer's program to poll
  reply_awaited_ = true;
  if (staging::is_last(request.part, length_bytes_)) return;
  ++asked_.part;
  asked_.next_fails = !fill_part(work);
  --asked_.part;
}

// The peer has carried out the part that was asked for. True: it was the last one. False: the next
// one was asked for, or the request has failed. The memory is looked up anew, since it may have
// been deregistered. The ring has room: the peer has taken what was there before its answer.
bool LocalRequester::take_part(const WorkRequest& work) {
  const Failure local_error{EndReason::local_error, inbox::End::closed};
  if (!gather(work)) {
    (void)fail(work, Status::local_protection, local_error);
    return false;
  }
  const inbox::Part done = staging::part_of(length_bytes_, asked_.part);
  const bool last = staging::is_last(done, length_bytes_);
  bool works = last || !asked_.next_fails;
  if (works && !last) {
    ++asked_.part;
    ask_for_part(work);
  }
  if (works && work.operation == Operation::read) {
    works = staging::scatter(local_, done, connection_.peer_staging());
  }
  if (works) return last;
  reply_awaited_ = false;
  (void)fail(work, Status::local_protection, local_error);
  return false;
}

}  // namespace weft::device
