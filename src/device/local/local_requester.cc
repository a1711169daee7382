// Class LocalRequester: this file, local_requester_peer.cc, local_requester_prompt.cc and
// local_requester_staged.cc.
#include "device/local/local_requester.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "base/full_barrier.h"
#include "base/guarded_memory.h"
#include "device/memory/can_access.h"
#include "iwarp/receiver_not_ready.h"
#include "iwarp/scatter.h"

namespace weft::device {
namespace {

using iwarp::EndReason;
using iwarp::Fault;
using iwarp::Operation;
using iwarp::RemoteRight;
using iwarp::Status;
using iwarp::WorkRequest;

// The peer names its timer. The longest that ibv_modify_qp(3) knows is 655 ms.
constexpr std::uint64_t longest_rnr_timer_ns = 1'000'000'000;

// A system call for each of several larger ones costs little beside the copies.
bool is_small_write(const WorkRequest& work) {
  constexpr std::uint64_t small_bytes = 8192;
  if (work.operation != Operation::write) return false;
  const std::uint64_t bytes = iwarp::total_bytes(work.slices);
  return bytes > 0 && bytes <= small_bytes;
}

}  // namespace

// A Write needs none of them unless it notifies; the receiver reads them with the message.
std::uint8_t LocalRequester::flags_of(const WorkRequest& work) {
  std::uint8_t flags = work.solicited ? inbox::flag_solicited : 0;
  if (work.operation == Operation::send_immediate || work.operation == Operation::write_immediate) {
    flags |= inbox::flag_immediate;
  }
  if (work.operation == Operation::send_invalidate) flags |= inbox::flag_invalidate;
  return flags;
}

// Writes that may wait are kept, so that they share a system call.
void LocalRequester::post(const WorkRequest& work, bool more) {
  ++posted_;
  if (write_mapped(work)) return;
  const bool waits = more && is_small_write(work) && !is_mapped(work);
  if (!waits && pending_.empty() && !failure_ && execute(work) != Outcome::blocked) return;
  pending_.emplace_back(work);
  if (!waits) execute_pending();
}

void LocalRequester::advance() {
  execute_pending();
  end_accesses();
}

void LocalRequester::end_accesses() {
  mapped_.end();
  counts_.end();
}

void LocalRequester::execute_pending() {
  if (!idle() && (connection_.peer_matches() || connection_.staged())) watch_oldest();
  // One request at a time: the next one may start only when the peer's device has answered, because
  // requests complete in order.
  while (!pending_.empty() && !failure_ && !reply_awaited_) {
    if (const std::size_t done = under_way_.empty() ? execute_writes() : 0) {
      for (std::size_t i = 0; i < done; ++i) pending_.pop_front();
      continue;
    }
    // For request_access(): inline data is in a StoredRequest now and stays valid.
    stored_ = true;
    const Outcome outcome = execute(pending_.front().request);
    stored_ = false;
    if (outcome == Outcome::blocked) return;
    pending_.pop_front();
  }
}

LocalRequester::Outcome LocalRequester::execute(const WorkRequest& work) {
  // The peer has not left TCP yet, or is about to end. Its wake-up, or the end, brings this call
  // again.
  if (!connection_.peer_takes_requests()) return Outcome::blocked;
  if (!under_way_.empty()) return execute_behind(work);
  // Everything before it has completed, so its turn has come.
  if (is_local(work.operation)) {
    const Status status = parts_.memory.carry_out_next();
    if (status == Status::success) return complete(work, status);
    return fail(work, status, {EndReason::local_error, inbox::End::closed});
  }
  if (!gather(work)) {
    return fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
  }
  switch (work.operation) {
    case Operation::write:
    case Operation::write_immediate:
      return execute_write(work);
    case Operation::read:
      return execute_read(work);
    case Operation::compare_swap:
    case Operation::fetch_add:
    case Operation::atomic_write:
      // RFC 7306 §5.1 demands aligned targets.
      if (work.remote_address % 8 == 0) return execute_atomic(work);
      return fail(work, Status::remote_invalid_request,
                  {EndReason::local_error, inbox::End::closed});
    case Operation::send_invalidate:
      return execute_send_invalidate(work);
    default:
      return execute_send(work);
  }
}

// The memory of this side that the request names.
bool LocalRequester::gather(const WorkRequest& work) {
  local_.clear();
  return add_local(work);
}

bool LocalRequester::add_local(const WorkRequest& work) {
  length_bytes_ = iwarp::total_bytes(work.slices);
  if (!work.inline_data) {
    return iwarp::map_slices(parts_.memory, work.slices, 0, length_bytes_, fetches(work.operation),
                             local_) == Fault::none;
  }
  for (const auto& slice : work.slices) {
    local_.push_back({reinterpret_cast<void*>(slice.address), slice.length_bytes});
  }
  return true;
}

// --- Sends ---------------------------------------------------------------------------------------

LocalRequester::Outcome LocalRequester::execute_send(const WorkRequest& work) {
  if (connection_.peer_matches()) return send_to_match(work);
  if (!receives_.available()) return wait_for_receive(work);
  // A copy, since the peer's memory may change between the check and the use.
  const inbox::Receive& receive = receives_.oldest();
  const bool in_ring = length_bytes_ <= inbox::inline_bytes;
  const std::size_t payload_bytes = in_ring ? length_bytes_ : 0;
  if (!room_for(payload_bytes)) return Outcome::blocked;
  receive_found();
  // The receiver completes with a length error too, so it gets a message that consumes the receive.
  if (length_bytes_ > receive.length_bytes) {
    push(inbox::Kind::send, work, {}, inbox::flag_too_long);
    return fail(work, Status::remote_invalid_request,
                {EndReason::peer_terminated, inbox::End::request_refused});
  }
  if (!(in_ring && takes_whole(receive)) && !map_receive(receive)) return request_access(work);
  // Small payload: one copy by the processor is cheaper than a system call. The receiver copies it
  // again into its buffers.
  if (in_ring) {
    if (push(inbox::Kind::send, work, local_)) return complete(work, Status::success);
    return fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
  }
  const int error = place();
  if (error == EACCES) return request_access(work);
  if (error != 0) return copy_failed(work, error);
  // After the payload is in place: the message completes the receive.
  push(inbox::Kind::placed, work, {});
  return complete(work, Status::success);
}

// The Send is successful only once the peer has invalidated the STag (RFC 5040 §5.3), which its
// device alone can do.
LocalRequester::Outcome LocalRequester::execute_send_invalidate(const WorkRequest& work) {
  if (connection_.peer_matches()) return request_access(work);
  if (!receives_.available()) return wait_for_receive(work);
  receive_found();
  return request_access(work);
}

// The same as map_receive() of the usual receive, which has one piece, where its address is not
// needed.
bool LocalRequester::takes_whole(const inbox::Receive& receive) {
  if (receive.pieces != 1 || length_bytes_ == 0 || receive.first.length_bytes < length_bytes_) {
    return false;
  }
  return receives_.writable(receive.first);
}

// Finds the memory of a receive, as far as the message needs it. Also where the payload goes
// through the ring: a Send that has completed must not be refused later. False where the peer's
// device has to decide.
bool LocalRequester::map_receive(const inbox::Receive& receive) {
  std::uint64_t left = length_bytes_;
  if (left > 0 && receive.pieces > inbox::direct_slices) return false;
  remote_.clear();
  found_.clear();
  for (std::uint32_t i = 0; left > 0; ++i) {
    if (i == receive.pieces) return false;
    const iwarp::LocalSlice slice =
        i == 0 ? receive.first : connection_.peer_slice(receives_.number_of_oldest(), i);
    if (slice.length_bytes == 0) continue;
    const auto found = receives_.look_up(slice);
    if (!found.known || found.fault != Fault::none) return false;
    found_.push_back(found);
    const std::uint64_t part = std::min<std::uint64_t>(slice.length_bytes, left);
    remote_.push_back({reinterpret_cast<void*>(found.address), static_cast<std::size_t>(part)});
    left -= part;
  }
  return true;
}

// Copies the payload of a Send to the receive that map_receive() has found: by plain stores where
// this process maps its memory as well, otherwise by the kernel. Returns as copy().
int LocalRequester::place() {
  std::byte* const at = found_.size() == 1 ? mapped_.find(found_.front()) : nullptr;
  const auto result =
      at ? mapped_.write(found_.front(), at, local_) : MappedAccess::Result::unavailable;
  switch (result) {
    case MappedAccess::Result::done:
      return 0;
    case MappedAccess::Result::withdrawn:
      return EACCES;
    case MappedAccess::Result::local_fault:
      return EFAULT;
    case MappedAccess::Result::unavailable:
      break;
  }
  return copy(RemoteCopy::Purpose::send);
}

// Copies between local_ and remote_, in which look_up() has found found_. EACCES: the peer has
// withdrawn some of it since, so its device has to decide; or this end cannot reach it.
int LocalRequester::copy(RemoteCopy::Purpose purpose) {
  if (connection_.staged()) return EACCES;
  const int failed = connection_.remote().run(purpose, local_, remote_, [this] {
    return std::all_of(found_.begin(), found_.end(), [this](const GrantView::Found& found) {
      return connection_.grants().still_there(found);
    });
  });
  if (failed == EACCES) known_ = {};
  return failed;
}

// Receiver not ready: the peer wakes this end when it posts a receive, and the request fails when
// the retries are over (ibv_modify_qp(3), rnr_retry; the timer is the receiver's).
LocalRequester::Outcome LocalRequester::wait_for_receive(const WorkRequest& work) {
  inbox::Inbox& peer = connection_.peer();
  // Asks for a wake-up and then looks again: a receive that is posted between the two is seen by
  // one of the sides.
  peer.wants_receive.store(1, std::memory_order_seq_cst);
  if (receives_.available()) return execute(work);
  if (!wait_is_over(length_bytes_)) return Outcome::blocked;
  return fail(work, Status::rnr_retry_exceeded,
              {EndReason::peer_terminated, inbox::End::request_refused});
}

// Of the oldest message, which is of this length.
bool LocalRequester::wait_is_over(std::uint64_t length_bytes) {
  const inbox::Inbox& peer = connection_.peer();
  // The iwarp personality has no hold: a missing receive ends the connection (RFC 5041 §7.1).
  const bool holds = peer.hold_bytes.load(std::memory_order_relaxed) != 0;
  if (holds) wait_.begin(length_bytes);
  const std::uint8_t retries = retries_.value_or(peer.retries.load(std::memory_order_relaxed));
  if (holds && retries >= iwarp::rnr_retry_infinite) return false;
  const std::uint64_t now_ns = sys::now_ns();
  if (holds && deadline_ns_ == UINT64_MAX) {
    const std::uint64_t timer_ns = peer.retry_timer_ns.load(std::memory_order_relaxed);
    deadline_ns_ = now_ns + retries * std::min(timer_ns, longest_rnr_timer_ns);
  }
  if (holds && now_ns < deadline_ns_) return false;
  receive_found();
  return true;
}

// Also where the wait for a receive has ended without one.
void LocalRequester::receive_found() {
  deadline_ns_ = UINT64_MAX;
  wait_.end();
}

// Where there is none, the peer wakes this end when it has read messages.
bool LocalRequester::room_for(std::size_t payload_bytes) {
  awaits_room_ = false;
  if (connection_.has_room(payload_bytes)) return true;
  connection_.peer().wants_room.store(1, std::memory_order_relaxed);
  full_barrier();  // the look must not come first
  awaits_room_ = !connection_.has_room(payload_bytes);
  return !awaits_room_;
}

// --- Reads and Writes ----------------------------------------------------------------------------
//
// Those of no bytes go to the peer's device, as over TCP: programs use them to see whether the peer
// still runs.

LocalRequester::Outcome LocalRequester::execute_write(const WorkRequest& work) {
  const bool notifies = work.operation == Operation::write_immediate;
  const bool matched = notifies && connection_.peer_matches();
  if (notifies && !matched && !receives_.available()) return wait_for_receive(work);
  // Checked before the payload is written, because a Write that was placed must not be repeated.
  if (notifies && !room_for(0)) return Outcome::blocked;
  receive_found();
  if (length_bytes_ == 0 && !notifies) return request_access(work);
  if (length_bytes_ > 0) {
    const Outcome outcome = access_directly(work, IBV_ACCESS_REMOTE_WRITE);
    if (outcome != Outcome::done || failure_) return outcome;
  }
  if (notifies) push(inbox::Kind::written, work, {});
  if (!matched) return complete(work, Status::success);
  add_under_way(work);
  return Outcome::done;
}

// The oldest requests, as far as they are small Writes, in one call. Returns how many have
// completed; 0 where there are not two of them, or where one of them cannot be executed like this:
// then they execute one by one, so that the right one fails.
std::size_t LocalRequester::execute_writes() {
  if (pending_.size() < 2 || !is_small_write(pending_[1].request) ||
      !connection_.peer_takes_requests() || is_mapped(pending_.front().request)) {
    return 0;
  }
  local_.clear();
  remote_.clear();
  found_.clear();
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const WorkRequest& work = pending_[i].request;
    if (!is_small_write(work) || !add_write(work)) break;
  }
  const std::size_t done = found_.size();
  if (done < 2 || copy(RemoteCopy::Purpose::write) != 0) return 0;
  for (std::size_t i = 0; i < done; ++i) {
    const WorkRequest& work = pending_[i].request;
    length_bytes_ = remote_[i].iov_len;
    counts_.add(found_[i], iwarp::RemoteRight::write, length_bytes_);
    (void)complete(work, Status::success);
  }
  return done;
}

// False where the Write needs a call of its own.
bool LocalRequester::add_write(const WorkRequest& work) {
  constexpr std::size_t most = inbox::Copy::most_pieces - 1;
  const std::size_t before = local_.size();
  const inbox::Inbox& peer = connection_.peer();
  // One place of the list belongs to the mark of the process: see RemoteCopy.
  if (found_.size() == most || before + work.slices.size() > most || !add_local(work)) return false;
  const auto found = look_up(work, IBV_ACCESS_REMOTE_WRITE);
  if (!found.known || found.fault != Fault::none ||
      (peer.access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_WRITE) == 0) {
    // What was gathered for this Write must not be part of the copy of the others.
    local_.resize(before);
    return false;
  }
  found_.push_back(found);
  remote_.push_back(
      {reinterpret_cast<void*>(found.address), static_cast<std::size_t>(length_bytes_)});
  return true;
}

LocalRequester::Outcome LocalRequester::execute_read(const WorkRequest& work) {
  if (length_bytes_ == 0) return request_access(work);
  const Outcome outcome = access_directly(work, IBV_ACCESS_REMOTE_READ);
  return outcome != Outcome::done || failure_ ? outcome : complete(work, Status::success);
}

// The peer reads it once it sees how the connection has ended.
void LocalRequester::note_refused(const WorkRequest& work, std::uint32_t right) {
  inbox::Refused& refused = connection_.peer().refused;
  const bool writes = right == IBV_ACCESS_REMOTE_WRITE;
  refused.stag.store(work.rkey, std::memory_order_relaxed);
  refused.offset.store(work.remote_address, std::memory_order_relaxed);
  refused.length_bytes.store(length_bytes_, std::memory_order_relaxed);
  refused.right.store(writes ? RemoteRight::write : RemoteRight::read, std::memory_order_relaxed);
}

// Copies to or from the peer's region. `right`: IBV_ACCESS_REMOTE_*. Where it fails, the request
// has completed.
LocalRequester::Outcome LocalRequester::access_directly(const WorkRequest& work,
                                                        std::uint32_t right) {
  inbox::Inbox& peer = connection_.peer();
  const auto found = look_up(work, right);
  // Not in the table: a window, an on-demand region, or an STag that does not exist. The peer's
  // device knows.
  if (!found.known) return request_access(work);
  const bool granted = (peer.access.load(std::memory_order_relaxed) & right) != 0;
  // The same end as over TCP, where the peer would have sent a Terminate.
  if (!granted || found.fault != Fault::none) {
    note_refused(work, right);
    return fail(work, Status::remote_access,
                {EndReason::peer_terminated, inbox::End::access_refused});
  }
  const bool writes = right == IBV_ACCESS_REMOTE_WRITE;
  const RemoteRight kind = writes ? RemoteRight::write : RemoteRight::read;
  const int error = transfer(found, kind);
  if (error == EACCES) return request_access(work);
  if (error != 0) return copy_failed(work, error);
  counts_.add(found, kind, length_bytes_);
  return Outcome::done;
}

// What look_up() has found: by plain loads and stores where both processes map it, otherwise by the
// kernel. Returns as copy().
int LocalRequester::transfer(const GrantView::Found& found, RemoteRight right) {
  using Result = MappedAccess::Result;
  const bool writes = right == RemoteRight::write;
  std::byte* const at = mapped_.find(found);
  const Result result = !at      ? Result::unavailable
                        : writes ? mapped_.write(found, at, local_)
                                 : mapped_.read(found, at, local_);
  if (result == Result::done) return 0;
  if (result == Result::withdrawn) known_ = {};
  if (result == Result::withdrawn) return EACCES;
  if (result == Result::local_fault) return EFAULT;
  found_.assign(1, found);
  remote_.assign(1,
                 {reinterpret_cast<void*>(found.address), static_cast<std::size_t>(length_bytes_)});
  return copy(writes ? RemoteCopy::Purpose::write : RemoteCopy::Purpose::read);
}

GrantView::Found LocalRequester::look_up(const WorkRequest& work, std::uint32_t right) {
  return connection_.grants().look_up({.stag = work.rkey,
                                       .domain = connection_.peer().domain,
                                       .offset = work.remote_address,
                                       .length_bytes = length_bytes_,
                                       .needed = right},
                                      known_);
}

// A Write to memory that is mapped here needs no system call, so it shares none.
bool LocalRequester::is_mapped(const WorkRequest& work) {
  length_bytes_ = iwarp::total_bytes(work.slices);
  const auto found = look_up(work, IBV_ACCESS_REMOTE_WRITE);
  return found.known && found.fault == Fault::none && mapped_.find(found) != nullptr;
}

// Where both processes map the memory, the processor makes the atomic. Otherwise, and for all that
// is to be refused, the peer's device makes it. An atomic write has its operand in memory that may
// fault, and is left to the peer, too.
LocalRequester::Outcome LocalRequester::execute_atomic(const WorkRequest& work) {
  using Result = MappedAccess::Result;
  if (work.operation == Operation::atomic_write) return request_access(work);
  length_bytes_ = sizeof(std::uint64_t);
  const auto found = look_up(work, IBV_ACCESS_REMOTE_ATOMIC);
  const bool granted =
      (connection_.peer().access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_ATOMIC) != 0;
  std::byte* const at =
      granted && found.known && found.fault == Fault::none ? mapped_.find(found) : nullptr;
  length_bytes_ = iwarp::total_bytes(work.slices);
  if (!at || reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) != 0) {
    return request_access(work);
  }
  std::uint64_t value = work.compare_or_add;
  const Result result = work.operation == Operation::fetch_add
                            ? mapped_.fetch_add(found, at, value)
                            : mapped_.compare_swap(found, at, value, work.swap);
  if (result == Result::withdrawn) known_ = {};
  if (result != Result::done) return request_access(work);
  counts_.add(found, RemoteRight::atomic, sizeof value);
  if (guarded_store(local_.front().iov_base, &value, sizeof value)) {
    return complete(work, Status::success);
  }
  return fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
}

// The kernel does not report which side cannot be accessed. A peer that has ended is noticed by its
// channel. EPERM: the peer has given up its user or its rights since the agreement.
LocalRequester::Outcome LocalRequester::copy_failed(const WorkRequest& work, int error) {
  // The process has ended or executes another program; the channel will show it.
  if (error == ESRCH) return Outcome::blocked;
  const bool writes_here = work.operation == iwarp::Operation::read;
  const bool here = std::any_of(local_.begin(), local_.end(), [&](const iovec& piece) {
    return !can_access(piece, writes_here);
  });
  if (here) {
    return fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
  }
  return fail(work, Status::remote_operation,
              {EndReason::peer_terminated, inbox::End::request_refused});
}

// --- Completions ---------------------------------------------------------------------------------

bool LocalRequester::push(inbox::Kind kind, const WorkRequest& work, std::span<const iovec> payload,
                          std::uint8_t flags) {
  if (!connection_.push(header_of(kind, work, flags), payload)) return false;
  // A receive is used up when its message is in the ring, not before: until then the request may
  // still fail.
  if (takes_receive(work.operation)) receives_.claim();
  return true;
}

inbox::MessageHeader LocalRequester::header_of(inbox::Kind kind, const WorkRequest& work,
                                               std::uint8_t flags) const {
  return {.kind = kind,
          .flags = static_cast<std::uint8_t>(flags_of(work) | flags),
          .length_bytes = static_cast<std::uint32_t>(length_bytes_),
          .immediate_be = work.immediate_be,
          .rkey = work.rkey};
}

LocalRequester::Outcome LocalRequester::complete(const WorkRequest& work, Status status) {
  if (status == Status::success && !work.signaled) {
    // Unsignaled: the next completion gives its place back.
    ++silent_;
    return Outcome::done;
  }
  parts_.complete({.wr_id = work.wr_id,
                   .operation = work.operation,
                   .status = status,
                   .length_bytes = static_cast<std::uint32_t>(length_bytes_),
                   .covered = give_covered()});
  return Outcome::done;
}

LocalRequester::Outcome LocalRequester::fail(const WorkRequest& work, Status status,
                                             Failure failure) {
  failure_ = failure;
  return complete(work, status);
}

}  // namespace weft::device
