// The queue pair's socket: from readiness to placements and completions.
#include <cerrno>

#include "device/datagram/datagrams.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/queue_pair_turn.h"

namespace weft::device {

void QueuePair::on_ready(std::uint32_t /*events*/) {
  const Turn turn(*this);
  run();
}

void QueuePair::on_ready_in_wait(std::uint32_t /*events*/) {
  const Turn turn(*this);
  if (stream_) drive_stream(true);
}

void QueuePair::drive_inline() {
  if (is_datagram()) return context_.device().datagrams().drive_inline(handle_.qp.qp_num);
  const Attention attention(*this);
  bool waits = false;
  {
    // Somebody else is at it: what they bring in will be there at the next poll.
    const Turn turn(*this, std::try_to_lock);
    if (!turn.owns()) return;
    waits = !stream_ && pairing_;
    if (stream_) drive_stream(false);
  }
  // Without a thread nobody else brings about the connection.
  if (waits && context_.engine().mode() == ProgressMode::manual) context_.engine().poll();
}

void QueuePair::drive_stream(bool waiting) {
  if (answers_put_off_ && !context_.engine().application_waits()) return run();
  receive_available();
  if (!put_off_answers(waiting)) finish_turn();
}

void QueuePair::on_put_off() {
  const Turn turn(*this);
  if (answers_put_off_) run();
}

// The proofs that a peer waits for may go out with what the program is likely to post now that it
// sees what came in. It polls again first, or waits (see Engine::wait())? Then they go at once. It
// does neither? Then the progress thread sends them. It exits? Then the peer's TCP knows that
// everything arrived.
bool QueuePair::put_off_answers(bool waiting) {
  if (stream_->ended() || !waiting_.empty() || !stream_->only_proofs_due()) return false;
  if (!answers_put_off_) answers_put_off_ = context_.engine().put_off(weak_from_this(), waiting);
  return answers_put_off_;
}

void QueuePair::end_put_off() {
  if (std::exchange(answers_put_off_, false)) context_.engine().put_off_done();
}

// Everything received is processed, and the answers to it are written, before the completions of
// this turn become visible: the program may exit right after it has seen its last one.
void QueuePair::run() {
  if (!stream_) return;
  receive_available();
  finish_turn();
}

void QueuePair::finish_turn() {
  if (confirmed_ && !stream_->ended() && handle_.qp.state != IBV_QPS_SQD) release_waiting();
  if (stream_->needs_time()) keep_time();
  send_available();
  note_credit();
  note_drained();
  if (stream_->ended()) on_stream_over();
}

void QueuePair::receive_available() {
  for (int i = 0; i < limits::reads_per_turn; ++i) {
    planned_.clear();
    stream_->plan_receive(planned_);
    if (planned_.empty()) return;
    std::size_t room = 0;
    for (const auto& piece : planned_) room += piece.iov_len;
    const auto got = socket_.receive(planned_);
    if (got <= 0) return on_receive_error(static_cast<int>(-got));
    stream_->received(static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) < room) return;
  }
}

void QueuePair::on_receive_error(int error) {
  if (error == EAGAIN || error == EINTR) return;
  if (error == EFAULT) {
    stream_->memory_lost();  // memory was unmapped under its registration
    return;
  }
  lose_stream();
}

void QueuePair::lose_stream() {
  const std::uint64_t acknowledged = socket_.acknowledged_bytes();
  stream_->peer_closed(acknowledged > stream_base_ ? acknowledged - stream_base_ : 0);
}

void QueuePair::send_available() {
  end_put_off();
  while (true) {
    const auto pieces = stream_->plan_send();
    if (pieces.empty()) break;
    const auto sent = socket_.send(pieces);
    if (sent == -EINTR) continue;
    if (sent == -EAGAIN) return want_write(true);
    if (sent == -EFAULT) {
      stream_->memory_lost();
      return;
    }
    if (sent < 0) {
      // The peer is gone; it may have said why before it went.
      receive_available();
      if (!stream_->ended()) lose_stream();
      return;
    }
    stream_->sent(static_cast<std::size_t>(sent));
    follow_segment_size(static_cast<std::size_t>(sent));
  }
  want_write(false);
}

// RFC 5044 §3: the FPDU size follows TCP's segment size, which is small until TCP has seen the
// peer's window grow, and shrinks when a router says so.
void QueuePair::follow_segment_size(std::size_t sent_bytes) {
  constexpr std::size_t look_every_bytes = 256 * 1024;
  sent_since_look_ += sent_bytes;
  if (sent_since_look_ < look_every_bytes) return;
  sent_since_look_ = 0;
  stream_->set_mulpdu_bytes(socket_.mulpdu_bytes(send_markers_));
}

void QueuePair::want_write(bool wanted) {
  if (writing_ == wanted || token_ == 0) return;
  writing_ = wanted;
  std::uint32_t events = EPOLLIN;
  if (wanted) events |= EPOLLOUT;
  context_.engine().change(token_, events);
}

}  // namespace weft::device
