#include "device/faults/stream_faults.h"

#include <algorithm>
#include <utility>

namespace weft::device {

using faults::Failure;

void StreamFaults::on_time(std::uint64_t now_ns) {
  if (state_ == State::silent && now_ns >= until_ns_) state_ = State::open;
  for (const auto& action : std::exchange(at_once_, {})) apply(action, now_ns);
  std::erase_if(scheduled_, [&](const auto& each) {
    // A rule may have both conditions, and then both must be met.
    if (bytes_ < each.after_bytes || now_ns - begin_.now_ns < each.after_ns) return false;
    plan_.happened(each, begin_.queue_pair);
    apply(each.action, now_ns);
    return true;
  });
}

void StreamFaults::apply(const faults::Action& action, std::uint64_t now_ns) {
  // These two states are final: the connection has ended.
  if (state_ == State::closed || state_ == State::reset) return;
  switch (action.failure()) {
    case Failure::fin:
      state_ = State::closed;
      return;
    case Failure::rst:
      state_ = State::reset;
      return;
    case Failure::silence:
    case Failure::stall: {
      // A second silence may extend the first one, but never shortens it.
      if (state_ != State::silent) since_ns_ = now_ns;
      const bool ends = action.failure() == Failure::stall;
      const auto until_ns = ends ? now_ns + static_cast<std::uint64_t>(action.argument) : never_ns;
      until_ns_ = state_ == State::silent ? std::max(until_ns_, until_ns) : until_ns;
      state_ = State::silent;
      return;
    }
    case Failure::terminate:
      terminate_ = action.argument;
      return;
    case Failure::bit_flip:
      flips_ = true;
      return;
    default:
      return;  // not possible on streams
  }
}

// The message that has waited gets its receive without another look at the rules: a rule that
// applies to each arrival would otherwise never let it through.
bool StreamFaults::takes_message(std::uint64_t now_ns) {
  if (ready_again(now_ns)) {
    ready_ns_ = 0;
    return true;
  }
  if (ready_ns_ != 0) return false;
  if (!plan_.names(faults::Point::arrival)) return true;
  faults::Occurrence arrival = begin_;
  arrival.now_ns = now_ns;
  const auto action = plan_.at(faults::Point::arrival, arrival);
  if (!action) return true;
  const auto duration_ns = static_cast<std::uint64_t>(action->argument);
  ready_ns_ = duration_ns == 0 ? never_ns : now_ns + duration_ns;
  return false;
}

std::optional<std::int64_t> StreamFaults::take_terminate() {
  return std::exchange(terminate_, std::nullopt);
}

// Faults that still wait for bytes need no alarm: they are looked at when bytes move. A time that
// was returned already is not returned again.
std::optional<std::uint64_t> StreamFaults::new_alarm_ns() {
  std::uint64_t next_ns = state_ == State::silent ? until_ns_ : never_ns;
  if (ready_ns_ != 0) next_ns = std::min(next_ns, ready_ns_);
  for (const auto& each : scheduled_) {
    if (bytes_ >= each.after_bytes) next_ns = std::min(next_ns, begin_.now_ns + each.after_ns);
  }
  if (next_ns == std::exchange(alarm_ns_, next_ns) || next_ns == never_ns) return std::nullopt;
  return next_ns;
}

// Cuts the pieces before the byte at which the next fault acts, so that it acts exactly there.
std::span<const iovec> StreamFaults::shape(std::span<const iovec> pieces, bool sending) {
  std::uint64_t room = UINT64_MAX;
  for (const auto& each : scheduled_) {
    if (bytes_ < each.after_bytes) room = std::min(room, each.after_bytes - bytes_);
  }
  part_.clear();
  flipped_at_ = 0;
  for (iovec piece : pieces) {
    if (room == 0) break;
    piece.iov_len = std::min<std::uint64_t>(piece.iov_len, room);
    room -= piece.iov_len;
    if (piece.iov_len > 0) part_.push_back(piece);
  }
  if (sending && flips_ && !part_.empty()) flip_last_bit();
  return part_;
}

// The last byte belongs to a CRC, or to what a CRC covers. The memory itself is the application's,
// or is sent again.
void StreamFaults::flip_last_bit() {
  iovec& last = part_.back();
  const auto* at = static_cast<const unsigned char*>(last.iov_base);
  copy_.assign(at, at + last.iov_len);
  copy_.back() ^= 1U;
  last.iov_base = copy_.data();
  for (const iovec& piece : part_) flipped_at_ += piece.iov_len;
}

void StreamFaults::moved(std::size_t bytes) {
  bytes_ += bytes;
  // TCP may have taken fewer bytes than were offered. Then the wrong bit was not sent, and a later
  // call of shape() flips one again.
  if (flipped_at_ != 0 && bytes >= flipped_at_) flips_ = false;
  flipped_at_ = 0;
}

}  // namespace weft::device
