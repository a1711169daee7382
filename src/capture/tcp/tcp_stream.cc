#include "weft/capture/tcp_stream.hpp"

#include <algorithm>
#include <utility>

#include "base/size.h"

namespace weft::capture {

// Positions have 64 bits and begin above 2^32. Zero thus means that there is none yet, and segments
// from before the first one that was seen have a position as well.
void TcpStream::refer_to(std::uint32_t sequence) {
  if (next_ == 0) next_ = std::uint64_t{1} << 32 | sequence;
}

void TcpStream::begin(std::uint32_t sequence) {
  if (phase_ == Phase::running) return;
  refer_to(sequence);
  next_ = position_of(sequence);
  first_sequence_ = sequence;
  phase_ = Phase::running;
}

// Delivers the common case, a segment that is next, without a copy. Segments that begin too early
// are counted as repeated; all others are stored.
bool TcpStream::add(const Segment& segment, const TcpStream& other, StreamReader& reader) {
  refer_to(segment.sequence);
  if (phase_ == Phase::unseen) phase_ = Phase::gathering;
  std::uint64_t begin = position_of(segment.sequence);
  const std::uint64_t end = begin + segment.bytes.size() + segment.missing_bytes;
  if (phase_ == Phase::running) {
    if (begin == next_ && held_.empty() && other.reached(segment.needs)) {
      pass_on(segment.stamp, segment.bytes, {segment.missing_bytes, true}, reader);
      return true;
    }
    if (begin > next_ + limits_.window_bytes || next_ > end + limits_.window_bytes) return false;
    if (begin < next_) {
      repeated_bytes_ += std::min(end, next_) - begin;
      if (end <= next_) return true;
    }
    if (begin > next_) set_out_of_order();
  } else if (!held_.empty() && begin < held_.rbegin()->first) {
    set_out_of_order();
  }
  hold(segment, begin);
  return true;
}

// Sequence numbers beyond the largest window belong to another connection. So may others: a host
// that knows an earlier connection answers a SYN with what it has received in that one (RFC 9293
// §3.5.1). Acknowledgements of one connection do not go back, so a later one decides.
bool TcpStream::acknowledge(std::uint32_t sequence) {
  refer_to(sequence);
  const std::uint64_t position = position_of(sequence);
  const std::uint64_t doubtful = std::exchange(doubtful_, 0);
  const bool far = phase_ != Phase::unseen && position > seen_end() + limits_.certain_bytes;
  if (from_the_start() && position + limits_.certain_bytes < next_ && acknowledged_ == 0) {
    return false;
  }
  if (far && (doubtful == 0 || position < doubtful)) {
    doubtful_ = position;
    return false;
  }
  if (phase_ != Phase::running && shows_disorder(position)) set_out_of_order();
  if (position <= acknowledged_ || position > next_ + limits_.window_bytes) return false;
  acknowledged_ = position;
  return true;
}

// While segments are gathered, acknowledgements of a capture in order do not go back, and none is
// beyond what was seen.
bool TcpStream::shows_disorder(std::uint64_t position) const {
  if (position < acknowledged_) return true;
  return !held_.empty() && position > held_.rbegin()->first + held_.rbegin()->second.size();
}

// Stores the parts that are not stored yet: of overlapping segments the first one counts.
void TcpStream::hold(const Segment& segment, std::uint64_t begin) {
  const std::uint64_t end = begin + segment.bytes.size() + segment.missing_bytes;
  std::uint64_t at = phase_ == Phase::running ? std::max(begin, next_) : begin;
  auto held = held_.upper_bound(at);
  if (held != held_.begin()) {
    const auto before = std::prev(held);
    const std::uint64_t covered = std::min(before->first + before->second.size(), end);
    if (covered > at) {
      repeated_bytes_ += covered - at;
      at = covered;
    }
  }
  while (at < end) {
    const std::uint64_t to = held == held_.end() ? end : std::min(end, held->first);
    if (to > at) hold_piece(segment, begin, at, to);
    if (held == held_.end() || to == end) return;
    const std::uint64_t covered = std::min(held->first + held->second.size(), end);
    repeated_bytes_ += covered - to;
    at = covered;
    ++held;
  }
}

void TcpStream::hold_piece(const Segment& segment, std::uint64_t begin, std::uint64_t from,
                           std::uint64_t to) {
  const std::uint64_t captured = begin + segment.bytes.size();
  Held held{.stamp = segment.stamp, .bytes = {}, .missing_bytes = 0, .needs = segment.needs};
  if (from < captured) {
    const auto bytes =
        segment.bytes.subspan(to_size(from - begin), to_size(std::min(to, captured) - from));
    held.bytes.assign(bytes.begin(), bytes.end());
  }
  // If the budget is used up, the bytes count as not captured and become a hole.
  if (!budget_.take(held.cost())) return;
  held_bytes_ += held.cost();
  held.missing_bytes = to - from - held.bytes.size();
  held_.emplace(from, std::move(held));
}

// Delivers stored segments while the next one is contiguous and the other direction has delivered
// what its sender had received.
bool TcpStream::deliver(const TcpStream& other, StreamReader& reader) {
  if (phase_ != Phase::running) return false;
  bool moved = false;
  while (!held_.empty() && held_.begin()->first <= next_ &&
         other.reached(held_.begin()->second.needs)) {
    pass_on_first(reader);
    moved = true;
  }
  return moved;
}

void TcpStream::pass_on_first(StreamReader& reader) {
  auto node = held_.extract(held_.begin());
  Held& held = node.mapped();
  held_bytes_ -= held.cost();
  budget_.give_back(held.cost());
  const std::uint64_t end = node.key() + held.size();
  if (end <= next_) return;
  // It may begin before `next_` if a late SYN or a skipped hole has moved `next_` on.
  const std::uint64_t known = next_ - std::min(next_, node.key());
  const std::size_t skipped = to_size(std::min<std::uint64_t>(known, held.bytes.size()));
  pass_on(held.stamp, Bytes(held.bytes).subspan(skipped),
          {end - next_ - (held.bytes.size() - skipped), true}, reader);
}

void TcpStream::pass_on(const Stamp& stamp, Bytes bytes, const Hole& hole, StreamReader& reader) {
  const std::uint64_t position = next_;
  next_ += bytes.size() + hole.bytes;
  if (!bytes.empty()) reader.on_bytes(stamp, position, bytes);
  if (hole.bytes > 0) reader.on_hole(stamp, position + bytes.size(), hole);
}

void TcpStream::skip_to(std::uint64_t position, const Stamp& stamp, StreamReader& reader) {
  if (position > next_) pass_on(stamp, {}, {position - next_, false}, reader);
}

// A FIN uses a sequence number as well. If it was not captured, one byte too many seems to be
// acknowledged.
bool TcpStream::awaits_acknowledged() const {
  const std::uint64_t end = end_ ? *end_ : next_ + 1;
  if (held_.empty() && acknowledged_ == next_ + 1 && end <= next_ + 1) return false;
  return acknowledged_ > next_;
}

// Applies the limits and timeouts of each phase. In phase gathering the lowest sequence number
// becomes the beginning.
bool TcpStream::watch(std::uint64_t packet, const Stamp& stamp, StreamReader& reader) {
  if (phase_ == Phase::unseen) return ++gathered_packets_ == gather_packets();
  if (phase_ == Phase::gathering) {
    if (++gathered_packets_ < gather_packets() && !too_much_held()) return false;
    phase_ = Phase::running;
    if (!held_.empty()) next_ = held_.begin()->first;
    return true;
  }
  if (too_much_held()) return give_up(stamp, reader);
  if (!awaits_acknowledged()) {
    waiting_since_ = 0;
    return false;
  }
  if (waiting_since_ == 0 || waiting_at_ != next_) {
    waiting_since_ = packet;
    waiting_at_ = next_;
    return false;
  }
  // If this direction waits for the other one, the timeout of the other one must expire first.
  const std::uint64_t timeout_packets = limits_.patience_packets * (lacks_bytes() ? 1 : 2);
  if (packet - waiting_since_ < timeout_packets) return false;
  if (lacks_bytes()) {
    // Nothing beyond the acknowledged bytes is skipped, because the rest may still come.
    const std::uint64_t held_from = held_.empty() ? acknowledged_ : held_.begin()->first;
    skip_to(std::min(held_from, acknowledged_), stamp, reader);
  } else {
    pass_on_first(reader);
  }
  return true;
}

// A direction that has not begun comes first: what waits for it must not be passed on before it.
bool TcpStream::gives_up_before(const TcpStream& other) const {
  if (decided() != other.decided()) return !decided();
  if (lacks_bytes() != other.lacks_bytes()) return lacks_bytes();
  const auto frame = [](const TcpStream& stream) {
    return stream.held_.empty() ? ~std::uint64_t{0} : stream.held_.begin()->second.stamp.frame;
  };
  return frame(*this) <= frame(other);
}

// Gives up one thing that the stream waits for. Each call makes one step, so that the other
// direction can follow.
bool TcpStream::give_up(const Stamp& stamp, StreamReader& reader) {
  if (phase_ == Phase::unseen) {
    const bool news = !absent();
    gathered_packets_ = limits_.late_gather_packets;
    return news;
  }
  if (phase_ == Phase::gathering) {
    phase_ = Phase::running;
    if (!held_.empty()) next_ = held_.begin()->first;
    return true;
  }
  if (!held_.empty()) {
    // The segment after the hole may still have to wait for the other direction.
    if (held_.begin()->first > next_) {
      skip_to(held_.begin()->first, stamp, reader);
    } else {
      pass_on_first(reader);
    }
    return true;
  }
  if (!awaits_acknowledged()) return false;
  skip_to(acknowledged_, stamp, reader);
  return true;
}

}  // namespace weft::capture
