#include "weft/capture/operation_tracker.hpp"

#include <algorithm>

#include "wire/rdmap.h"

namespace weft::capture {
namespace {

constexpr std::uint32_t psn_bits = 24;

// How much earlier than its request a response may be reported in a connection of iWARP that began
// before the capture, or lacks bytes of the requester.
constexpr std::uint64_t most_late_frames = 512;

// Returns whether `psn` is equal to `last` or after it, modulo 2^24. At most half of all PSNs may
// be outstanding, so a larger distance means that `psn` lies before `last`.
bool reaches(std::uint64_t psn, std::uint64_t last) {
  constexpr std::uint64_t half = 1U << (psn_bits - 1);
  return ((psn - last) & ((1U << psn_bits) - 1)) < half;
}

// Notes what may be a response to any open request of the side. A capture that is out of order may
// have a request after its response.
template <typename Half>
void note_unknown(Half& requester, const Stamp& stamp) {
  std::uint64_t frame = stamp.frame;
  if (!requester.requests.empty()) {
    frame = std::max(frame, requester.requests.back().start.frame + 1);
  }
  requester.unknown_frame = std::max(requester.unknown_frame, frame);
}

// Counts the bytes of a part that are not in the capture.
template <typename Part>
void count_absent(Operation& operation, const Part& part) {
  (part.lost ? operation.missing_bytes : operation.cut_bytes) += part.missing_bytes;
}

// Notes that the last part of the response was captured.
void confirm_at_end(Operation& operation) {
  operation.confirmed = true;
  operation.confirmation = operation.end;
}

bool is_fatal(const Refusal& refusal) {
  return refusal.kind != Refusal::Kind::receiver_not_ready &&
         refusal.kind != Refusal::Kind::sequence_error;
}

}  // namespace

const char* to_string(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::send:
      return "send";
    case Operation::Kind::write:
      return "write";
    case Operation::Kind::read:
      return "read";
    case Operation::Kind::fetch_add:
      return "fetch_add";
    case Operation::Kind::compare_swap:
      return "compare_swap";
    case Operation::Kind::atomic:
      return "atomic";
    case Operation::Kind::immediate:
      return "immediate";
  }
  return "?";
}

const char* to_string(Operation::Outcome outcome) {
  switch (outcome) {
    case Operation::Outcome::complete:
      return "complete";
    case Operation::Outcome::incomplete:
      return "incomplete";
    case Operation::Outcome::unanswered:
      return "unanswered";
    case Operation::Outcome::refused:
      return "refused";
  }
  return "?";
}

OperationTracker::Half& OperationTracker::half(const Origin& origin) {
  Pair& pair = pairs_.get(origin.connection);
  return origin.side == Side::a ? pair.a : pair.b;
}

OperationTracker::Half& OperationTracker::peer(const Origin& origin) {
  Origin turned = origin;
  turned.side = other(origin.side);
  return half(turned);
}

Operation OperationTracker::begin(const Origin& origin, Operation::Kind kind,
                                  std::uint64_t message) {
  Operation operation;
  operation.connection = origin.connection;
  operation.side = origin.side;
  operation.kind = kind;
  operation.message = message;
  operation.start = origin.stamp;
  operation.end = origin.stamp;
  return operation;
}

// Numbers an operation when it is reported, so the numbers follow the order of reports and not that
// of the starts.
void OperationTracker::report(Operation operation) {
  operation.number = ++numbered_;
  sink_.on_operation(operation);
}

// --- Sends and Writes ----------------------------------------------------------------------------

// Adds a part to the Send under way. If it does not follow the part before, the bytes between were
// not captured.
void OperationTracker::on_send(const Origin& origin, const SendPart& part) {
  Half& own = half(origin);
  Open& open = own.send;
  if (open.active && open.operation.message != part.message) {
    open.operation.outcome = Operation::Outcome::incomplete;
    close(own, open, origin.position);
  }
  if (!open.active) {
    open.active = true;
    open.operation = begin(origin, Operation::Kind::send, part.message);
    open.expected = 0;
  }
  Operation& operation = open.operation;
  const std::uint64_t wire_bytes = part.bytes.size() + part.missing_bytes;
  const std::uint64_t skipped = part.offset - std::min(part.offset, open.expected);
  operation.bytes += wire_bytes + skipped;
  operation.missing_bytes += skipped;
  count_absent(operation, part);
  open.expected = part.offset + wire_bytes;
  operation.end = origin.stamp;
  operation.send_kind = part.kind;
  if (!part.last) return;
  operation.has_immediate = part.has_immediate;
  operation.immediate = part.immediate;
  operation.invalidated_key = part.invalidated_key;
  close(own, open, origin.position);
}

// Adds a part to the Write under way; a Write without its first part is incomplete.
void OperationTracker::on_write(const Origin& origin, const WritePart& part) {
  Half& own = half(origin);
  Open& open = own.write;
  if (open.active && open.operation.message != part.message) {
    open.operation.outcome = Operation::Outcome::incomplete;
    close(own, open, origin.position);
  }
  const std::uint64_t wire_bytes = part.bytes.size() + part.missing_bytes;
  if (!open.active) {
    open.active = true;
    open.operation = begin(origin, Operation::Kind::write, part.message);
    open.operation.key = part.key;
    open.operation.address = part.address;
    open.operation.requested_bytes = part.message_bytes;
    if (!part.first) open.operation.outcome = Operation::Outcome::incomplete;
    open.expected = part.address;
  }
  Operation& operation = open.operation;
  const std::uint64_t skipped = part.address - std::min(part.address, open.expected);
  operation.bytes += wire_bytes + skipped;
  operation.missing_bytes += skipped;
  count_absent(operation, part);
  open.expected = part.address + wire_bytes;
  operation.end = origin.stamp;
  if (!part.last) return;
  operation.has_immediate = part.has_immediate;
  operation.immediate = part.immediate;
  close(own, open, origin.position);
}

// An immediate message has a single part, so it is never open and goes directly to the operations
// that wait for confirmation.
void OperationTracker::on_immediate(const Origin& origin, const ImmediateMessage& message) {
  Operation operation = begin(origin, Operation::Kind::immediate, message.message);
  operation.send_kind = message.solicited ? SendKind::solicited : SendKind::plain;
  operation.bytes = message.bytes.size();
  operation.has_immediate = true;
  operation.immediate = wire::immediate_number(message.bytes);
  await_confirmation(half(origin), operation, origin.position);
}

void OperationTracker::close(Half& own, Open& open, std::uint64_t position) {
  if (open.operation.missing_bytes > 0 && open.operation.outcome == Operation::Outcome::complete) {
    open.operation.outcome = Operation::Outcome::incomplete;
  }
  open.active = false;
  await_confirmation(own, open.operation, position);
}

// Stores a finished operation until its confirmation, or reports it if there will be none.
void OperationTracker::await_confirmation(Half& own, const Operation& operation,
                                          std::uint64_t position) {
  // Datagrams and unreliable connections have no confirmations.
  const Transport transport = connections_[operation.connection].transport;
  if (transport == Transport::uc || transport == Transport::ud) return report(operation);
  // The operation may have been delayed until after its confirmation was captured.
  const bool reached = transport == Transport::iwarp ? position <= own.confirmed_position
                                                     : reaches(own.confirmed_position, position);
  if (own.has_confirmed && own.unconfirmed.empty() && reached) {
    Operation confirmed = operation;
    confirmed.confirmed = true;
    confirmed.confirmation = own.confirmed_at;
    return report(confirmed);
  }
  // This bounds the memory: the oldest operation is reported without its confirmation.
  if (own.unconfirmed.size() == limits_.waiting) report_unconfirmed(own);
  own.unconfirmed.push_back({operation, position});
  count_waiting();
}

void OperationTracker::report_unconfirmed(Half& own) {
  report(own.unconfirmed.front().operation);
  own.unconfirmed.pop_front();
  --waiting_;
}

void OperationTracker::report_unanswered(Half& own) {
  end_unanswered(own, own.requests.front());
  report(own.requests.front());
  own.requests.pop_front();
  --waiting_;
}

// On iWARP responses have no number. One that cannot be assigned to a request, or that is among
// bytes that cannot be decoded, may belong to any request before it. Such a request need not be
// without a response.
void OperationTracker::end_unanswered(const Half& own, Operation& operation) const {
  operation.outcome = Operation::Outcome::unanswered;
  const Connection& connection = connections_[operation.connection];
  if (connection.transport != Transport::iwarp || own.unknown_frame == 0) return;
  // While FPDUs are searched in one direction, at its beginning or after a gap, the other one goes
  // on.
  const bool searched = connection.beginning == Connection::Beginning::traffic || own.lacks_bytes;
  if (operation.start.frame >= own.unknown_frame + (searched ? most_late_frames : 0)) return;
  operation.outcome = Operation::Outcome::incomplete;
  const std::uint64_t bytes = std::max(operation.bytes, operation.requested_bytes);
  operation.missing_bytes += bytes - operation.bytes;
  operation.bytes = bytes;
}

// Above the limit all sides report half of what waits, so that the next call does not have to.
void OperationTracker::count_waiting() {
  if (++waiting_ <= limits_.waiting_in_all) return;
  for (auto& [connection, pair] : pairs_) {
    for (Half* own : {&pair.a, &pair.b}) {
      // Rounds up, because there may be many sides with a single waiting operation.
      for (std::size_t i = (own->unconfirmed.size() + 1) / 2; i > 0; --i) report_unconfirmed(*own);
      for (std::size_t i = (own->requests.size() + 1) / 2; i > 0; --i) report_unanswered(*own);
    }
  }
}

// Confirmations are cumulative, so the operations are taken from the oldest one on.
template <typename Confirms>
void OperationTracker::confirm(Half& own, const Stamp& stamp, Confirms confirms) {
  while (!own.unconfirmed.empty() && confirms(own.unconfirmed.front().position)) {
    Operation& operation = own.unconfirmed.front().operation;
    operation.confirmed = true;
    operation.confirmation = stamp;
    report_unconfirmed(own);
  }
}

void OperationTracker::on_received(const Origin& origin, std::uint64_t position) {
  Half& sender = peer(origin);
  sender.confirmed_position = position;
  sender.confirmed_at = origin.stamp;
  sender.has_confirmed = true;
  if (sender.unconfirmed.empty()) return;
  confirm(sender, origin.stamp, [&](std::uint64_t end) { return end <= position; });
}

void OperationTracker::on_acknowledge(const Origin& origin, std::uint32_t psn) {
  Half& sender = peer(origin);
  // An older acknowledgement, which may be captured late, does not take the position back.
  if (!sender.has_confirmed || reaches(psn, sender.confirmed_position)) {
    sender.confirmed_position = psn;
    sender.confirmed_at = origin.stamp;
    sender.has_confirmed = true;
  }
  confirm(sender, origin.stamp, [&](std::uint64_t last) { return reaches(psn, last); });
}

// --- Reads and atomics ---------------------------------------------------------------------------

void OperationTracker::add_request(Half& own, const Operation& operation) {
  if (own.requests.size() == limits_.waiting) report_unanswered(own);
  own.requests.push_back(operation);
  count_waiting();
}

void OperationTracker::on_read_request(const Origin& origin, const ReadRequest& request) {
  Half& own = half(origin);
  if (request.repeated) {
    for (Operation& known : own.requests) {
      if (known.message == request.request) known.repeated = true;
    }
    return;
  }
  Operation operation = begin(origin, Operation::Kind::read, request.request);
  operation.key = request.key;
  operation.address = request.address;
  operation.requested_bytes = request.length;
  add_request(own, operation);
}

void OperationTracker::on_atomic_request(const Origin& origin, const AtomicRequest& request) {
  const auto kind = request.kind == AtomicKind::fetch_add      ? Operation::Kind::fetch_add
                    : request.kind == AtomicKind::compare_swap ? Operation::Kind::compare_swap
                                                               : Operation::Kind::atomic;
  Operation operation = begin(origin, kind, request.request);
  operation.key = request.key;
  operation.address = request.address;
  operation.swap_or_add = request.swap_or_add;
  operation.compare = request.compare;
  add_request(half(origin), operation);
}

// Adds a part of a response to its Read. The last part ends the Read, whether or not all bytes were
// captured.
void OperationTracker::on_read_part(const Origin& origin, const ReadPart& part) {
  Half& requester = peer(origin);
  if (!part.known) {
    return note_unknown(requester, origin.stamp);
  }
  const auto found = std::ranges::find_if(
      requester.requests, [&](const Operation& known) { return known.message == part.request; });
  if (found == requester.requests.end()) return;
  found->bytes += part.bytes.size() + part.missing_bytes;
  count_absent(*found, part);
  found->end = origin.stamp;
  if (!part.last) return;
  Operation operation;
  if (!take_request(requester, part.request, operation)) return;
  const bool whole = operation.bytes >= operation.requested_bytes && operation.missing_bytes == 0;
  operation.outcome = whole ? Operation::Outcome::complete : Operation::Outcome::incomplete;
  // The last part was captured, so the bytes that are still lacking were in responses that were
  // not.
  if (operation.bytes < operation.requested_bytes) {
    operation.missing_bytes += operation.requested_bytes - operation.bytes;
    operation.bytes = operation.requested_bytes;
  }
  if (!part.lost) confirm_at_end(operation);
  report(operation);
}

// An answer without a known request is dropped: without the request there is no operation to
// report.
void OperationTracker::on_atomic_answer(const Origin& origin, const AtomicAnswer& answer) {
  Operation operation;
  if (!take_request(peer(origin), answer.request, operation)) return;
  operation.original = answer.original;
  operation.end = origin.stamp;
  constexpr std::uint64_t word_bytes = 8;
  operation.bytes = word_bytes;
  confirm_at_end(operation);
  report(operation);
}

void OperationTracker::on_gap(const Origin& origin, const Gap& /*gap*/) {
  half(origin).lacks_bytes = true;
  note_unknown(peer(origin), origin.stamp);
}

bool OperationTracker::take_request(Half& requester, std::uint64_t message, Operation& operation) {
  auto& requests = requester.requests;
  const auto found = std::ranges::find_if(
      requests, [&](const Operation& known) { return known.message == message; });
  if (found == requests.end()) return false;
  // Responses arrive in request order, so requests older than this one will never be answered.
  for (auto passed = found - requests.begin(); passed > 0; --passed) {
    report_unanswered(requester);
  }
  operation = requests.front();
  requests.pop_front();
  --waiting_;
  return true;
}

// --- Ends ----------------------------------------------------------------------------------------

// Marks the operations that a fatal refusal is about. An InfiniBand NAK names a PSN, and a
// Terminate quotes the header with key and address.
void OperationTracker::on_refusal(const Origin& origin, const Refusal& refusal) {
  if (refusal.kind == Refusal::Kind::receiver_not_ready) not_ready(peer(origin), refusal.psn);
  if (!is_fatal(refusal)) return;
  Half& requester = peer(origin);
  const bool on_psn = refusal.kind != Refusal::Kind::terminate;
  for (Operation& operation : requester.requests) {
    const bool affected = on_psn ? operation.message == refusal.psn
                                 : refusal.has_key && operation.key == refusal.key &&
                                       operation.address == refusal.address;
    if (affected) operation.outcome = Operation::Outcome::refused;
  }
  const auto is_written = [&](const Operation& operation) {
    return !on_psn && operation.kind == Operation::Kind::write && refusal.has_key &&
           operation.key == refusal.key && refusal.address - operation.address < operation.bytes;
  };
  // Messages that were sent after the refused one, before the refusal arrived, are not marked.
  for (Open* open : {&requester.send, &requester.write}) {
    Operation& under_way = open->operation;
    // On InfiniBand the number of a message is its first PSN.
    const bool affected = on_psn ? reaches(refusal.psn, under_way.message) : is_written(under_way);
    if (open->active && affected) under_way.outcome = Operation::Outcome::refused;
  }
  for (Unconfirmed& waiting : requester.unconfirmed) {
    const bool affected = on_psn ? reaches(refusal.psn, waiting.operation.message) &&
                                       reaches(waiting.position, refusal.psn)
                                 : is_written(waiting.operation);
    if (affected) waiting.operation.outcome = Operation::Outcome::refused;
  }
}

// Counts an RNR NAK for the messages that contain its PSN.
void OperationTracker::not_ready(Half& requester, std::uint32_t psn) {
  for (Open* open : {&requester.send, &requester.write}) {
    if (open->active && reaches(psn, open->operation.message)) ++open->operation.not_ready;
  }
  for (Unconfirmed& waiting : requester.unconfirmed) {
    const bool affected = reaches(psn, waiting.operation.message) && reaches(waiting.position, psn);
    if (affected) ++waiting.operation.not_ready;
  }
}

void OperationTracker::on_end(const Origin& origin, bool /*reset*/) {
  report_all(half(origin));
  report_all(peer(origin));
}

void OperationTracker::on_close(ConnectionId connection) {
  Pair* const pair = pairs_.find(connection);
  if (pair == nullptr) return;
  report_all(pair->a);
  report_all(pair->b);
}

// Reports everything that is open on one side, with an outcome that shows what is missing.
void OperationTracker::report_all(Half& own) {
  // The messages under way, which are added below, were not counted.
  waiting_ -= own.unconfirmed.size() + own.requests.size();
  for (Open* open : {&own.send, &own.write}) {
    if (!open->active) continue;
    if (open->operation.outcome != Operation::Outcome::refused) {
      open->operation.outcome = Operation::Outcome::incomplete;
    }
    open->active = false;
    own.unconfirmed.push_back({open->operation, 0});
  }
  for (Unconfirmed& waiting : own.unconfirmed) {
    // The receiver never became ready.
    if (waiting.operation.not_ready > 0) waiting.operation.outcome = Operation::Outcome::refused;
    report(waiting.operation);
  }
  own.unconfirmed.clear();
  for (Operation& operation : own.requests) {
    if (operation.outcome != Operation::Outcome::refused) end_unanswered(own, operation);
    report(operation);
  }
  own.requests.clear();
}

void OperationTracker::finish() {
  for (auto& [connection, pair] : pairs_) {
    report_all(pair.a);
    report_all(pair.b);
  }
}

}  // namespace weft::capture
