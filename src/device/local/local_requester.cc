#include "device/local/local_requester.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "iwarp/receiver_not_ready.h"
#include "iwarp/scatter.h"

namespace weft::device {
namespace {

using iwarp::EndReason;
using iwarp::Fault;
using iwarp::Operation;
using iwarp::Status;
using iwarp::WorkRequest;

// A region of the peer, looked up for one access. `known`: the table has it; otherwise only the
// peer's device can tell.
struct Found {
  bool known = false;
  Fault fault = Fault::none;
  std::uint64_t address = 0;
};

// The checks of check_remote() and check_local(), in their order. `needed`: access rights of the
// region; `granted`: what the queue pair allows.
Found look_up(const LocalConnection& connection, const GrantView& grants, std::uint32_t stag,
              std::uint64_t offset, std::uint64_t length_bytes, std::uint32_t needed,
              std::uint32_t granted) {
  const Grant* grant = grants.find(stag);
  if (!grant) return {};
  if (grant->domain != connection.peer().domain) return {true, Fault::foreign_domain};
  if ((grant->access & needed) != needed || (granted & needed) != needed) {
    return {true, Fault::access};
  }
  if (offset + length_bytes < offset) return {true, Fault::wrap};
  if (offset < grant->iova || offset - grant->iova > grant->length_bytes ||
      length_bytes > grant->length_bytes - (offset - grant->iova)) {
    return {true, Fault::bounds};
  }
  return {true, Fault::none, grant->base + (offset - grant->iova)};
}

constexpr std::uint32_t every_right = ~std::uint32_t{0};

std::uint8_t flags_of(const WorkRequest& work) {
  std::uint8_t flags = work.solicited ? inbox::flag_solicited : 0;
  if (work.operation == Operation::send_immediate || work.operation == Operation::write_immediate) {
    flags |= inbox::flag_immediate;
  }
  if (work.operation == Operation::send_invalidate) flags |= inbox::flag_invalidate;
  return flags;
}

}  // namespace

void LocalRequester::post(const WorkRequest& work) {
  if (pending_.empty() && !failure_ && execute(work) == Outcome::done) return;
  pending_.emplace_back(work);
  advance();
}

void LocalRequester::advance() {
  while (!pending_.empty() && !failure_ && !reply_awaited_) {
    stored_ = true;
    const Outcome outcome = execute(pending_.front().request);
    stored_ = false;
    if (outcome == Outcome::blocked) return;
    pending_.pop_front();
  }
}

LocalRequester::Outcome LocalRequester::execute(const WorkRequest& work) {
  if (!connection_.peer().open.load(std::memory_order_acquire)) return Outcome::blocked;
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
      if (work.remote_address % 8 == 0) return request_access(work);
      return fail(work, Status::remote_invalid_request,
                  {EndReason::peer_terminated, inbox::End::access_refused});
    default:
      return execute_send(work);
  }
}

// The memory of this side that the request names.
bool LocalRequester::gather(const WorkRequest& work) {
  local_.clear();
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
  if (!receive_available()) return wait_for_receive(work);
  const inbox::Receive receive = connection_.peer_receive(claimed_);
  const bool in_ring = length_bytes_ <= inbox::inline_bytes;
  const std::size_t payload_bytes = in_ring ? length_bytes_ : 0;
  if (!connection_.has_room(payload_bytes)) return wait_for_room(work, payload_bytes);
  deadline_ns_ = UINT64_MAX;
  if (length_bytes_ > receive.length_bytes) {
    push(inbox::Kind::send, work, {}, inbox::flag_too_long);
    return fail(work, Status::remote_invalid_request,
                {EndReason::peer_terminated, inbox::End::receive_refused});
  }
  if (in_ring) {
    push(inbox::Kind::send, work, local_);
    return complete(work, Status::success);
  }
  int error = 0;
  if (!place_in_receive(receive, length_bytes_, error)) return request_access(work);
  if (error != 0) return copy_failed(work, error);
  push(inbox::Kind::placed, work, {});
  return complete(work, Status::success);
}

bool LocalRequester::receive_available() const {
  return connection_.peer().receives.load(std::memory_order_acquire) != claimed_;
}

// False where the payload must be fetched by the peer's device.
bool LocalRequester::place_in_receive(const inbox::Receive& receive, std::uint64_t length_bytes,
                                      int& error) {
  if (receive.pieces > inbox::direct_slices) return false;
  const LocalAccess access(connection_.peer());
  remote_.clear();
  for (std::uint32_t i = 0; i < receive.pieces && length_bytes > 0; ++i) {
    const iwarp::LocalSlice& slice = receive.slices[i];
    const Found found = look_up(connection_, connection_.other().grants, slice.lkey, slice.address,
                                slice.length_bytes, IBV_ACCESS_LOCAL_WRITE, every_right);
    if (!found.known || found.fault != Fault::none) return false;
    const std::uint64_t part = std::min<std::uint64_t>(slice.length_bytes, length_bytes);
    remote_.push_back({reinterpret_cast<void*>(found.address), static_cast<std::size_t>(part)});
    length_bytes -= part;
  }
  error = connection_.other().process.write(local_, remote_);
  return true;
}

// Receiver not ready: the peer wakes this end when it posts a receive, and the request fails when
// the retries are over (ibv_modify_qp(3), rnr_retry; the timer is the receiver's).
LocalRequester::Outcome LocalRequester::wait_for_receive(const WorkRequest& work) {
  inbox::Inbox& peer = connection_.peer();
  peer.wants_receive.store(true, std::memory_order_seq_cst);
  if (receive_available()) return execute(work);
  const std::uint8_t retries = parts_.attributes.rnr_retry;
  if (holds_ && retries == iwarp::rnr_retry_infinite) return Outcome::blocked;
  const std::uint64_t now_ns = sys::now_ns();
  if (holds_ && deadline_ns_ == UINT64_MAX) {
    deadline_ns_ = now_ns + retries * peer.retry_timer_ns.load(std::memory_order_relaxed);
  }
  if (holds_ && now_ns < deadline_ns_) return Outcome::blocked;
  deadline_ns_ = UINT64_MAX;
  return fail(work, Status::rnr_retry_exceeded, {EndReason::peer_terminated, inbox::End::gave_up});
}

// The peer wakes this end when it has read messages.
LocalRequester::Outcome LocalRequester::wait_for_room(const WorkRequest& work,
                                                      std::size_t payload_bytes) {
  connection_.peer().wants_room.store(true, std::memory_order_seq_cst);
  return connection_.has_room(payload_bytes) ? execute(work) : Outcome::blocked;
}

// --- Reads and Writes ----------------------------------------------------------------------------

LocalRequester::Outcome LocalRequester::execute_write(const WorkRequest& work) {
  const bool notifies = work.operation == Operation::write_immediate;
  if (notifies && !receive_available()) return wait_for_receive(work);
  if (notifies && !connection_.has_room(0)) return wait_for_room(work, 0);
  deadline_ns_ = UINT64_MAX;
  inbox::Inbox& peer = connection_.peer();
  if (length_bytes_ > 0) {
    const LocalAccess access(peer);
    const Found found =
        look_up(connection_, connection_.other().grants, work.rkey, work.remote_address,
                length_bytes_, IBV_ACCESS_REMOTE_WRITE, peer.access.load());
    if (!found.known) return request_access(work);
    if (found.fault != Fault::none) {
      return fail(work, Status::remote_access,
                  {EndReason::peer_terminated, inbox::End::access_refused});
    }
    const iovec to{reinterpret_cast<void*>(found.address), static_cast<std::size_t>(length_bytes_)};
    const int error = connection_.other().process.write(local_, {&to, 1});
    if (error != 0) return copy_failed(work, error);
  }
  peer.writes.operations.fetch_add(1, std::memory_order_relaxed);
  peer.writes.bytes.fetch_add(length_bytes_, std::memory_order_relaxed);
  if (notifies) push(inbox::Kind::written, work, {});
  return complete(work, Status::success);
}

LocalRequester::Outcome LocalRequester::execute_read(const WorkRequest& work) {
  inbox::Inbox& peer = connection_.peer();
  if (length_bytes_ > 0) {
    const LocalAccess access(peer);
    const Found found =
        look_up(connection_, connection_.other().grants, work.rkey, work.remote_address,
                length_bytes_, IBV_ACCESS_REMOTE_READ, peer.access.load());
    if (!found.known) return request_access(work);
    if (found.fault != Fault::none) {
      return fail(work, Status::remote_access,
                  {EndReason::peer_terminated, inbox::End::access_refused});
    }
    const iovec from{reinterpret_cast<void*>(found.address),
                     static_cast<std::size_t>(length_bytes_)};
    const int error = connection_.other().process.read(local_, {&from, 1});
    if (error != 0) return copy_failed(work, error);
  }
  peer.reads.operations.fetch_add(1, std::memory_order_relaxed);
  peer.reads.bytes.fetch_add(length_bytes_, std::memory_order_relaxed);
  return complete(work, Status::success);
}

// The kernel does not say which side is not mapped. A peer that has ended is noticed by its
// channel.
LocalRequester::Outcome LocalRequester::copy_failed(const WorkRequest& work, int error) {
  if (error != EFAULT) return Outcome::blocked;
  const bool here = std::any_of(local_.begin(), local_.end(), [](const iovec& piece) {
    return check_mapped(piece.iov_base, piece.iov_len) != 0;
  });
  if (here) {
    return fail(work, Status::local_protection, {EndReason::local_error, inbox::End::closed});
  }
  return fail(work, Status::remote_operation,
              {EndReason::peer_terminated, inbox::End::access_refused});
}

// --- Accesses that the peer's device makes -------------------------------------------------------

// The peer's device reads the data later, so inline data must be a copy by then.
LocalRequester::Outcome LocalRequester::request_access(const WorkRequest& work) {
  if (work.inline_data && !stored_) return Outcome::blocked;
  std::array<inbox::Piece, 64> pieces;
  if (local_.size() > pieces.size()) {
    return fail(work, Status::local_operation, {EndReason::local_error, inbox::End::closed});
  }
  inbox::AccessRequest request{.operation = work.operation,
                               .flags = flags_of(work),
                               .pieces = static_cast<std::uint16_t>(local_.size()),
                               .stag = work.rkey,
                               .offset = work.remote_address,
                               .length_bytes = length_bytes_,
                               .compare_or_add = work.compare_or_add,
                               .swap = work.swap};
  for (std::size_t i = 0; i < local_.size(); ++i) {
    pieces[i] = {reinterpret_cast<std::uint64_t>(local_[i].iov_base), local_[i].iov_len};
  }
  const std::array<iovec, 2> payload{iovec{&request, sizeof request},
                                     iovec{pieces.data(), local_.size() * sizeof(inbox::Piece)}};
  const std::size_t payload_bytes = payload[0].iov_len + payload[1].iov_len;
  if (!connection_.has_room(payload_bytes)) return wait_for_room(work, payload_bytes);
  push(inbox::Kind::request, work, payload);
  connection_.wake();  // the answer must not wait for the peer's program to poll
  reply_awaited_ = true;
  return Outcome::blocked;
}

void LocalRequester::take_reply(const inbox::AccessReply& reply) {
  if (!reply_awaited_ || pending_.empty()) return;
  reply_awaited_ = false;
  const WorkRequest& work = pending_.front().request;
  if (reply.fault != Fault::none) {
    (void)fail(work, Status::remote_access, {EndReason::peer_terminated, inbox::End::none});
  } else if (is_atomic(work.operation) && fetches(work.operation)) {
    const bool found = gather(work);
    if (found) std::memcpy(local_.front().iov_base, &reply.original, sizeof reply.original);
    (void)(found ? complete(work, Status::success)
                 : fail(work, Status::local_protection,
                        {EndReason::local_error, inbox::End::closed}));
  } else {
    length_bytes_ = iwarp::total_bytes(work.slices);
    (void)complete(work, Status::success);
  }
  pending_.pop_front();
  advance();
}

// --- Completions ---------------------------------------------------------------------------------

void LocalRequester::push(inbox::Kind kind, const WorkRequest& work, std::span<const iovec> payload,
                          std::uint8_t flags) {
  if (takes_receive(work.operation)) ++claimed_;
  connection_.push({.kind = kind,
                    .flags = static_cast<std::uint8_t>(flags_of(work) | flags),
                    .length_bytes = static_cast<std::uint32_t>(length_bytes_),
                    .immediate_be = work.immediate_be,
                    .rkey = work.rkey},
                   payload);
}

LocalRequester::Outcome LocalRequester::complete(const WorkRequest& work, Status status) {
  if (status == Status::success && !work.signaled) {
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
