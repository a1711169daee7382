#include "capture/infiniband/ib_answers.h"

#include <algorithm>

namespace weft::capture {
namespace {

constexpr std::uint64_t smallest_mtu_bytes = 256;
// Limit on the packets of one response: the longest message (2^31 bytes) has no more with the
// smallest MTU. It also bounds the bit map of received packets.
constexpr std::uint64_t most_packets = (1ULL << 31) / smallest_mtu_bytes;
// Reads and atomics that a queue pair can have under way: the connection manager's fields for their
// number have 8 bits (§12.7.29). If more follow a request, the requester has its response.
constexpr std::size_t most_under_way = 255;

bool is_last(wire::IbOperation operation) {
  return operation == wire::IbOperation::read_response_last ||
         operation == wire::IbOperation::read_response_only;
}

bool is_first(wire::IbOperation operation) {
  return operation == wire::IbOperation::read_response_first ||
         operation == wire::IbOperation::read_response_only;
}

}  // namespace

IbAnswers::~IbAnswers() {
  for (const Early& early : early_) budget_.give_back(early.segment.bytes());
  while (!open_.empty()) pop_first();
}

void IbAnswers::pop_first() {
  budget_.give_back(open_.front().budgeted);
  open_.pop_front();
}

// Opens a request. If the budget is used up, the oldest requests are dropped first; if there are
// none left, the responses to this one are reported as unknown.
void IbAnswers::expect(const Origin& origin, const Request& request) {
  if (!first_psn_) first_psn_ = request.psn;
  const std::uint64_t packets = request.atomic ? 1 : path_.packets_of(request.length).value_or(1);
  end_psn_ = wire::psn_plus(request.psn, static_cast<std::uint32_t>(packets));
  if (open_.size() == limits_.open_requests) drop_first(origin);
  while (!budget_.take(sizeof(Open))) {
    if (open_.empty()) return;  // its response will be one to an unknown request
    drop_first(origin);
  }
  open_.push_back({.request = request, .budgeted = sizeof(Open), .since = now_});
  open_.back().packets = request.atomic ? 1 : path_.packets_of(request.length).value_or(0);
  if (!early_.empty()) retry_early(false);
}

// Finds the request with `psn` in its range of PSNs: the last one that begins at or before it.
// While the MTU is unknown, the range is the largest that is possible.
IbAnswers::Open* IbAnswers::find(std::uint32_t psn) {
  if (open_.empty()) return nullptr;
  const std::uint32_t first = open_.front().request.psn;
  const std::int32_t wanted = wire::psn_distance(first, psn);
  const auto after = std::ranges::partition_point(open_, [&](const Open& open) {
    return wire::psn_distance(first, open.request.psn) <= wanted;
  });
  if (after == open_.begin()) return nullptr;
  Open& open = *std::prev(after);
  if (open.packets == 0 && !open.request.atomic) {
    open.packets = path_.packets_of(open.request.length).value_or(0);
  }
  const std::uint64_t most =
      open.packets != 0 ? open.packets : open.request.length / smallest_mtu_bytes + 1;
  const auto distance = static_cast<std::uint64_t>(wire::psn_distance(open.request.psn, psn));
  return distance < std::min(most, most_packets) ? &open : nullptr;
}

// Returns whether a response packet can belong to a request in whose largest possible range it
// lies. Until the number of its packets is known, another request may lie in that range that the
// capture holds late.
bool IbAnswers::may_answer(const IbSegment& segment, const Open& open) const {
  const auto index =
      static_cast<std::uint64_t>(wire::psn_distance(open.request.psn, segment.psn()));
  if (open.packets != 0 || index == 0) return true;
  if (is_first(segment.operation()) && !open.repeated && !requests_lost_) return false;
  if (!is_last(segment.operation())) return true;
  const std::uint64_t size = segment.payload_wire_bytes;
  if (size > open.request.length) return false;
  const std::uint64_t before = open.request.length - size;
  return before % index == 0 && path_.may_be(before / index);
}

IbAnswers::Open* IbAnswers::find_for(const IbSegment& segment) {
  Open* open = find(segment.psn());
  return open && may_answer(segment, *open) ? open : nullptr;
}

std::optional<std::uint32_t> IbAnswers::on_repeated_request(std::uint32_t psn) {
  Open* open = find(psn);
  if (!open) return {};
  open->repeated = true;
  return open->request.psn;
}

// Places a response packet. If its request is not known yet, the packet waits; if the request has
// ended, it is a repetition.
void IbAnswers::add(const Origin& origin, const IbSegment& segment, bool may_come,
                    bool was_passed) {
  if (Open* open = find_for(segment)) return place(origin, segment, *open);
  if (was_passed) return repeat(origin, segment);
  HeldIbSegment held(segment);
  if (!may_come || early_.size() == limits_.early_packets || !budget_.take(held.bytes())) {
    return unknown(origin, segment);
  }
  early_.push_back({origin, std::move(held), now_});
}

bool IbAnswers::was_expected(std::uint32_t psn) const {
  return first_psn_ && !requests_lost_ && wire::psn_distance(*first_psn_, psn) >= 0 &&
         wire::psn_distance(psn, end_psn_) > 0;
}

void IbAnswers::repeat(const Origin& origin, const IbSegment& segment) {
  sink_.on_repeat(origin, segment.payload_wire_bytes);
}

void IbAnswers::unknown(const Origin& origin, const IbSegment& segment) {
  if (segment.operation() == wire::IbOperation::atomic_acknowledge) return;
  sink_.on_read_part(origin, {.request = segment.psn(),
                              .known = false,
                              .bytes = segment.payload,
                              .missing_bytes = segment.missing_bytes(),
                              .last = is_last(segment.operation())});
}

// Places a packet in its request and passes it on at once. The part that completes the oldest
// request closes it.
void IbAnswers::place(const Origin& origin, const IbSegment& segment, Open& open) {
  if (open.request.atomic) return place_atomic(origin, segment, open);
  const auto index = static_cast<std::size_t>(wire::psn_distance(open.request.psn, segment.psn()));
  const std::uint64_t size = segment.payload_wire_bytes;
  const bool last = is_last(segment.operation());
  if (last && open.packets == 0) open.packets = index + 1;
  if (const auto broken = broken_rule(segment, open, index)) {
    return sink_.on_violation(origin, *broken);
  }
  const std::uint64_t offset = last ? open.request.length - size : size * index;
  if (!extend(open, index)) return unknown(origin, segment);
  if (open.have[index]) return repeat(origin, segment);
  open.have[index] = true;
  open.complete = ++open.have_packets == open.packets;
  open.completed = origin.stamp;
  const bool closes = open.complete && &open == &open_.front();
  sink_.on_read_part(origin, {.request = open.request.psn,
                              .key = open.request.key,
                              .address = open.request.address + offset,
                              .bytes = segment.payload,
                              .missing_bytes = segment.missing_bytes(),
                              .last = closes});
  if (closes) {
    pop_first();
    close_complete(origin);
  }
}

// §9.7.5.1.1: a response is First, Middles and Last, or Only, and all packets but the last have the
// path MTU. A packet that violates this has no known offset, so it is reported and not placed.
std::optional<Violation> IbAnswers::broken_rule(const IbSegment& segment, const Open& open,
                                                std::uint64_t index) const {
  const std::uint64_t size = segment.payload_wire_bytes;
  const std::uint64_t length = open.request.length;
  const bool first = is_first(segment.operation());
  const bool last = is_last(segment.operation());
  const std::uint64_t end = last ? size : size * (index + 1);
  if (end > length) return Violation{Violation::Kind::answer_beyond_request, end, length};
  const bool may_begin_here = open.repeated || requests_lost_;
  // The first request of a capture may be one for the rest of an earlier Read, of which an answer
  // was still under way.
  const bool may_continue = requests_lost_ || (begun_before_ && first_psn_ == open.request.psn);
  const bool is_end = open.packets != 0 && index + 1 == open.packets;
  const bool wrong_first = index == 0 ? !first && !may_continue : first && !may_begin_here;
  if (wrong_first || (open.packets != 0 && last != is_end)) {
    return Violation{Violation::Kind::bad_header, segment.headers.bth.opcode.code(), 0};
  }
  const std::uint64_t full = path_.full_bytes(size);
  // The length of the other packets is unknown.
  if (last && index != 0 && path_.mtu_bytes() == 0) return {};
  const std::uint64_t expected = last ? length - std::min(length, index * full) : full;
  if (size == expected) return {};
  return Violation{Violation::Kind::wrong_length, size, expected};
}

// Makes the bit map large enough for packet `index`, in steps of 64 packets that are taken from the
// budget.
bool IbAnswers::extend(Open& open, std::size_t index) {
  if (open.have.size() > index) return true;
  constexpr std::size_t packets_at_once = 64;
  const std::size_t packets = (index / packets_at_once + 1) * packets_at_once;
  const std::size_t more_bytes = (packets - open.have.size()) / 8;
  if (!budget_.take(more_bytes)) return false;
  open.budgeted += more_bytes;
  open.have.resize(packets);
  return true;
}

void IbAnswers::place_atomic(const Origin& origin, const IbSegment& segment, Open& open) {
  if (open.complete) return repeat(origin, segment);
  open.complete = true;
  open.completed = origin.stamp;
  open.original = segment.headers.atomic_original;
  close_complete(origin);
}

// Closes the completed requests that follow one that has just ended.
void IbAnswers::close_complete(const Origin& origin) {
  while (!open_.empty() && open_.front().complete) {
    close(origin, open_.front());
    pop_first();
  }
}

// Reports the end of a request. A Read that completed out of order has reported its bytes already,
// so only an empty last part is left. If the last packet is not in the capture, that part is lost.
void IbAnswers::close(const Origin& origin, const Open& open) {
  Origin at = origin;
  if (open.have_packets > 0 || open.complete) at.stamp = open.completed;
  if (open.request.atomic) {
    if (open.complete) {
      sink_.on_atomic_answer(at, {.request = open.request.psn, .original = open.original});
    }
    return;
  }
  if (open.have_packets == 0) return;
  sink_.on_read_part(at, {.request = open.request.psn,
                          .key = open.request.key,
                          .address = open.request.address + open.request.length,
                          .bytes = {},
                          .lost = !open.has_last(),
                          .last = true});
}

// Closes the oldest request, which will not complete, so that the completed ones behind it can end.
void IbAnswers::give_up_first(const Origin& origin) {
  close(origin, open_.front());
  pop_first();
  close_complete(origin);
}

// The same for want of room: its response may still come, and is counted as dropped.
void IbAnswers::drop_first(const Origin& origin) {
  ++counts_.dropped_requests;
  give_up_first(origin);
}

// Tries to place the packets that came before their request; drops those that waited too long, or
// all if `give_up`.
void IbAnswers::retry_early(bool give_up) {
  std::deque<Early> waiting;
  waiting.swap(early_);
  for (Early& early : waiting) {
    const IbSegment segment = early.segment.get();
    Open* open = find_for(segment);
    const bool ended = !open && was_expected(segment.psn());
    if (!open && !ended && !give_up && now_ - early.since < limits_.late_packets) {
      early_.push_back(std::move(early));
      continue;
    }
    budget_.give_back(early.segment.bytes());
    if (open)
      place(early.origin, segment, *open);
    else if (ended)
      repeat(early.origin, segment);
    else
      unknown(early.origin, segment);
  }
}

// Counts one packet of the connection, and applies the timeouts to packets that wait for their
// request and to the oldest request. The latter may be asked for again however much was sent after
// it (§9.7.5.1.9). It is given up only when the requester has sent enough later requests to prove
// that it has the response, and when a packet that the capture holds late would have come.
void IbAnswers::watch(const Origin& origin) {
  ++now_;
  if (!early_.empty() && now_ - early_.front().since >= limits_.late_packets) retry_early(false);
  if (open_.size() <= most_under_way) return;
  if (now_ - open_[most_under_way].since >= limits_.late_packets) give_up_first(origin);
}

void IbAnswers::finish(const Origin& origin) {
  retry_early(true);
  for (; !open_.empty(); pop_first()) close(origin, open_.front());
}

}  // namespace weft::capture
