#include "capture/infiniband/ib_requests.h"

namespace weft::capture {
namespace {

using Operation = wire::IbOperation;

bool begins(Operation operation) {
  return operation == Operation::send_first || operation == Operation::write_first ||
         operation == Operation::send_only || operation == Operation::send_only_immediate ||
         operation == Operation::send_only_invalidate || operation == Operation::write_only ||
         operation == Operation::write_only_immediate;
}

bool is_last(Operation operation) {
  return operation != Operation::send_first && operation != Operation::send_middle &&
         operation != Operation::write_first && operation != Operation::write_middle;
}

bool is_send(Operation operation) {
  return operation <= Operation::send_only_immediate ||
         operation == Operation::send_last_invalidate ||
         operation == Operation::send_only_invalidate;
}

SendKind kind_of(const IbSegment& segment) {
  const bool invalidates = wire::IbLayout::of(segment.headers.bth.opcode).invalidate;
  if (segment.headers.bth.solicited) {
    return invalidates ? SendKind::solicited_invalidate : SendKind::solicited;
  }
  return invalidates ? SendKind::invalidate : SendKind::plain;
}

}  // namespace

Origin IbRequests::origin(const IbSegment& segment) const {
  Origin origin = origin_;
  origin.stamp = segment.stamp;
  origin.position = segment.psn();
  return origin;
}

Origin IbRequests::responder(const IbSegment& segment) const {
  Origin turned = origin(segment);
  turned.side = other(turned.side);
  return turned;
}

// Dispatches the next request. Only a Read takes more than one PSN; its width may be unknown.
std::optional<std::uint64_t> IbRequests::on_next(const IbSegment& segment) {
  last_ = segment.stamp;
  std::optional<std::uint64_t> width = 1;
  const Operation operation = segment.operation();
  if (is_send(operation))
    send(segment);
  else if (operation <= Operation::write_only_immediate)
    write(segment);
  else if (operation == Operation::read_request)
    width = read(segment);
  else if (operation == Operation::compare_swap || operation == Operation::fetch_add)
    atomic(segment);
  lost_before_ = 0;
  return width;
}

void IbRequests::on_repeat(const IbSegment& segment) {
  sink_.on_repeat(origin(segment), segment.payload_wire_bytes);
  if (segment.operation() != Operation::read_request) return;
  // If the response was complete already, the request is reported with its own PSN.
  const auto request = answers_.on_repeated_request(segment.psn());
  sink_.on_read_request(origin(segment), {.request = request.value_or(segment.psn()),
                                          .key = segment.headers.reth.key,
                                          .address = segment.headers.reth.address,
                                          .length = segment.headers.reth.length_bytes,
                                          .repeated = true});
}

// A loss makes the offset of a message under way uncertain; the next packet decides what is kept.
void IbRequests::on_lost(const IbSegment& next, std::uint64_t packets) {
  lost_any_ = true;
  answers_.on_requests_lost();
  lost_before_ = packets;
  sink_.on_gap(origin(next), {.packets = static_cast<std::uint32_t>(packets)});
}

// There is no packet behind the loss, so the gap has the time of the last one before it. Where the
// capture is out of order, packets may still come after the messages that ended the connection.
void IbRequests::on_end_lost(std::uint64_t packets) {
  lost_any_ = true;
  lost_before_ = packets;
  Origin origin = origin_;
  origin.stamp = last_;
  sink_.on_gap(origin, {.packets = static_cast<std::uint32_t>(packets)});
}

// Reports a packet as a gap, because its message cannot be decoded.
void IbRequests::not_understood(const IbSegment& segment) {
  open_ = Open::none;
  inside_unknown_ = !is_last(segment.operation());
  sink_.on_gap(origin(segment), {.wire_bytes = segment.payload_wire_bytes});
}

// Ends the message under way. Without a loss it is a violation to begin another one before its last
// packet.
void IbRequests::end_open(const IbSegment& segment) {
  if (open_ != Open::none && lost_before_ == 0) {
    violation(segment, Violation::Kind::bad_header, segment.headers.bth.opcode.code(), 0);
  }
  open_ = Open::none;
}

void IbRequests::begin(Open what, const IbSegment& segment) {
  end_open(segment);
  open_ = what;
  inside_unknown_ = false;
  first_psn_ = segment.psn();
  offset_ = 0;
}

// §9.5.2: all packets of a message but the last have the path MTU.
void IbRequests::check_full(const IbSegment& segment) {
  if (is_last(segment.operation())) return;
  if (segment.payload_wire_bytes == path_.mtu_bytes()) return;
  violation(segment, Violation::Kind::wrong_length, segment.payload_wire_bytes,
            path_.full_bytes(segment.payload_wire_bytes));
}

// Decides whether a Middle or Last packet can be placed. If one packet was lost before it, that was
// a Middle or the First of the same message, and its length is the MTU. If more were lost, a Last
// and a First may be among them, so the offset is unknown.
bool IbRequests::continues_send(const IbSegment& segment, bool last) {
  if (open_ == Open::send && lost_before_ == 0) return true;
  const std::uint64_t full = last ? path_.mtu_bytes() : segment.payload_wire_bytes;
  if (lost_before_ != 1 || full == 0 || open_ == Open::write || inside_unknown_) return false;
  if (open_ == Open::none) {
    begin(Open::send, segment);
    first_psn_ = wire::psn_plus(segment.psn(), wire::psn_mask);
  }
  offset_ += full;
  return true;
}

// Passes on one packet of a Send.
void IbRequests::send(const IbSegment& segment) {
  const Operation operation = segment.operation();
  const bool last = is_last(operation);
  check_full(segment);
  if (begins(operation)) {
    begin(Open::send, segment);
  } else if (!continues_send(segment, last)) {
    return not_understood(segment);
  }
  sink_.on_send(origin(segment),
                {.message = first_psn_,
                 .kind = kind_of(segment),
                 .offset = offset_,
                 .bytes = segment.payload,
                 .missing_bytes = segment.missing_bytes(),
                 .last = last,
                 .has_immediate = wire::IbLayout::of(segment.headers.bth.opcode).immediate,
                 .immediate = segment.headers.immediate,
                 .invalidated_key = segment.headers.invalidated_key});
  offset_ += segment.payload_wire_bytes;
  if (last) open_ = Open::none;
}

// Decides whether a Middle or Last packet can be placed. A Write has its length in the first
// packet, so the offset follows from the PSN even after a loss, if the MTU is known.
bool IbRequests::continues_write(const IbSegment& segment) {
  if (open_ != Open::write) return false;
  const auto packets = path_.packets_of(length_);
  const auto index = static_cast<std::uint64_t>(wire::psn_distance(first_psn_, segment.psn()));
  if (lost_before_ != 0) {
    if (!packets || index >= *packets) return false;
    offset_ = index * path_.mtu_bytes();
  }
  return true;
}

// Passes on one packet of a Write, and checks its length against the RETH.
void IbRequests::write(const IbSegment& segment) {
  const Operation operation = segment.operation();
  const bool first = begins(operation);
  const bool last = is_last(operation);
  check_full(segment);
  if (first) {
    begin(Open::write, segment);
    key_ = segment.headers.reth.key;
    address_ = segment.headers.reth.address;
    length_ = segment.headers.reth.length_bytes;
  } else if (!continues_write(segment)) {
    return not_understood(segment);
  }
  const std::uint64_t end = offset_ + segment.payload_wire_bytes;
  if (last ? end != length_ : end >= length_) {
    violation(segment, Violation::Kind::wrong_length, end, length_);
  }
  sink_.on_write(origin(segment),
                 {.message = first_psn_,
                  .key = key_,
                  .address = address_ + offset_,
                  .bytes = segment.payload,
                  .missing_bytes = segment.missing_bytes(),
                  .first = first,
                  .last = last,
                  .message_bytes = length_,
                  .has_immediate = wire::IbLayout::of(segment.headers.bth.opcode).immediate,
                  .immediate = segment.headers.immediate});
  offset_ = end;
  if (last) open_ = Open::none;
}

// Opens a Read: its response takes as many PSNs as it has packets (§9.4.4), or an unknown number
// without the MTU.
std::optional<std::uint64_t> IbRequests::read(const IbSegment& segment) {
  end_open(segment);
  const wire::Reth& reth = segment.headers.reth;
  last_read_ = reth;
  sink_.on_read_request(origin(segment), {.request = segment.psn(),
                                          .key = reth.key,
                                          .address = reth.address,
                                          .length = reth.length_bytes});
  answers_.expect(responder(segment), {.psn = segment.psn(),
                                       .key = reth.key,
                                       .address = reth.address,
                                       .length = reth.length_bytes});
  return path_.packets_of(reth.length_bytes);
}

// Opens an atomic; its response is one packet.
void IbRequests::atomic(const IbSegment& segment) {
  end_open(segment);
  const wire::AtomicEth& atomic = segment.headers.atomic;
  const bool adds = segment.operation() == Operation::fetch_add;
  sink_.on_atomic_request(origin(segment),
                          {.request = segment.psn(),
                           .kind = adds ? AtomicKind::fetch_add : AtomicKind::compare_swap,
                           .key = atomic.key,
                           .address = atomic.address,
                           .swap_or_add = atomic.swap_or_add,
                           .compare = atomic.compare});
  answers_.expect(responder(segment), {.psn = segment.psn(),
                                       .atomic = true,
                                       .key = atomic.key,
                                       .address = atomic.address,
                                       .length = sizeof(std::uint64_t)});
}

// A request for the rest of the Read lies within its PSNs, at a distance that says nothing.
std::optional<std::uint64_t> IbRequests::width_before(const IbSegment& next,
                                                      std::uint64_t distance) {
  const std::uint64_t bytes = last_read_.length_bytes;
  if (asks_for_rest(next, last_read_)) return path_.packets_of(bytes);
  return path_.packets_within(bytes, distance);
}

std::uint64_t IbRequests::guess_width(const IbSegment& next, std::uint64_t distance) {
  const std::uint64_t bytes = last_read_.length_bytes;
  if (!asks_for_rest(next, last_read_)) return path_.guess_packets(bytes, distance);
  // The packets before the rest have the MTU.
  const std::uint64_t full = (next.headers.reth.address - last_read_.address) / distance;
  return path_.may_be(full) ? (bytes + full - 1) / full : distance + 1;
}

}  // namespace weft::capture
