#include "capture/infiniband/ib_order.h"

#include <algorithm>
#include <iterator>

namespace weft::capture {
namespace {

// The largest distance between two consecutive PSNs of one connection. A queue pair cannot have
// more packets under way, so a larger jump means another connection with the same number. The
// responses to a Read, which it requests with one packet, come in addition to that.
constexpr std::uint64_t most_distant = 1 << 16;
constexpr std::uint64_t smallest_mtu_bytes = 256;
// Without connection manager messages: how many packets of the connection the first requests wait,
// because a lower PSN may follow them, if nothing shows that the capture is out of order. A
// capture that is out of order shows it within that number.
constexpr std::uint64_t origin_packets = 256;
// The same as time, once the requests are acknowledged: no network delivers so late.
constexpr std::int64_t origin_ns = 100'000'000;

// Returns whether the request is a Read or an atomic.
bool expects_response(const IbSegment& segment) {
  const wire::IbOperation operation = segment.operation();
  return operation == wire::IbOperation::read_request ||
         operation == wire::IbOperation::compare_swap || operation == wire::IbOperation::fetch_add;
}

// Returns the largest number of PSNs that a request may take.
std::uint64_t largest_width(const IbSegment& segment) {
  if (segment.operation() != wire::IbOperation::read_request) return 1;
  return segment.headers.reth.length_bytes / smallest_mtu_bytes + 1;
}

// The first position lies above the low 24 bits, so that there are positions before it.
constexpr std::uint64_t position_base = 1ULL << 32;

}  // namespace

void IbOrder::begin(std::uint32_t psn) {
  if (!begun()) {
    first_ = next_ = position_base + psn;
    return;
  }
  const std::uint64_t position = position_of(psn);
  if (!origin_open_ || position > next_ || !near(psn)) return;
  first_ = next_ = position;
  origin_open_ = false;
}

bool IbOrder::near(std::uint32_t psn) const {
  if (!begun()) return true;
  const std::uint64_t position = position_of(psn);
  const bool after_wide = wide_end_ != 0 && next_ < wide_end_ + most_distant;
  const std::uint64_t lowest = after_wide ? std::min(wide_begin_, next_) : next_;
  return position + most_distant > lowest && position < highest() + most_distant;
}

// Returns the position after everything that is known to be requested, whatever PSNs the Reads
// among it take.
std::uint64_t IbOrder::highest() const {
  std::uint64_t end = uncertain_ ? std::max(next_, uncertain_end_) : next_;
  if (!held_.empty()) {
    const auto& [position, held] = *held_.rbegin();
    end = std::max(end, position + largest_width(held.get()));
  }
  return end;
}

// Keeps where the responses to the last two wide Reads begin, which may be repeated after the last
// one.
void IbOrder::note_width(std::uint64_t position, std::uint64_t width) {
  if (width < most_distant) return;
  const bool follows = wide_end_ != 0 && position <= wide_end_ + most_distant;
  wide_begin_ = follows ? last_wide_ : position;
  last_wide_ = position;
  wide_end_ = position + width;
}

bool IbOrder::covers(std::uint32_t psn) const {
  if (!begun()) return false;
  const std::uint64_t position = position_of(psn);
  return (position >= first_ && position < next_ && near(psn)) || held_.contains(position);
}

// A Read of unknown MTU takes an unknown number of PSNs. Decides it from the next captured request.
// Returns false if requests that were not captured yet may lie between the two.
bool IbOrder::settle(const IbSegment& next, std::uint64_t position, bool guess) {
  if (!uncertain_ || position < next_) return true;
  const std::uint64_t read = next_ - 1;
  auto width = reader_.width_before(next, position - read);
  if (!width && guess) width = reader_.guess_width(next, position - read);
  if (!width) return false;
  uncertain_ = false;
  next_ = read + std::max<std::uint64_t>(*width, 1);
  note_width(read, next_ - read);
  return true;
}

// Passes on, stores or rejects a request by its position.
void IbOrder::add(const IbSegment& segment) {
  if (!begun()) {
    begin(segment.psn());
    origin_open_ = true;
    origin_since_ns_ = segment.stamp.time_ns;
  }
  if (origin_open_) return hold_at_origin(segment);
  const std::uint64_t position = position_of(segment.psn());
  const bool settled = settle(segment, position);
  if (position < next_ || held_.contains(position)) return reader_.on_repeat(segment);
  if (position > next_ || !settled) return hold(segment, position);
  if (!held_.empty()) {
    const std::int64_t since_ns = held_.begin()->second.get().stamp.time_ns;
    reader_.on_late(segment, segment.stamp.time_ns - since_ns);
  }
  pass_on(segment, position);
}

// Returns whether the request asks for the rest of a waiting Read.
bool IbOrder::continues_read(const IbSegment& segment, std::uint64_t position) const {
  const auto after = held_.lower_bound(position);
  if (after == held_.begin()) return false;
  const IbSegment first = std::prev(after)->second.get();
  return first.operation() == wire::IbOperation::read_request &&
         asks_for_rest(segment, first.headers.reth);
}

// Ends the wait for lower PSNs with a repeated Read or atomic: a requester that repeats begins with
// its oldest request without acknowledgement (§9.7.5.1.2). Where the capture has an older one, this
// is a late copy. Repeated data is only counted, and a capture that is out of order may hold it
// before an older request.
bool IbOrder::close_origin_before(const IbSegment& segment) {
  if (!origin_open_ || reordered_ || !expects_response(segment) || !stores(segment)) return false;
  const auto repeated = std::prev(held_.upper_bound(position_of(segment.psn())));
  if (repeated->first > std::max(held_.begin()->first, acknowledged_)) return false;
  origin_open_ = false;
  return true;
}

// Stores one of the first requests. The lowest PSN of them becomes the first one. A repeated Read
// or atomic is stored as well, because it must not be reported before the first one; repeated data
// is only counted.
void IbOrder::hold_at_origin(const IbSegment& segment) {
  const std::uint64_t position = position_of(segment.psn());
  if (held_.contains(position)) {
    return expects_response(segment) ? hold(segment, position) : reader_.on_repeat(segment);
  }
  if (!held_.empty() && position < held_.rbegin()->first) reordered_ = true;
  if (position < next_) first_ = next_ = position;
  hold(segment, position);
}

// Returns whether all requests from the lowest one to the last acknowledged one were captured. A
// Read takes an unknown number of PSNs.
bool IbOrder::acknowledged_without_gaps() const {
  std::uint64_t expected = next_;
  bool after_read = false;
  for (const auto& [position, segment] : held_) {
    if (position >= acknowledged_) break;
    if (position < expected) continue;  // a repetition
    if (position != expected && !after_read) return false;
    expected = position + 1;
    after_read = segment.get().operation() == wire::IbOperation::read_request;
  }
  return after_read || expected >= acknowledged_;
}

// Passes a request on, and reports the positions that were skipped as lost.
void IbOrder::pass_on(const IbSegment& segment, std::uint64_t position) {
  if (position > next_) reader_.on_lost(segment, position - next_);
  const auto width = reader_.on_next(segment);
  uncertain_ = !width;
  uncertain_end_ = position + largest_width(segment);
  next_ = position + std::max<std::uint64_t>(width.value_or(1), 1);
  note_width(position, next_ - position);
  if (retransmission_from_ && *retransmission_from_ < next_) retransmission_from_.reset();
}

std::optional<std::uint64_t> IbOrder::ready() {
  if (held_.empty() || origin_open_) return {};
  const auto& [position, held] = *held_.begin();
  if (uncertain_ && !settle(held.get(), position)) return {};
  if (position > next_) return {};
  return held.get().stamp.frame;
}

// Removes the first waiting packet and passes it on. It is a repetition if the position was given
// up meanwhile.
void IbOrder::pass_on_first() {
  const auto first = held_.begin();
  const std::uint64_t position = first->first;
  const HeldIbSegment segment = std::move(first->second);
  held_bytes_ -= segment.bytes();
  budget_.give_back(segment.bytes());
  held_.erase(first);
  waited_packets_ = 0;
  if (position < next_)
    reader_.on_repeat(segment.get());
  else
    pass_on(segment.get(), position);
}

void IbOrder::pass_on_ready() {
  if (ready()) pass_on_first();
}

// Stores a packet that came too early. If there is no room, what it waits for is given up.
void IbOrder::hold(const IbSegment& segment, std::uint64_t position) {
  HeldIbSegment held(segment);
  while (held_.size() >= limits_.held_packets || !budget_.take(held.bytes())) {
    // The packet will be sent again, so this copy is not needed; or it is larger than the whole
    // budget.
    if (retransmission_from_ || held_.empty()) return;
    give_up();
    while (ready()) pass_on_first();
    if (position <= next_) return add(segment);
  }
  if (held_.empty()) waited_packets_ = 0;
  held_bytes_ += held.bytes();
  held_.emplace(position, std::move(held));
}

void IbOrder::acknowledge(std::uint32_t psn) {
  if (!begun()) return;
  const std::uint64_t end = position_of(psn) + 1;
  if (end < acknowledged_) reordered_ = true;
  if (end > acknowledged_ && near(psn)) acknowledged_ = end;
  if (origin_open_ && acknowledged_ > next_ && !acknowledged_without_gaps()) reordered_ = true;
  if (retransmission_from_ && *retransmission_from_ < acknowledged_) retransmission_from_.reset();
}

void IbOrder::on_retransmission_requested(std::uint32_t psn) {
  if (begun() && near(psn)) retransmission_from_ = position_of(psn);
}

// Counts the packets since the queue is blocked. A missing packet that the responder has
// acknowledged is given up early: it will not be sent again. An open origin misses nothing: the
// lowest PSN is next when the wait ends.
void IbOrder::watch(std::int64_t now_ns) {
  if (!blocked()) return;
  ++waited_packets_;
  if (origin_open_) {
    const bool in_order = acknowledged_ > next_ && !reordered_;
    const bool late = in_order && now_ns - origin_since_ns_ >= origin_ns;
    if (late || waited_packets_ >= (reordered_ ? limits_.patience_packets : origin_packets)) {
      give_up();
    }
    return;
  }
  const bool received = unreliable_ || acknowledged_ > next_;
  if (waited_packets_ >= (received ? limits_.patience_packets : limits_.long_patience_packets)) {
    give_up();
  }
}

void IbOrder::give_up() {
  origin_open_ = false;
  if (held_.empty()) return;
  settle(held_.begin()->second.get(), held_.begin()->first, true);
  pass_on_first();
}

// Reports what the responder acknowledged after the last captured request as lost.
void IbOrder::finish() {
  if (!begun() || uncertain_ || acknowledged_ <= next_) return;
  reader_.on_end_lost(acknowledged_ - next_);
  next_ = acknowledged_;
}

}  // namespace weft::capture
