#include "simulation/pipe.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::simulation {
namespace {

constexpr std::size_t least_ring_bytes = 4096;

}  // namespace

// Grows the ring to the next power of two, so that a connection with little traffic needs little
// memory.
void Pipe::make_room(std::size_t count) {
  const std::size_t needed = static_cast<std::size_t>(held()) + count;
  if (needed <= ring_.size()) return;
  std::vector<std::byte> larger(std::bit_ceil(std::max(needed, least_ring_bytes)));
  for (std::uint64_t at = read_; at < sent_; ++at) {
    larger[at & (larger.size() - 1)] = ring_[at & (ring_.size() - 1)];
  }
  ring_.swap(larger);
}

void Pipe::copy_in(const std::byte* from, std::size_t count) {
  const std::size_t at = sent_ & (ring_.size() - 1);
  const std::size_t first = std::min(count, ring_.size() - at);
  std::memcpy(ring_.data() + at, from, first);
  if (count > first) std::memcpy(ring_.data(), from + first, count - first);
  sent_ += count;
}

void Pipe::copy_out(std::byte* to, std::size_t count) {
  const std::size_t at = read_ & (ring_.size() - 1);
  const std::size_t first = std::min(count, ring_.size() - at);
  std::memcpy(to, ring_.data() + at, first);
  if (count > first) std::memcpy(to + first, ring_.data(), count - first);
  read_ += count;
}

void Pipe::send(std::span<const iovec> pieces, std::size_t count, Time due) {
  make_room(count);
  for (const iovec& piece : pieces) {
    const std::size_t part = std::min(count, piece.iov_len);
    if (part > 0) copy_in(static_cast<const std::byte*>(piece.iov_base), part);
    count -= part;
  }
  last_due_ = std::max(last_due_, due);
  if (!marks_.empty() && marks_.back().due == last_due_) {
    marks_.back().end = sent_;
  } else {
    marks_.push_back({last_due_, sent_});
  }
}

void Pipe::end(Time due) {
  if (end_due_) return;
  last_due_ = std::max(last_due_, due);
  end_due_ = last_due_;
}

std::uint64_t Pipe::arrived(Time now) const {
  const Time until = closed_ ? std::min(now, *closed_) : now;
  std::uint64_t position = seen_;
  for (const Mark& mark : marks_) {
    if (mark.due > until) break;
    position = mark.end;
  }
  return position;
}

bool Pipe::has_bytes(Time then) const {
  if (seen_ > read_) return true;
  const Time until = closed_ ? std::min(then, *closed_) : then;
  return !marks_.empty() && marks_.front().due <= until && marks_.front().end > read_;
}

std::size_t Pipe::receive(std::span<const iovec> pieces, Time now) {
  while (!marks_.empty() && marks_.front().due <= now) {
    seen_ = marks_.front().end;
    marks_.pop_front();
  }
  std::size_t left = static_cast<std::size_t>(seen_ - read_);
  std::size_t done = 0;
  for (const iovec& piece : pieces) {
    const std::size_t part = std::min(left, piece.iov_len);
    if (part > 0) copy_out(static_cast<std::byte*>(piece.iov_base), part);
    left -= part;
    done += part;
    if (left == 0) break;
  }
  return done;
}

bool Pipe::ended(Time now) const {
  return end_due_ && *end_due_ <= now && read_ == sent_;
}

void Pipe::close(Time now) {
  if (!closed_) closed_ = now;
}

void Pipe::hold(Time now) {
  for (Mark& mark : marks_) {
    if (mark.due > now) mark.due = never;
  }
  if (end_due_ && *end_due_ > now) end_due_ = never;
  if (last_due_ > now) last_due_ = never;
}

void Pipe::release(Time from) {
  for (Mark& mark : marks_) {
    if (mark.due == never) mark.due = from;
  }
  if (end_due_ == never) end_due_ = from;
  if (last_due_ == never) last_due_ = from;
}

}  // namespace weft::simulation
