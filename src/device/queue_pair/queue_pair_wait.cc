// Receiver not ready: Sends that wait for a receive, and for how long.
#include <algorithm>

#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/queue_pair_turn.h"

namespace weft::device {
namespace {

std::uint64_t timer_ns(std::uint8_t code) {
  return std::max(iwarp::rnr_timer_ns(code), limits::least_rnr_timer_ns);
}

}  // namespace

iwarp::ReceiverNotReady QueuePair::patience(const StreamParameters& parameters) const {
  return {.hold_bytes = parameters.hold_bytes,
          .timer_ns = timer_ns(attributes_.min_rnr_timer),
          .retries = parameters.rnr_retries};
}

// The application has changed its mind, or said it only now that the stream is there.
void QueuePair::tell_patience() {
  if (!stream_ || stream_->ended()) return;
  stream_->set_rnr_timer(timer_ns(attributes_.min_rnr_timer));
  stream_->announce_rnr_retries(attributes_.rnr_retry);
  keep_time();
  finish_turn();
}

// A receive was posted here; nearly always nothing waits for it.
void QueuePair::receives_posted() {
  if (!stream_ || !stream_->starving()) return;
  stream_->receives_posted();
  finish_turn();
}

void QueuePair::shared_receives_posted() {
  const Turn turn(*this);
  receives_posted();
}

void QueuePair::keep_time() {
  const std::uint64_t now_ns = sys::now_ns();
  stream_->on_time(now_ns);
  const std::uint64_t deadline_ns = stream_->deadline_ns();
  // An alarm that comes too early sets the next one.
  if (deadline_ns == iwarp::Connection::never_ns || alarm_ns_ <= deadline_ns) return;
  alarm_ns_ = deadline_ns;
  context_.engine().call_at(deadline_ns, shared_from_this());
}

void QueuePair::on_deadline() {
  const Turn turn(*this);
  alarm_ns_ = iwarp::Connection::never_ns;
  if (!stream_) return;
  keep_time();
  finish_turn();
}

}  // namespace weft::device
