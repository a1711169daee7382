// While messages wait for receives: what goes on, what waits with them, and for how long.
#include "iwarp/connection.h"
#include "iwarp/fault_codes.h"

namespace weft::iwarp {
namespace {

constexpr std::size_t largest_payload_bytes = 65'536;

}  // namespace

// --- Control words -------------------------------------------------------------------------------

TerminateRaised Connection::check_control_word(const Segment& segment) {
  const std::uint64_t offset = segment.tagged_header.tagged_offset;
  const bool good = segment.payload_bytes == wire::control_word_bytes && segment.last() &&
                    offset % wire::control_word_bytes == 0 && offset < wire::control_region_bytes;
  if (!good) return wire::terminate::tagged_bounds;
  return std::nullopt;
}

bool Connection::take_control_word(const Segment& segment, Bytes payload) {
  const std::uint64_t value = wire::control_word_from_bytes(payload);
  switch (wire::control_word_at(segment.tagged_header.tagged_offset)) {
    case wire::ControlWord::executed:
      executed_ = value;
      break;
    case wire::ControlWord::granted:
      requester_.granted(static_cast<std::uint32_t>(value));
      break;
    case wire::ControlWord::waiting:
      if (deferred_) break;  // it will never come to that
      if (!receiver_.want_grant(static_cast<std::uint32_t>(value))) {
        raise(quote(wire::terminate::tagged_bounds, &segment));
        return false;
      }
      receives_posted();
      break;
    case wire::ControlWord::placed:
      requester_.placed(value);
      break;
    case wire::ControlWord::rnr_retry:
      options_.receiver_not_ready.retries = static_cast<std::uint8_t>(value & 7);
      break;
    default:
      break;  // of a later version
  }
  return !ended();
}

// --- Faults in their turn ------------------------------------------------------------------------

// What the peer's requester sends; not what answers our own requests.
bool Connection::is_request(const Segment& segment) const {
  if (segment.tagged) {
    return segment.opcode == wire::RdmapOpcode::write && !is_control_word(segment);
  }
  return segment.untagged_header.queue <= wire::queue::request;
}

// Returns whether the stream goes on. The peer must learn of its faults in the order of its
// requests: while earlier ones wait for a receive, or their answers for room, a later fault waits
// as well, and the requests behind it come to nothing. Responses are still taken: our own requests
// are not at fault.
bool Connection::refuse(wire::TerminateCode code, const Segment& segment) {
  const wire::Terminate message = quote(code, &segment);
  const bool hold_full = code == wire::terminate::untagged_no_buffer && !segment.tagged &&
                         segment.untagged_header.queue == wire::queue::send;
  if (!is_request(segment)) {
    raise(message);
  } else if (receiver_.holds() && hold_full) {
    give_up_waiting(code);
  } else if (receiver_.holds() && receiver_.mid_message()) {
    raise(message, receiver_.executed());  // the held message will never be whole
  } else {
    defer({.message = message, .executed = receiver_.messages()});
  }
  return !ended();
}

void Connection::defer(const DeferredFault& fault) {
  deferred_ = fault;
  raise_deferred();
}

// Called again whenever something could be sent.
void Connection::raise_deferred() {
  if (receiver_.holds() && !deferred_->gave_up) return;
  if (const TerminateRaised earlier = answer_pending()) {
    return raise(refused_request(*earlier), responder_.fault_number() - 1);
  }
  if (requester_.mid_message() || responder_.may_build(receiver_.placed())) return;
  raise(deferred_->message, deferred_->executed);
}

void Connection::discard_into(std::vector<iovec>& out, std::uint32_t length) {
  discarded_.resize(largest_payload_bytes);
  out.push_back({discarded_.data(), length});
}

// --- The wait ------------------------------------------------------------------------------------

void Connection::receives_posted() {
  if (ended() || last_word_said_ || (deferred_ && deferred_->gave_up)) return;
  if (const TerminateRaised raised = receiver_.settle()) return give_up_waiting(*raised);
  if (deferred_) return raise_deferred();
  if (const auto msn = receiver_.take_grant()) control_.put(wire::ControlWord::granted, *msn);
}

// A read that is to prove earlier messages may have been held up by later ones: what it would have
// proven by now is said in another way, or a Send would wait for the receive of the next.
void Connection::report_placed() {
  const bool proof_waits = !responder_.idle() && !responder_.may_build(receiver_.placed());
  if (!proof_waits || receiver_.executed() <= reported_placed_) return;
  reported_placed_ = receiver_.executed();
  control_.put(wire::ControlWord::placed, reported_placed_);
}

void Connection::give_up_waiting(wire::TerminateCode code) {
  const Segment segment = receiver_.waiting_segment();
  defer({.message = quote(code, &segment), .executed = receiver_.executed(), .gave_up = true});
}

std::uint64_t Connection::deadline_ns() const {
  const ReceiverNotReady& wait = options_.receiver_not_ready;
  const bool waits = waiting_message_ != 0 && !(deferred_ && deferred_->gave_up);
  if (ended() || last_word_said_ || !waits || wait.retries >= rnr_retry_infinite) return never_ns;
  return waiting_since_ns_ + wait.retries * wait.timer_ns;
}

void Connection::on_time(std::uint64_t now_ns) {
  if (ended()) return;
  if (needs_time()) {
    rnr_wait_ns_ = rnr_wait_ns(now_ns);
    waiting_message_ = receiver_.starving();
    if (waiting_message_ != 0) ++rnr_waits_;
    waiting_since_ns_ = now_ns;
  }
  if (now_ns >= deadline_ns()) give_up_waiting(wire::terminate::untagged_no_buffer);
}

void Connection::announce_rnr_retries(std::uint8_t retries) {
  control_.put(wire::ControlWord::rnr_retry, retries);
}

}  // namespace weft::iwarp
