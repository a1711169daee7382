// Sending and receiving.
#include <algorithm>
#include <limits>

#include "stream/endpoint.h"

namespace weft::stream::detail {
namespace {

// Above that, others may use the stream while bytes are copied.
constexpr std::size_t long_copy_bytes = 4096;

std::uint32_t clamp_to_32_bits(std::size_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(bytes, std::numeric_limits<std::uint32_t>::max()));
}

template <typename Copy>
void copy_unlocked(std::unique_lock<std::mutex>& lock, std::size_t bytes, const Copy& copy) {
  if (bytes < long_copy_bytes) {
    copy();
    return;
  }
  lock.unlock();
  copy();
  lock.lock();
}

Outcome failed(int error) {
  return {Status::failed, 0, error};
}

}  // namespace

Endpoint::Turn::Turn(Endpoint& endpoint, Lock& lock, bool& busy, const Deadline& deadline)
    : endpoint_(endpoint), busy_(busy) {
  taken_ =
      endpoint.wait(lock, deadline, [&] { return !busy || endpoint.closed_; }) && !endpoint.closed_;
  if (taken_) busy_ = true;
}

Endpoint::Turn::~Turn() {
  if (!taken_) return;
  busy_ = false;
  if (endpoint_.sleepers_ > 0 || endpoint_.closed_) endpoint_.changed_.notify_all();
}

// --- Sending -------------------------------------------------------------------------------------

int Endpoint::send_error() const {
  if (closed_) return ECANCELED;
  if (phase_ == Phase::idle) return ENOTCONN;
  if (failure_ != 0) return failure_;
  if (broken_ != 0) return broken_;
  return flow_ && flow_->finished() ? EPIPE : 0;
}

Outcome Endpoint::refuse_send() {
  ++statistics_.refused_sends;
  send_refused_ = true;
  leave();
  return {Status::would_block, 0, 0};
}

template <typename Can, typename Post>
Outcome Endpoint::send_all(Lock& lock, std::size_t bytes, const Deadline& deadline, const Can& can,
                           const Post& post) {
  const Turn turn(*this, lock, sending_, deadline);
  if (!turn.taken()) return closed_ ? failed(ECANCELED) : refuse_send();
  settled_told_ = settled_told_ || !is_connecting();
  send_refused_ = false;
  std::size_t done = 0;
  while (done < bytes) {
    const int error = send_error();
    if (error != 0 && done == 0) {
      leave();
      return failed(error);
    }
    if (error != 0) break;
    const std::size_t posted = phase_ == Phase::open ? post(bytes - done) : 0;
    done += posted;
    if (posted > 0) continue;
    if (!wait(lock, deadline,
              [&] { return send_error() != 0 || (phase_ == Phase::open && can()); }))
      break;
  }
  if (done == 0 && bytes > 0) return refuse_send();
  send_refused_ = done < bytes;
  leave();
  return {Status::ok, done, 0};
}

std::size_t Endpoint::send_piece(Lock& lock, Gather& from, std::size_t most) {
  const Piece piece = flow_->take(clamp_to_32_bits(most));
  if (piece.bytes == 0) return 0;
  copy_unlocked(lock, piece.bytes,
                [&] { from.copy(wire_->send_ring().subspan(piece.from, piece.bytes)); });
  if (const int error = wire_->post_piece(piece)) {
    flow_->sent(piece.bytes);
    break_off(error);
    return 0;
  }
  ++statistics_.data_messages_sent;
  statistics_.bytes_sent += piece.bytes;
  return piece.bytes;
}

Outcome Endpoint::send(Gather from, const Deadline& deadline) {
  Lock lock(mutex_);
  return send_all(
      lock, from.size_bytes(), deadline, [this] { return can_send(); },
      [&](std::size_t left) { return send_piece(lock, from, left); });
}

Outcome Endpoint::send_registered(const verbs::LocalSlice& bytes, const Deadline& deadline) {
  Lock lock(mutex_);
  std::size_t done = 0;
  const auto outcome = send_all(
      lock, bytes.size_bytes(), deadline, [this] { return flow_->can_send_direct(); },
      [&](std::size_t left) -> std::size_t {
        const Piece piece = flow_->take_direct(clamp_to_32_bits(left));
        if (piece.bytes == 0) return 0;
        if (const int error = wire_->post_data(bytes.slice(done, piece.bytes), piece.to, 0)) {
          flow_->sent(0);
          break_off(error);
          return 0;
        }
        done += piece.bytes;
        ++statistics_.data_messages_sent;
        statistics_.bytes_sent += piece.bytes;
        return piece.bytes;
      });
  // The device reads the memory until then; a connection that ends completes everything.
  if (done > 0) wait(lock, Deadline::never(), [this] { return flow_->idle(); });
  return outcome;
}

Outcome Endpoint::peek_send() {
  const Lock lock(mutex_);
  if (!can_send()) process();
  settled_told_ = settled_told_ || !is_connecting();
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
  return flow_ && (flow_->readable() > 0 || (flow_->end_seen() && !end_told_));
}

int Endpoint::receive_error() const {
  if (closed_) return ECANCELED;
  if (phase_ == Phase::idle) return ENOTCONN;
  if (failure_ != 0) return failure_;
  if (end_told_) return ESHUTDOWN;
  return broken_;
}

std::size_t Endpoint::receive_some(Lock& lock, Scatter& into, std::size_t most, bool peek) {
  const auto ring = wire_->receive_ring();
  std::size_t done = 0;
  std::uint32_t at = flow_->read_at();
  std::size_t left = std::min<std::size_t>(most, flow_->readable());
  while (left > 0) {
    const std::size_t bytes = std::min(left, ring.size() - at);
    copy_unlocked(lock, bytes, [&] { into.copy(ring.subspan(at, bytes)); });
    if (!peek) flow_->read(static_cast<std::uint32_t>(bytes));
    at = 0;
    done += bytes;
    left -= bytes;
  }
  if (!peek && done > 0) push_control();
  return done;
}

Outcome Endpoint::nothing_received(bool peek) {
  Outcome outcome{Status::would_block, 0, 0};
  if (!closed_ && has_bytes_or_end()) {  // no bytes: or they would have been received
    outcome.status = Status::end;
    if (!peek) end_told_ = true;
  } else if (const int error = receive_error()) {
    outcome = failed(error);
  }
  leave();
  return outcome;
}

Outcome Endpoint::receive(Scatter into, const Deadline& deadline, ReceiveFlags flags) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, receiving_, deadline);
  if (!turn.taken()) return closed_ ? failed(ECANCELED) : Outcome{Status::would_block, 0, 0};
  settled_told_ = settled_told_ || !is_connecting();
  const std::size_t total = into.size_bytes();
  std::size_t done = 0;
  while (done < total) {
    std::size_t enough = 1;
    if (flags.peek && flags.wait_all && flow_) {
      enough = std::min<std::size_t>(total, flow_->sizes().receive_ring_bytes);
    }
    const auto over = [&] { return receive_error() != 0 || (flow_ && flow_->end_seen()); };
    const bool waited =
        wait(lock, deadline, [&] { return over() || (flow_ && flow_->readable() >= enough); });
    if (closed_ || !flow_ || flow_->readable() == 0) break;
    done += receive_some(lock, into, total - done, flags.peek);
    if (!waited || flags.peek || !flags.wait_all) break;
  }
  if (done == 0 && total > 0) return nothing_received(flags.peek);
  leave();
  return {Status::ok, done, 0};
}

Outcome Endpoint::peek_receive() {
  const Lock lock(mutex_);
  process();
  settled_told_ = settled_told_ || !is_connecting();
  const bool ready = has_bytes_or_end() || receive_error() != 0;
  leave();
  return {ready ? Status::ok : Status::would_block, 0, 0};
}

std::size_t Endpoint::bytes_available() {
  const Lock lock(mutex_);
  process();
  leave();
  return flow_ ? flow_->readable() : 0;
}

Statistics Endpoint::statistics() {
  const Lock lock(mutex_);
  return statistics_;
}

// --- Mapped buffers ------------------------------------------------------------------------------

void Endpoint::change_row(Lock& lock, std::uint32_t row, const Mapping& mapping,
                          const Deadline& deadline) {
  const auto ready = [this] {
    return send_error() != 0 || (phase_ == Phase::open && flow_->can_send_message());
  };
  if (!wait(lock, deadline, ready))
    throw Error(EAGAIN, "the peer has no receive for a mapping now");
  if (const int error = send_error()) throw Error(error, "cannot tell the peer of a mapping");
  if (!flow_->take_message()) throw Error(EAGAIN, "the peer has no receive for a mapping now");
  const auto bytes = mapping.to_row().to_bytes();
  if (const int error = wire_->post_row(row, bytes)) {
    flow_->sent(0);
    break_off(error);
    throw Error(error, "cannot tell the peer of a mapping");
  }
  wait(lock, Deadline::never(), [this] { return flow_->idle(); });
}

std::int64_t Endpoint::map_buffer(std::span<std::byte> memory, std::int64_t offset,
                                  const Deadline& deadline) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, sending_, deadline);
  if (!turn.taken()) throw Error(closed_ ? ECANCELED : EAGAIN, "another call is sending");
  if (!wait(lock, deadline, [this] { return phase_ == Phase::open || send_error() != 0; })) {
    throw Error(EAGAIN, "the stream is not connected yet");
  }
  if (const int error = send_error()) throw Error(error, "cannot map a buffer");
  if (memory.empty()) throw Error(EINVAL, "cannot map a buffer of no bytes");
  const auto at = offset < 0 ? ours_.next_offset() : static_cast<std::uint64_t>(offset);
  if (ours_.overlaps(at, memory.size())) throw Error(EINVAL, "the offsets are mapped already");
  const auto row = ours_.free_row();
  if (!row) throw Error(ENOBUFS, "the peer has no room for another mapped buffer");
  auto region = std::make_shared<verbs::TypedRegion<std::byte>>(
      wire_->domain().register_memory(memory, verbs::Access::remote_write));
  const Mapping mapping{at, region->remote(), region};
  ours_.set(*row, mapping);
  change_row(lock, *row, mapping, deadline);
  leave();
  return static_cast<std::int64_t>(at);
}

void Endpoint::unmap_buffer(std::span<const std::byte> memory, const Deadline& deadline) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, sending_, deadline);
  if (!turn.taken()) throw Error(closed_ ? ECANCELED : EAGAIN, "another call is sending");
  const auto row = ours_.find(reinterpret_cast<std::uint64_t>(memory.data()), memory.size());
  if (!row) throw Error(EINVAL, "the buffer is not mapped");
  if (send_error() == 0) change_row(lock, *row, {}, deadline);
  ours_.set(*row, {});
  leave();
}

Outcome Endpoint::write_mapped(std::span<const std::byte> bytes, std::uint64_t offset,
                               const Deadline& deadline) {
  Lock lock(mutex_);
  process();
  const auto target = theirs_.at(offset, bytes.size());
  if (!target && send_error() == 0) return failed(EFAULT);
  std::size_t done = 0;
  return send_all(
      lock, bytes.size(), deadline, [this] { return flow_->can_send_aside(); },
      [&](std::size_t left) -> std::size_t {
        const Piece piece = flow_->take_aside(clamp_to_32_bits(left));
        if (piece.bytes == 0) return 0;
        std::ranges::copy(bytes.subspan(done, piece.bytes),
                          wire_->send_ring().subspan(piece.from, piece.bytes).begin());
        if (const int error = wire_->post_aside(piece, target->slice(done, piece.bytes))) {
          flow_->sent(piece.bytes);
          break_off(error);
          return 0;
        }
        done += piece.bytes;
        return piece.bytes;
      });
}

// --- The end -------------------------------------------------------------------------------------

void Endpoint::finish() {
  Lock lock(mutex_);
  const Turn turn(*this, lock, sending_, Deadline::never());
  if (!turn.taken()) throw Error(ECANCELED, "the stream was closed");
  wait(lock, Deadline::never(), [this] { return phase_ == Phase::open || send_error() != 0; });
  if (const int error = send_error()) {
    if (error == EPIPE) return;  // done before
    throw Error(error == ECONNRESET ? ENOTCONN : error, "cannot finish a stream");
  }
  flow_->finish();
  push_control();
  leave();
}

bool Endpoint::close(const Deadline& deadline) {
  Lock lock(mutex_);
  if (closed_) {
    wait(lock, Deadline::never(), [this] { return phase_ == Phase::over; });
    return clean_;
  }
  closed_ = true;
  changed_.notify_all();
  tell();
  wait(lock, Deadline::never(), [this] { return !sending_ && !receiving_; });
  if (flow_ && phase_ == Phase::open && broken_ == 0) {
    flow_->finish();
    push_control();
    wait(lock, deadline, [this] { return flow_->all_sent() || broken_ != 0; });
  }
  clean_ = !flow_ || (flow_->all_sent() && flow_->finished()) || failure_ != 0;
  disconnect();
  phase_ = Phase::over;
  changed_.notify_all();
  leave_pump();
  return clean_;
}

void Endpoint::abort() {
  const Lock lock(mutex_);
  if (!closed_ && broken_ == 0) {
    disconnect();
    fail_connecting(ECANCELED, "the attempt was given up");
    break_off(ECANCELED);
  }
  clean_ = false;
  tell();
}

}  // namespace weft::stream::detail
