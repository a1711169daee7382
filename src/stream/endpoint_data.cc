// Sending and receiving: how calls wait for their turn, for room and for bytes, and what they
// return.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "stream/endpoint.h"
#include "weft/error.hpp"

namespace weft::stream::detail {
namespace {

Transfer failed(int error) {
  return {TransferStatus::failed, 0, error};
}

}  // namespace

// Calls take turns in no particular order: whichever thread wakes up first takes it.
Endpoint::Turn::Turn(Endpoint& endpoint, Lock& lock, bool& busy, const Deadline& deadline)
    : endpoint_(endpoint), busy_(busy) {
  taken_ =
      endpoint.wait(lock, deadline, [&] { return !busy || endpoint.closed_; }) && !endpoint.closed_;
  if (taken_) busy_ = true;
}

// Where no call sleeps there is nothing to wake, which saves a system call for each transfer.
Endpoint::Turn::~Turn() {
  if (!taken_) return;
  busy_ = false;
  if (endpoint_.sleepers_ > 0 || endpoint_.closed_) endpoint_.changed_.notify_all();
}

// Any call that moves bytes shows the program whether the connection was established.
void Endpoint::note_result_reported() {
  result_reported_ = result_reported_ || !connector_.is_connecting();
}

// --- Sending -------------------------------------------------------------------------------------

// EPIPE only after the errors of the connection: it means that this side has called finish().
int Endpoint::send_error() const {
  if (closed_) return ECANCELED;
  if (connector_.phase() == Phase::idle) return ENOTCONN;
  if (connector_.failure().error != 0) return connector_.failure().error;
  if (channel_.error() != 0) return channel_.error();
  return channel_.is_open() && channel_.flow().finished() ? EPIPE : 0;
}

// From now on the descriptor reports when a send can go on.
Transfer Endpoint::refuse_send() {
  ++channel_.statistics().refused_sends;
  send_refused_ = true;
  leave();
  return {TransferStatus::would_block, 0, 0};
}

// Takes the turn, then calls `post` with the number of bytes left, which returns how many it has
// posted. Between calls it waits until `can` returns that `post` may succeed. An error after the
// first byte ends the call with what was sent; the next call returns the error.
template <typename Can, typename Post>
Transfer Endpoint::send_all(Lock& lock, std::size_t bytes, const Deadline& deadline, const Can& can,
                            const Post& post) {
  const Turn turn(*this, lock, sending_, deadline);
  if (!turn.taken()) return closed_ ? failed(ECANCELED) : refuse_send();
  note_result_reported();
  send_refused_ = false;
  // A stream has no message boundaries, so a call may end with a part of its bytes, as send(2).
  std::size_t done = 0;
  while (done < bytes) {
    const int error = send_error();
    if (error != 0 && done == 0) {
      leave();
      return failed(error);
    }
    if (error != 0) break;
    // A send during the connection attempt waits for its outcome like one that has no room.
    const std::size_t posted = connector_.phase() == Phase::open ? post(bytes - done) : 0;
    done += posted;
    if (posted > 0) continue;
    const auto ready = [&] {
      return send_error() != 0 || finishing_ || (connector_.phase() == Phase::open && can());
    };
    if (!wait(lock, deadline, ready) || finishing_) break;
  }
  if (done == 0 && bytes > 0) return finishing_ ? failed(EPIPE) : refuse_send();
  send_refused_ = done < bytes;
  if (channel_.idle_rings().wants_check()) plan_idle_check();
  leave();
  return {TransferStatus::ok, done, 0};
}

Transfer Endpoint::send(Gather from, const Deadline& deadline) {
  Lock lock(mutex_);
  return send_all(
      lock, from.size_bytes(), deadline, [this] { return can_send(); },
      [&](std::size_t left) { return channel_.send_piece(lock, from, left); });
}

Transfer Endpoint::send_registered(const verbs::LocalSlice& bytes, const Deadline& deadline) {
  Lock lock(mutex_);
  std::size_t done = 0;
  const auto outcome = send_all(
      lock, bytes.size_bytes(), deadline,
      [this] { return channel_.flow().can_send_direct() || channel_.flow().can_grow(); },
      [&](std::size_t) {
        const std::size_t posted = channel_.send_registered(lock, bytes, done);
        done += posted;
        return posted;
      });
  // The device reads the memory until the requests complete.
  if (done > 0) await_completion(lock);
  return outcome;
}

// Waits until what this call has posted is complete, whatever other calls post meanwhile. That ends
// without a deadline: a connection that breaks completes all requests, and close() breaks it at its
// own deadline.
void Endpoint::await_completion(Lock& lock) {
  const std::uint64_t last = channel_.flow().last_taken();
  const auto note = [&](int change) {
    completing_ += change;
    if (closed_) changed_.notify_all();  // close() waits for it
  };
  note(1);
  wait(lock, Deadline::never(), [&] { return channel_.flow().has_completed(last); });
  note(-1);
}

Transfer Endpoint::write_mapped(std::span<const std::byte> bytes, std::uint64_t offset,
                                const Deadline& deadline) {
  Lock lock(mutex_);
  process();  // the mapping may have just arrived
  const auto target = channel_.peer_maps().at(offset, bytes.size());
  // Where the connection has failed its error is returned instead.
  if (!target && send_error() == 0) return failed(EFAULT);
  std::size_t done = 0;
  return send_all(
      lock, bytes.size(), deadline, [this] { return channel_.flow().can_send_mapped(); },
      [&](std::size_t) {
        const std::size_t posted = channel_.write_mapped(bytes, *target, done);
        done += posted;
        return posted;
      });
}

// A call that sends in another thread counts as would_block: it may use up the room.
Transfer Endpoint::peek_send() {
  const Lock lock(mutex_);
  if (!can_send()) process();
  note_result_reported();
  if (const int error = send_error()) {
    leave();
    return failed(error);
  }
  if (!can_send() || sending_) return refuse_send();
  send_refused_ = false;
  leave();
  return {};
}

// --- Receiving -----------------------------------------------------------------------------------

bool Endpoint::has_bytes_or_end() const {
  return channel_.readable() > 0 || is_at_end();
}

int Endpoint::receive_error() const {
  if (closed_) return ECANCELED;
  if (connector_.phase() == Phase::idle) return ENOTCONN;
  if (connector_.failure().error != 0) return connector_.failure().error;
  return channel_.error();
}

// The outcome of a call that has found no bytes. Each call returns the end, as recv(2) does; the
// first one that does not only peek has reported it.
Transfer Endpoint::nothing_received(bool peek) {
  Transfer outcome{TransferStatus::would_block, 0, 0};
  if (!closed_ && has_bytes_or_end()) {  // the end: bytes would have been received
    outcome.status = TransferStatus::end;
    if (!peek) end_reported_ = true;
  } else if (const int error = receive_error()) {
    outcome = failed(error);
  }
  leave();
  return outcome;
}

// Bytes that have arrived are returned before any error. With `wait_all` and `peek` together no
// byte leaves the ring, so a ring without room for more must be enough.
Transfer Endpoint::receive(Scatter into, const Deadline& deadline, ReceiveFlags flags) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, receiving_, deadline);
  if (!turn.taken())
    return closed_ ? failed(ECANCELED) : Transfer{TransferStatus::would_block, 0, 0};
  note_result_reported();
  const std::size_t total = into.size_bytes();
  // After a bell no thread has looked for the bytes that it announces.
  if (channel_.readable() < total && channel_.sees_changes()) process_placed();
  std::size_t done = 0;
  while (done < total) {
    // Any byte is enough, but for a peek that wants all of them at once.
    const bool waited = await_bytes(lock, deadline, flags.peek && flags.wait_all ? total : 1);
    if (closed_ || channel_.readable() == 0) break;
    done += channel_.receive_some(lock, into, total - done, flags.peek);
    // As recv(2): without MSG_WAITALL a call returns what there is.
    if (!waited || flags.peek || !flags.wait_all) break;
  }
  if (done == 0 && total > 0) return nothing_received(flags.peek);
  if (!flags.peek) viewed_bytes_ = 0;
  leave();
  return {TransferStatus::ok, done, 0};
}

// False at the deadline; true also where no more bytes will come.
bool Endpoint::await_bytes(Lock& lock, const Deadline& deadline, std::size_t enough) {
  const auto ready = [&] {
    return receive_error() != 0 || is_at_end() || channel_.has_enough(enough);
  };
  if (enough == 1 || ready()) return wait(lock, deadline, ready);
  channel_.want(enough);
  const bool waited = wait(lock, deadline, ready);
  channel_.want(0);
  return waited;
}

View Endpoint::view(const Deadline& deadline) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, receiving_, deadline);
  if (!turn.taken())
    return {closed_ ? failed(ECANCELED) : Transfer{TransferStatus::would_block, 0, 0}, {}};
  note_result_reported();
  if (channel_.readable() == 0 && channel_.sees_changes()) process_placed();
  (void)await_bytes(lock, deadline, 1);
  viewed_bytes_ = 0;
  if (closed_ || channel_.readable() == 0) return {nothing_received(false), {}};
  const auto bytes = channel_.unread();
  viewed_bytes_ = bytes.size();
  leave();
  return {{TransferStatus::ok, bytes.size(), 0}, bytes};
}

void Endpoint::consume(std::size_t bytes) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, receiving_, Deadline::never());
  if (bytes > viewed_bytes_) {
    throw Error(EINVAL, fmt::format("a stream cannot consume {} bytes: its view has {}", bytes,
                                    viewed_bytes_));
  }
  if (!turn.taken()) return;  // closed, so the ring is no more
  viewed_bytes_ -= bytes;
  channel_.consume(bytes);
  leave();
}

Transfer Endpoint::peek_receive() {
  const Lock lock(mutex_);
  process();
  note_result_reported();
  const bool ready = has_bytes_or_end() || receive_error() != 0;
  leave();
  return {ready ? TransferStatus::ok : TransferStatus::would_block, 0, 0};
}

std::size_t Endpoint::bytes_available() {
  const Lock lock(mutex_);
  process();
  leave();
  return channel_.readable();
}

}  // namespace weft::stream::detail
