#include "capture/rdmap_decoder.h"

#include <algorithm>
#include <optional>

#include "wire/terminate.h"

namespace weft::capture {
namespace {

using wire::RdmapOpcode;

SendKind kind_of(RdmapOpcode opcode) {
  switch (opcode) {
    case RdmapOpcode::send_invalidate:
      return SendKind::invalidate;
    case RdmapOpcode::send_solicited:
      return SendKind::solicited;
    case RdmapOpcode::send_solicited_invalidate:
      return SendKind::solicited_invalidate;
    default:
      return SendKind::plain;
  }
}

bool invalidates(SendKind kind) {
  return kind == SendKind::invalidate || kind == SendKind::solicited_invalidate;
}

// Calls `emit(offset, bytes, missing_bytes, is_end)` for each captured stretch of `payload` with
// the hole behind it. `header_bytes`: what `missing` counts before the payload.
template <typename Emit>
void for_each_part(Bytes payload, std::span<const MissingRange> missing, std::size_t header_bytes,
                   Emit emit) {
  if (missing.empty()) return emit(std::size_t{0}, payload, std::size_t{0}, true);
  std::size_t at = 0;
  for (const MissingRange& range : missing) {
    const std::size_t begin =
        std::min(std::max(range.begin, header_bytes) - header_bytes, payload.size());
    const std::size_t end =
        std::min(std::max(range.end, header_bytes) - header_bytes, payload.size());
    if (begin >= end) continue;
    emit(at, payload.subspan(at, begin - at), end - begin, end == payload.size());
    at = end;
  }
  if (at < payload.size() || payload.empty()) {
    emit(at, payload.subspan(at), std::size_t{0}, true);
  }
}

}  // namespace

void RdmapDecoder::on_fpdu(Side side, const Fpdu& fpdu) {
  saw_fpdus_ = true;
  const Bytes ulpdu = fpdu.ulpdu;
  const std::size_t header_end = wire::ddp_is_tagged(ulpdu[0]) ? wire::DdpTagged::header_bytes
                                                               : wire::DdpUntagged::header_bytes;
  // Without its header, which was not captured, nothing can be said of it.
  if (!fpdu.missing.empty() && fpdu.missing.front().begin < header_end) return;
  const auto control = std::to_integer<std::uint8_t>(ulpdu[1]);
  Segment segment{.origin = {.connection = connection_,
                             .side = side,
                             .stamp = fpdu.stamp,
                             .position = fpdu.position},
                  .own = half(side),
                  .peer = half(other(side)),
                  .opcode = wire::rdmap_opcode(control),
                  .last = wire::ddp_is_last(ulpdu[0]),
                  .payload = {},
                  .missing = fpdu.missing,
                  .header_bytes = header_end};
  // RFC 5040 §4.1: version 1. Some early implementations of version 0 look the same.
  if (wire::rdmap_version_of(control) > wire::rdmap_version) {
    return report(segment, Violation::Kind::bad_version, wire::rdmap_version_of(control),
                  wire::rdmap_version);
  }
  if (const auto view = wire::TaggedView::check(ulpdu)) {
    segment.payload = view->payload();
    return tagged(segment, *view);
  }
  const auto view = wire::UntaggedView::check(ulpdu);
  if (!view) return report(segment, Violation::Kind::bad_header, ulpdu.size());
  segment.payload = view->payload();
  untagged(segment, *view);
}

void RdmapDecoder::on_lost(Side side, const Stamp& stamp, std::uint64_t bytes) {
  Half& own = half(side);
  own.lost_since_send += bytes;
  own.lost_since_write += bytes;
  own.lost_since_request += bytes;
  own.lost_since_answer += bytes;
  sink_.on_gap({.connection = connection_, .side = side, .stamp = stamp}, {.wire_bytes = bytes});
}

FpduExpectation RdmapDecoder::expectation(Side side) const {
  const Half& own = half(side);
  FpduExpectation expected;
  expected.send_msn = own.send_msn;
  expected.request_msn = own.request_msn;
  expected.stags = own.stags;
  return expected;
}

void RdmapDecoder::tagged(Segment segment, const wire::TaggedView& view) {
  Half& own = segment.own;
  if (own.stags[own.next_stag] != view.stag()) {
    own.next_stag = (own.next_stag + 1) % own.stags.size();
    own.stags[own.next_stag] = view.stag();
  }
  if (segment.opcode == RdmapOpcode::write) return write(segment, view);
  if (segment.opcode == RdmapOpcode::read_response) return answer(segment, view);
  report(segment, Violation::Kind::bad_header, static_cast<std::uint64_t>(segment.opcode));
}

void RdmapDecoder::untagged(Segment segment, const wire::UntaggedView& view) {
  switch (segment.opcode) {
    case RdmapOpcode::send:
    case RdmapOpcode::send_invalidate:
    case RdmapOpcode::send_solicited:
    case RdmapOpcode::send_solicited_invalidate:
      return send(segment, view);
    case RdmapOpcode::immediate_data:
    case RdmapOpcode::immediate_data_solicited:
      return immediate(segment, view);
    case RdmapOpcode::read_request:
      return read_request(segment, view);
    case RdmapOpcode::atomic_request:
      return atomic_request(segment, view);
    case RdmapOpcode::atomic_response:
      return atomic_answer(segment);
    case RdmapOpcode::terminate:
      return terminate(segment);
    default:
      report(segment, Violation::Kind::bad_header, static_cast<std::uint64_t>(segment.opcode));
  }
}

// --- Writes --------------------------------------------------------------------------------------

void RdmapDecoder::write(const Segment& segment, const wire::TaggedView& view) {
  Half& own = segment.own;
  // After a loss this may be another message: unless what was lost explains the distance.
  const std::uint64_t ahead = view.tagged_offset() - own.write_offset;
  const bool continues =
      own.write_open && (own.lost_since_write == 0 ||
                         (view.stag() == own.write_stag && ahead <= own.lost_since_write));
  if (!continues) ++own.write_message;
  bool first = !continues;
  for_each_part(segment.payload, segment.missing, segment.header_bytes,
                [&](std::size_t offset, Bytes bytes, std::size_t missing_bytes, bool is_end) {
                  sink_.on_write(segment.origin, {.message = own.write_message,
                                                  .key = view.stag(),
                                                  .address = view.tagged_offset() + offset,
                                                  .bytes = bytes,
                                                  .missing_bytes = missing_bytes,
                                                  .first = first,
                                                  .last = is_end && segment.last});
                  first = false;
                });
  own.write_open = !segment.last;
  own.write_stag = view.stag();
  own.write_offset = view.tagged_offset() + segment.payload.size();
  own.lost_since_write = 0;
}

// --- Sends ---------------------------------------------------------------------------------------

void RdmapDecoder::check_send_order(const Segment& segment, const wire::UntaggedView& view) {
  Half& own = segment.own;
  if (own.send_msn != 0 && own.lost_since_send == 0) {
    const std::uint32_t expected = own.send_open ? own.send_msn : own.send_msn + 1;
    if (view.msn() != expected) {
      report(segment, Violation::Kind::unexpected_message, view.msn(), expected);
    } else if (view.message_offset() != own.send_offset) {
      report(segment, Violation::Kind::unexpected_offset, view.message_offset(), own.send_offset);
    }
  }
  own.send_msn = view.msn();
  own.send_open = !segment.last;
  own.send_offset =
      segment.last ? 0 : view.message_offset() + static_cast<std::uint32_t>(segment.payload.size());
  own.lost_since_send = 0;
}

void RdmapDecoder::send(const Segment& segment, const wire::UntaggedView& view) {
  check_send_order(segment, view);
  const SendKind kind = kind_of(segment.opcode);
  for_each_part(segment.payload, segment.missing, segment.header_bytes,
                [&](std::size_t offset, Bytes bytes, std::size_t missing_bytes, bool is_end) {
                  const bool last = is_end && segment.last;
                  sink_.on_send(
                      segment.origin,
                      {.message = view.msn(),
                       .kind = kind,
                       .offset = view.message_offset() + std::uint64_t{offset},
                       .bytes = bytes,
                       .missing_bytes = missing_bytes,
                       .last = last,
                       .invalidated_key = last && invalidates(kind) ? view.invalidate_stag() : 0});
                });
}

void RdmapDecoder::immediate(const Segment& segment, const wire::UntaggedView& view) {
  check_send_order(segment, view);
  if (!segment.whole()) return;
  if (segment.payload.size() != wire::ImmediateData::header_bytes) {
    return report(segment, Violation::Kind::bad_header, segment.payload.size());
  }
  sink_.on_immediate(segment.origin,
                     {.message = view.msn(),
                      .solicited = segment.opcode == RdmapOpcode::immediate_data_solicited,
                      .bytes = segment.payload});
}

// --- Requests ------------------------------------------------------------------------------------

void RdmapDecoder::check_request_order(const Segment& segment, std::uint32_t msn) {
  Half& own = segment.own;
  const std::uint32_t skipped = own.request_msn != 0 ? msn - own.request_msn - 1 : 0;
  if (skipped != 0 && own.lost_since_request == 0) {
    report(segment, Violation::Kind::unexpected_message, msn, own.request_msn + 1);
  } else if (skipped > own.lost_since_request / wire::ReadRequest::header_bytes) {
    own.answers_uncertain = true;
  } else {
    for (std::uint32_t i = 0; i < skipped; ++i) remember(own, {.seen = false});
  }
  own.request_msn = msn;
  own.lost_since_request = 0;
}

void RdmapDecoder::remember(Half& own, const Request& request) {
  if (own.requests.size() == max_requests) own.requests.pop_front();
  own.requests.push_back(request);
}

void RdmapDecoder::read_request(const Segment& segment, const wire::UntaggedView& view) {
  check_request_order(segment, view.msn());
  if (!segment.whole()) return;
  const auto request = wire::ReadRequest::parse(segment.payload);
  if (!request) return report(segment, Violation::Kind::bad_header, segment.payload.size());
  remember(segment.own, {.msn = view.msn(),
                         .sink_stag = request->sink_stag,
                         .sink_offset = request->sink_offset,
                         .length_bytes = request->size_bytes,
                         .source_stag = request->source_stag,
                         .source_offset = request->source_offset});
  sink_.on_read_request(segment.origin, {.request = view.msn(),
                                         .key = request->source_stag,
                                         .address = request->source_offset,
                                         .length = request->size_bytes,
                                         .has_sink = true,
                                         .sink_key = request->sink_stag,
                                         .sink_address = request->sink_offset});
}

void RdmapDecoder::atomic_request(const Segment& segment, const wire::UntaggedView& view) {
  check_request_order(segment, view.msn());
  if (!segment.whole()) return;
  const auto request = wire::AtomicRequest::parse(segment.payload);
  if (!request) return report(segment, Violation::Kind::bad_header, segment.payload.size());
  AtomicKind kind = AtomicKind::other;
  if (request->opcode == wire::AtomicOpcode::fetch_add) kind = AtomicKind::fetch_add;
  if (request->opcode == wire::AtomicOpcode::compare_swap) kind = AtomicKind::compare_swap;
  remember(segment.own, {.msn = view.msn(), .atomic = true, .atomic_id = request->request_id});
  sink_.on_atomic_request(segment.origin, {.request = view.msn(),
                                           .kind = kind,
                                           .key = request->stag,
                                           .address = request->tagged_offset,
                                           .swap_or_add = request->add_or_swap,
                                           .compare = request->compare});
}

// --- Answers -------------------------------------------------------------------------------------

bool RdmapDecoder::fits(const Request& request, const Sink& sink) {
  if (!request.seen) return true;
  if (request.atomic) return false;
  // RFC 5040 §5.2.1: the sink of an empty read means nothing.
  if (request.length_bytes == 0) return sink.bytes == 0;
  const std::uint64_t within = sink.offset - request.sink_offset;
  return sink.stag == request.sink_stag && within >= request.answered_bytes &&
         within <= request.length_bytes && sink.bytes <= request.length_bytes - within;
}

// RFC 5040 §5.5: answers come in the order of the requests, each in the order of its bytes.
RdmapDecoder::Request* RdmapDecoder::match(Half& requester, const Sink& sink, std::uint64_t lost) {
  if (lost > 0 || requester.answers_uncertain) return match_after_loss(requester, sink, lost);
  if (requester.requests.empty() || !fits(requester.requests.front(), sink)) return nullptr;
  Request& request = requester.requests.front();
  const bool next = !request.seen || request.length_bytes == 0 ||
                    sink.offset - request.sink_offset == request.answered_bytes;
  return next ? &request : nullptr;
}

RdmapDecoder::Request* RdmapDecoder::match_after_loss(Half& requester, const Sink& sink,
                                                      std::uint64_t lost) {
  auto& requests = requester.requests;
  auto found = requests.end();
  std::uint64_t skipped = 0;  // answers that must have been lost, for this request to be the one
  for (auto request = requests.begin(); request != requests.end(); ++request) {
    if (fits(*request, sink)) {
      // Two that fit equally well: no telling which.
      if (found != requests.end() || !request->seen) {
        requester.answers_uncertain = true;
        return nullptr;
      }
      found = request;
    }
    if (request->seen) skipped += request->length_bytes - request->answered_bytes;
    if (!requester.answers_uncertain && skipped > lost) break;
  }
  requester.answers_uncertain = found == requests.end();
  if (found == requests.end()) return nullptr;
  requests.erase(requests.begin(), found);
  return &requests.front();
}

void RdmapDecoder::answer(const Segment& segment, const wire::TaggedView& view) {
  Half& requester = segment.peer;
  Request* request =
      match(requester,
            {.stag = view.stag(), .offset = view.tagged_offset(), .bytes = segment.payload.size()},
            segment.own.lost_since_answer);
  segment.own.lost_since_answer = 0;
  const bool known = request && request->seen;
  if (!request && !requester.answers_uncertain) {
    report(segment, Violation::Kind::answer_without_request, view.stag());
  }
  const std::uint64_t within = known ? view.tagged_offset() - request->sink_offset : 0;
  const std::uint64_t address = known ? request->source_offset + within : view.tagged_offset();
  for_each_part(segment.payload, segment.missing, segment.header_bytes,
                [&](std::size_t offset, Bytes bytes, std::size_t missing_bytes, bool is_end) {
                  sink_.on_read_part(segment.origin,
                                     {.request = known ? request->msn : 0,
                                      .known = known,
                                      .key = known ? request->source_stag : view.stag(),
                                      .address = address + offset,
                                      .bytes = bytes,
                                      .missing_bytes = missing_bytes,
                                      .last = is_end && segment.last});
                });
  if (!request) return;
  request->answered_bytes = within + segment.payload.size();
  if (segment.last) requester.requests.pop_front();
}

void RdmapDecoder::atomic_answer(const Segment& segment) {
  if (!segment.whole()) return;
  const auto answer = wire::AtomicResponse::parse(segment.payload);
  if (!answer) return report(segment, Violation::Kind::bad_header, segment.payload.size());
  auto& requests = segment.peer.requests;
  const auto found = std::ranges::find_if(requests, [&](const Request& request) {
    return request.atomic && request.atomic_id == answer->request_id;
  });
  if (found == requests.end()) {
    // Of a request that was not captured.
    if (!requests.empty() && !requests.front().seen) return requests.pop_front();
    return report(segment, Violation::Kind::answer_without_request, answer->request_id);
  }
  const std::uint32_t msn = found->msn;
  // Earlier reads without an answer lost theirs.
  requests.erase(requests.begin(), found + 1);
  sink_.on_atomic_answer(segment.origin, {.request = msn, .original = answer->original_value});
}

void RdmapDecoder::terminate(const Segment& segment) {
  terminated_ = true;
  Refusal refusal{.kind = Refusal::Kind::terminate};
  const auto message = segment.whole()
                           ? wire::Terminate::parse(segment.payload)
                           : Result<wire::Terminate, wire::WireError>(wire::WireError::truncated);
  if (!message) {
    report(segment, Violation::Kind::bad_header, segment.payload.size());
    return sink_.on_refusal(segment.origin, refusal);
  }
  refusal.layer = message->code.layer;
  refusal.type = message->code.type;
  refusal.code = message->code.code;
  const Bytes quoted = Bytes(message->ddp_header).first(message->ddp_header_bytes);
  if (message->has_read_request) {
    refusal.has_key = true;
    refusal.key = message->read_request.source_stag;
    refusal.address = message->read_request.source_offset;
  } else if (const auto view = wire::TaggedView::check(quoted)) {
    refusal.has_key = true;
    refusal.key = view->stag();
    refusal.address = view->tagged_offset();
  }
  sink_.on_refusal(segment.origin, refusal);
}

}  // namespace weft::capture
