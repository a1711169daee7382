#include "capture/iwarp/rdmap_decoder.h"

#include <algorithm>
#include <optional>

#include "wire/mpa.h"
#include "wire/rdmap.h"
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

// A captured part of a payload, with the hole after it.
struct PayloadPart {
  std::size_t offset = 0;
  Bytes bytes;
  std::size_t missing_bytes = 0;
  bool lost = false;  // the hole was not cut by the snap length
  bool is_end = false;
};

// Calls `emit(const PayloadPart&)` for each captured part of `payload`. `missing` counts from
// `header_bytes` before the payload.
template <typename Emit>
void for_each_part(Bytes payload, std::span<const MissingRange> missing, std::size_t header_bytes,
                   Emit emit) {
  if (missing.empty()) return emit(PayloadPart{.bytes = payload, .is_end = true});
  std::size_t at = 0;
  for (const MissingRange& range : missing) {
    const std::size_t begin =
        std::min(std::max(range.begin, header_bytes) - header_bytes, payload.size());
    const std::size_t end =
        std::min(std::max(range.end, header_bytes) - header_bytes, payload.size());
    if (begin >= end) continue;
    emit(PayloadPart{.offset = at,
                     .bytes = payload.subspan(at, begin - at),
                     .missing_bytes = end - begin,
                     .lost = !range.cut,
                     .is_end = end == payload.size()});
    at = end;
  }
  if (at < payload.size() || payload.empty()) {
    emit(PayloadPart{.offset = at, .bytes = payload.subspan(at), .is_end = true});
  }
}

// Returns how many bytes of the FPDU are missing, cut by the snap length or not.
std::uint64_t missing_bytes(const Fpdu& fpdu, bool cut) {
  std::uint64_t bytes = 0;
  for (const MissingRange& range : fpdu.missing) {
    if (range.cut == cut) bytes += range.end - range.begin;
  }
  return bytes;
}

// Returns the queue of an untagged message: RFC 5040 §4.1, RFC 7306 §4.
std::uint32_t queue_of(RdmapOpcode opcode) {
  switch (opcode) {
    case RdmapOpcode::read_request:
    case RdmapOpcode::atomic_request:
      return wire::queue::request;
    case RdmapOpcode::terminate:
      return wire::queue::terminate;
    case RdmapOpcode::atomic_response:
      return wire::queue::atomic_response;
    default:
      return wire::queue::send;
  }
}

}  // namespace

// Decodes the header of a DDP segment, and dispatches it by its model and opcode.
void RdmapDecoder::on_fpdu(Side side, const Fpdu& fpdu) {
  saw_fpdus_ = true;
  const Bytes ulpdu = fpdu.ulpdu;
  const std::size_t header_end = wire::ddp_is_tagged(ulpdu[0]) ? wire::DdpTagged::header_bytes
                                                               : wire::DdpUntagged::header_bytes;
  // Without its header the captured rest cannot be decoded either.
  if (!fpdu.missing.empty() && fpdu.missing.front().begin < header_end) {
    return without_header(side, fpdu);
  }
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
  // RFC 5040 §4.1: the version is 1. Some early implementations send 0 with the same format.
  if (wire::rdmap_version_of(control) > wire::rdmap_version) {
    return report(segment, Violation::Kind::bad_version, wire::rdmap_version_of(control),
                  wire::rdmap_version);
  }
  if (const auto view = wire::TaggedView::check(ulpdu)) {
    segment.payload = view->payload();
    return tagged(segment, *view);
  }
  const auto view = wire::UntaggedView::check(ulpdu);
  if (!view && view.error() == wire::WireError::bad_version) {
    return report(segment, Violation::Kind::bad_version, wire::ddp_version_of(ulpdu[0]),
                  wire::ddp_version);
  }
  if (!view) return report(segment, Violation::Kind::bad_header, ulpdu.size());
  segment.payload = view->payload();
  untagged(segment, *view);
}

// A loss makes it uncertain which message continues and which request an answer belongs to.
void RdmapDecoder::on_lost(Side side, const Stamp& stamp, const Hole& hole) {
  note_lost(side, hole.bytes);
  sink_.on_gap({.connection = connection_, .side = side, .stamp = stamp},
               {.wire_bytes = hole.bytes, .cut = hole.cut});
}

// Bytes that were lost before the capture are reported already. The snap length may have cut most
// of the FPDU, and each of its bytes may have belonged to any message.
void RdmapDecoder::without_header(Side side, const Fpdu& fpdu) {
  const std::uint64_t cut = missing_bytes(fpdu, true);
  const std::uint64_t captured =
      wire::fpdu_bytes(fpdu.ulpdu.size()) - cut - missing_bytes(fpdu, false);
  note_lost(side, cut);
  on_lost(side, fpdu.stamp, {captured, fpdu.missing.front().cut});
}

void RdmapDecoder::note_lost(Side side, std::uint64_t bytes) {
  Half& own = half(side);
  own.lost_since_send += bytes;
  own.inside_unknown = true;
  own.lost_since_write += bytes;
  own.requests.on_requests_lost(bytes);
  half(other(side)).requests.on_answers_lost(bytes);
}

// The MSNs and STags seen so far help to recognise the next header after a loss.
FpduExpectation RdmapDecoder::expectation(Side side) const {
  const Half& own = half(side);
  FpduExpectation expected;
  expected.send_msn = own.send_msn;
  expected.request_msn = own.requests.last_msn();
  expected.stags = own.stags;
  return expected;
}

// Remembers the STag for searches, then dispatches by opcode.
void RdmapDecoder::tagged(Segment segment, const wire::TaggedView& view) {
  Half& own = segment.own;
  if (own.stags[own.next_stag] != view.stag()) {
    own.next_stag = (own.next_stag + 1) % own.stags.size();
    // The array is a ring of the latest STags. Segments of one message repeat theirs, so only a
    // change takes an entry.
    own.stags[own.next_stag] = view.stag();
  }
  if (segment.opcode == RdmapOpcode::write) return write(segment, view);
  if (segment.opcode == RdmapOpcode::read_response) return answer(segment, view);
  report(segment, Violation::Kind::bad_header, static_cast<std::uint64_t>(segment.opcode));
}

// Segments of two messages do not mix (RFC 5041 §5.3), so a Write that comes next begins there.
void RdmapDecoder::untagged(Segment segment, const wire::UntaggedView& view) {
  segment.own.inside_unknown = false;
  if (view.queue() != queue_of(segment.opcode)) {
    return report(segment, Violation::Kind::bad_header, view.queue(), queue_of(segment.opcode));
  }
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
  if (own.control_stag != 0 && view.stag() == own.control_stag) return control_word(segment);
  // After a loss this may be another message. It continues the Write if the lost bytes explain the
  // distance. A smaller offset wraps to a large distance, so it begins another message.
  const std::uint64_t ahead = view.tagged_offset() - own.write_offset;
  const bool continues =
      own.write_open && (own.lost_since_write == 0 ||
                         (view.stag() == own.write_stag && ahead <= own.lost_since_write));
  // Tagged messages have no MSN on the wire, so the decoder numbers them itself.
  if (!continues) ++own.write_message;
  // Nor do they tell where they begin: what was lost may have been the beginning of this one.
  bool first = !continues && !own.inside_unknown;
  for_each_part(segment.payload, segment.missing, segment.header_bytes,
                [&](const PayloadPart& part) {
                  sink_.on_write(segment.origin, {.message = own.write_message,
                                                  .key = view.stag(),
                                                  .address = view.tagged_offset() + part.offset,
                                                  .bytes = part.bytes,
                                                  .missing_bytes = part.missing_bytes,
                                                  .lost = part.lost,
                                                  .first = first,
                                                  .last = part.is_end && segment.last});
                  first = false;
                });
  own.inside_unknown = false;
  own.write_open = !segment.last;
  own.write_stag = view.stag();
  own.write_offset = view.tagged_offset() + segment.payload.size();
  own.lost_since_write = 0;
}

// A Write of the application whose end was lost before it has ended.
void RdmapDecoder::control_word(const Segment& segment) {
  segment.own.inside_unknown = false;
  segment.own.write_open = false;
  segment.own.lost_since_write = 0;
  ++control_words_;
}

// --- Sends ---------------------------------------------------------------------------------------

// Checks MSN and offset of a Send (RFC 5041 §5.3), unless bytes were lost since the last one.
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
  for_each_part(
      segment.payload, segment.missing, segment.header_bytes, [&](const PayloadPart& part) {
        const bool last = part.is_end && segment.last;
        sink_.on_send(segment.origin,
                      {.message = view.msn(),
                       .kind = kind,
                       .offset = view.message_offset() + std::uint64_t{part.offset},
                       .bytes = part.bytes,
                       .missing_bytes = part.missing_bytes,
                       .lost = part.lost,
                       .last = last,
                       .invalidated_key = last && invalidates(kind) ? view.invalidate_stag() : 0});
      });
}

// Immediate Data uses the queue and the MSNs of Sends, so their order is checked together.
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

void RdmapDecoder::add_request(const Segment& segment, const RequestMatcher::Request& request) {
  const std::uint32_t expected = segment.own.requests.last_msn() + 1;
  if (!segment.own.requests.on_request(request)) {
    report(segment, Violation::Kind::unexpected_message, request.msn, expected);
  }
}

// The request counts, so that its answer is not given to another one.
void RdmapDecoder::unreadable_request(const Segment& segment, const wire::UntaggedView& view) {
  if (segment.whole())
    report(segment, Violation::Kind::bad_header, segment.payload.size());
  else
    report_cut(segment);
  add_request(segment, {.frame = segment.origin.stamp.frame,
                        .time_ns = segment.origin.stamp.time_ns,
                        .position = segment.origin.position,
                        .msn = view.msn(),
                        .seen = false});
}

void RdmapDecoder::read_request(const Segment& segment, const wire::UntaggedView& view) {
  const auto request = wire::ReadRequest::parse(segment.payload);
  if (!request || !segment.whole()) return unreadable_request(segment, view);
  add_request(segment, {.frame = segment.origin.stamp.frame,
                        .time_ns = segment.origin.stamp.time_ns,
                        .position = segment.origin.position,
                        .msn = view.msn(),
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
  const auto request = wire::AtomicRequest::parse(segment.payload);
  if (!request || !segment.whole()) return unreadable_request(segment, view);
  AtomicKind kind = AtomicKind::other;
  if (request->opcode == wire::AtomicOpcode::fetch_add) kind = AtomicKind::fetch_add;
  if (request->opcode == wire::AtomicOpcode::compare_swap) kind = AtomicKind::compare_swap;
  add_request(segment, {.frame = segment.origin.stamp.frame,
                        .time_ns = segment.origin.stamp.time_ns,
                        .position = segment.origin.position,
                        .msn = view.msn(),
                        .atomic = true,
                        .atomic_id = request->request_id});
  sink_.on_atomic_request(segment.origin, {.request = view.msn(),
                                           .kind = kind,
                                           .key = request->stag,
                                           .address = request->tagged_offset,
                                           .swap_or_add = request->add_or_swap,
                                           .compare = request->compare});
}

// --- Answers -------------------------------------------------------------------------------------

// Passes on a Read Response. If its request is known, the sink offset is translated to the source.
void RdmapDecoder::answer(const Segment& segment, const wire::TaggedView& view) {
  segment.own.inside_unknown = false;
  const auto match = segment.peer.requests.match({.frame = segment.origin.stamp.frame,
                                                  .time_ns = segment.origin.stamp.time_ns,
                                                  .sink_stag = view.stag(),
                                                  .sink_offset = view.tagged_offset(),
                                                  .bytes = segment.payload.size(),
                                                  .last = segment.last});
  if (match.unexpected) report(segment, Violation::Kind::answer_without_request, view.stag());
  const auto& request = match.request;
  const std::uint64_t address =
      match.known ? request.source_offset + (view.tagged_offset() - request.sink_offset)
                  : view.tagged_offset();
  for_each_part(
      segment.payload, segment.missing, segment.header_bytes, [&](const PayloadPart& part) {
        sink_.on_read_part(segment.origin, {.request = match.known ? request.msn : 0,
                                            .known = match.known,
                                            .key = match.known ? request.source_stag : view.stag(),
                                            .address = address + part.offset,
                                            .bytes = part.bytes,
                                            .missing_bytes = part.missing_bytes,
                                            .lost = part.lost,
                                            .last = part.is_end && segment.last});
      });
}

void RdmapDecoder::atomic_answer(const Segment& segment) {
  const auto answer = wire::AtomicResponse::parse(segment.payload);
  if (!answer || !segment.whole()) {
    if (segment.whole())
      report(segment, Violation::Kind::bad_header, segment.payload.size());
    else
      report_cut(segment);
    // The answer belongs to an unknown request, so it counts as lost for the matcher.
    return segment.peer.requests.on_answers_lost(segment.payload.size());
  }
  const auto match = segment.peer.requests.match({.frame = segment.origin.stamp.frame,
                                                  .time_ns = segment.origin.stamp.time_ns,
                                                  .atomic = true,
                                                  .atomic_id = answer->request_id});
  if (match.unexpected) {
    report(segment, Violation::Kind::answer_without_request, answer->request_id);
  }
  if (!match.known) return;
  sink_.on_atomic_answer(segment.origin,
                         {.request = match.request.msn, .original = answer->original_value});
}

// Passes on a Terminate. It quotes the header that it refuses; the key in it identifies the
// operation.
void RdmapDecoder::terminate(const Segment& segment) {
  terminated_ = true;
  Refusal refusal{.kind = Refusal::Kind::terminate};
  const auto message = segment.whole()
                           ? wire::Terminate::parse(segment.payload)
                           : Result<wire::Terminate, wire::WireError>(wire::WireError::truncated);
  if (!message) {
    if (segment.whole())
      report(segment, Violation::Kind::bad_header, segment.payload.size());
    else
      report_cut(segment);
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
