// The queue pair's socket: from readiness to placements and completions.
#include <cerrno>

#include "device/limits.h"
#include "device/queue_pair.h"
#include "device/queue_pair_turn.h"

namespace weft::device {

void QueuePair::on_ready(std::uint32_t /*events*/) {
  const Turn turn(*this);
  run();
}

void QueuePair::drive_inline() {
  note_attended();
  // Somebody else is at it: what they bring in will be there at the next poll.
  const Turn turn(*this, std::try_to_lock);
  if (turn.owns()) run();
}

// Everything received is processed, and the answers to it are written, before the completions of
// this turn become visible: the program may exit right after it has seen its last one.
void QueuePair::run() {
  if (!stream_) return;
  receive_available();
  if (stream_) send_available();
  if (stream_ && stream_->ended()) enter_error();
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
  }
  want_write(false);
}

void QueuePair::want_write(bool wanted) {
  if (writing_ == wanted || token_ == 0) return;
  writing_ = wanted;
  std::uint32_t events = EPOLLIN;
  if (wanted) events |= EPOLLOUT;
  context_.engine().change(token_, events);
}

}  // namespace weft::device
