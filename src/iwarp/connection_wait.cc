// Messages that wait for receives: control words, faults that have to wait with them, and the
// clock.
#include <algorithm>

#include "iwarp/connection.h"
#include "iwarp/fault_codes.h"

namespace weft::iwarp {
namespace {

// The length field of an FPDU has 16 bits.
constexpr std::size_t largest_payload_bytes = 65'536;

}  // namespace

// --- Control words -------------------------------------------------------------------------------

// A control word is one whole RDMA Write of eight bytes at one of the offsets; anything else that
// is written to this STag is out of bounds.
TerminateRaised Connection::check_control_word(const Segment& segment) {
  const std::uint64_t offset = segment.tagged_header.tagged_offset;
  const bool good = segment.payload_bytes == wire::control_word_bytes && segment.last() &&
                    offset % wire::control_word_bytes == 0 && offset < wire::control_region_bytes;
  if (!good) return wire::terminate::tagged_bounds;
  return std::nullopt;
}

// Returns whether the stream continues.
bool Connection::take_control_word(const Segment& segment, Bytes payload) {
  const std::uint64_t value = wire::control_word_from_bytes(payload);
  switch (wire::control_word_at(segment.tagged_header.tagged_offset)) {
    case wire::ControlWord::executed:
      // The number decides later which request a Terminate is about: see Requester::find_guilty().
      executed_ = value;
      break;
    case wire::ControlWord::granted:
      requester_.granted(static_cast<std::uint32_t>(value));
      break;
    case wire::ControlWord::waiting:
      if (deferred_ || requester_.finishing()) break;  // the stream will end before that message
      // The peer asks for a message out of turn, or for one that it is sending already.
      if (!receiver_.want_grant(static_cast<std::uint32_t>(value))) {
        raise(quote(wire::terminate::tagged_bounds, &segment));
        return false;
      }
      settle_held();
      break;
    case wire::ControlWord::placed:
      requester_.placed(value);
      break;
    case wire::ControlWord::prove_all:
      take_prove_all(value != 0);
      break;
    case wire::ControlWord::proves_all:
      requester_.proves_all();
      break;
    case wire::ControlWord::rnr_retry:
      // rnr_retry has three bits in InfiniBand; 7 means without end.
      options_.receiver_not_ready.retries = static_cast<std::uint8_t>(value & 7);
      break;
    default:
      break;  // a word of a later version
  }
  return !ended();
}

// --- Faults are reported in order ----------------------------------------------------------------

// Whether the peer's requester has sent it, as opposed to a response to our own request.
bool Connection::is_request(const Segment& segment) const {
  if (segment.tagged) {
    return segment.opcode == wire::RdmapOpcode::write && !is_control_word(segment);
  }
  return segment.untagged_header.queue <= wire::queue::request;
}

// Handles a fault of the peer; returns whether the stream continues. Faults are reported in the
// order of the peer's requests: while earlier requests wait for a receive, or their answers for
// room, the Terminate for a later one is deferred. Requests that follow it are discarded. Responses
// are still processed, since our own requests are not at fault.
bool Connection::refuse(wire::TerminateCode code, const Segment& segment) {
  const wire::Terminate message = quote(code, &segment);
  const bool hold_full = code == wire::terminate::untagged_no_buffer && !segment.tagged &&
                         segment.untagged_header.queue == wire::queue::send;
  // Our own requests do not wait for a receive here, so a fault in a response is reported at once.
  if (!is_request(segment)) {
    raise(message);
  } else if (receiver_.holds() && hold_full) {
    // The oldest held message is the one that found no receive, so it is reported, not the one that
    // found the hold full.
    give_up_waiting(code);
  } else if (receiver_.holds() && receiver_.mid_message()) {
    raise(message, receiver_.executed());  // the held message cannot be completed any more
  } else {
    defer({.message = message, .executed = receiver_.messages()});
  }
  return !ended();
}

void Connection::defer(const DeferredFault& fault) {
  deferred_ = fault;
  raise_deferred();
}

// Sends the deferred Terminate if nothing has to precede it any more. Called again whenever
// something could be sent.
void Connection::raise_deferred() {
  // Held messages come before the one at fault and may still be placed.
  if (receiver_.holds() && !deferred_->gave_up) return;
  if (const TerminateRaised earlier = answer_pending()) {
    return raise(refused_request(*earlier), responder_.fault_number() - 1);
  }
  // A message of this side is unfinished, or answers must precede the Terminate.
  if (requester_.mid_message() || responder_.may_build(receiver_.placed())) return;
  raise(deferred_->message, deferred_->executed);
}

// All discarded payload goes into one buffer, which is allocated by the first fault.
void Connection::discard_into(std::vector<iovec>& out, std::uint32_t length) {
  // Sized once: its memory must not move while a read into it is planned.
  discarded_.resize(largest_payload_bytes);
  out.push_back({discarded_.data(), length});
}

// --- The wait ------------------------------------------------------------------------------------

void Connection::receives_posted(std::uint64_t now_ns) {
  settle_held();
  on_time(now_ns);
}

// Places what waits for a receive. Also called after each segment that arrives while messages are
// held, as a receive may have been posted meanwhile.
void Connection::settle_held() {
  if (ended() || terminate_looping_ || requester_.finishing()) return;
  if (deferred_ && deferred_->gave_up) return;
  // A held message may be too long for its receive, or name an STag that it may not invalidate.
  if (const TerminateRaised raised = receiver_.settle()) return give_up_waiting(*raised);
  if (deferred_) return raise_deferred();
  // Only where nothing is at fault: after a deferred fault the peer's later messages are discarded
  // anyway.
  if (const auto msn = receiver_.take_grant()) control_.put(wire::ControlWord::granted, *msn);
}

// The messages before this word are proven in the way that it ends.
void Connection::take_prove_all(bool wanted) {
  if (wanted) control_.put(wire::ControlWord::proves_all, 1);
  if (owes_proof()) report_placed();
  given_.all = wanted;
}

// A read that should prove earlier messages cannot be answered while a message before it is held.
// The control word `placed` reports what is proven so far, or else the completion of a Send would
// wait for the receive of the next one.
void Connection::report_placed() {
  const bool proof_waits = !responder_.idle() && !responder_.may_build(receiver_.placed());
  // The word costs an FPDU, so it is sent only where a proof is wanted and something new is placed.
  if ((!proof_waits && !given_.all) || receiver_.executed() <= given_.placed) return;
  given_.placed = receiver_.executed();
  control_.put(wire::ControlWord::placed, given_.placed);
}

// No receive came in time, or the hold is full: the peer's request fails with RNR retries exceeded.
void Connection::give_up_waiting(wire::TerminateCode code) {
  const Segment segment = receiver_.waiting_segment();
  defer({.message = quote(code, &segment), .executed = receiver_.executed(), .gave_up = true});
}

std::uint64_t Connection::deadline_ns() const {
  const std::uint64_t repeat_ns = ended() ? never_ns : rtr_repeat_.deadline_ns();
  return std::min(rnr_deadline_ns(), repeat_ns);
}

std::uint64_t Connection::rnr_deadline_ns() const {
  const ReceiverNotReady& wait = options_.receiver_not_ready;
  const bool over = ended() || terminate_looping_ || (deferred_ && deferred_->gave_up);
  // InfiniBand: a retry count of 7 retries for ever.
  const bool for_ever = wait.retries >= rnr_retry_infinite;
  if (waiting_message_ == 0 || over || for_ever) return never_ns;
  return waiting_since_ns_ + wait.retries * wait.timer_ns;
}

// The clock starts anew for each message that waits.
void Connection::on_time(std::uint64_t now_ns) {
  if (ended()) return;
  // The clock is read by the driver and compared here, so that the core needs none of its own.
  if (receiver_.starving() != waiting_message_) {
    rnr_wait_ns_ = rnr_wait_ns(now_ns);
    waiting_message_ = receiver_.starving();
    if (waiting_message_ != 0) ++rnr_waits_;
    waiting_since_ns_ = now_ns;
  }
  rtr_repeat_.on_time(now_ns);
  if (now_ns >= rnr_deadline_ns()) give_up_waiting(wire::terminate::untagged_no_buffer);
}

void Connection::announce_rnr_retries(std::uint8_t retries) {
  // The receiver runs the clock, because it is the side that knows whether a receive is posted.
  control_.put(wire::ControlWord::rnr_retry, retries);
}

}  // namespace weft::iwarp
