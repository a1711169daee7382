#include "device/queue_pair/stream_carrier.h"

#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault_handler.h"
#include "device/connect/linger.h"
#include "device/connect/pairing.h"
#include "device/connect/vanished_peer.h"
#include "device/limits.h"
#include "device/queue_pair/requests.h"
#include "iwarp/scatter.h"

namespace weft::device {
namespace {

// As much in one turn is a part of a large message, or many messages.
constexpr std::size_t bulk_bytes = 32 * 1024;

// The attribute is a lower bound (InfiniBand's RNR NAK timer), so a longer interval is within the
// rule.
std::uint64_t retry_timer_ns(std::uint8_t code) {
  return std::max(iwarp::rnr_timer_ns(code), limits::least_rnr_timer_ns);
}

}  // namespace

StreamCarrier::StreamCarrier(QueuePairParts& parts, Driver driver, StreamSocket socket,
                             const StreamParameters& parameters, bool paired)
    : parts_(parts),
      driver_(std::move(driver)),
      socket_(std::move(socket)),
      paired_(paired),
      send_markers_(parameters.send_markers),
      holds_(parameters.receiver_not_ready.hold_bytes > 0),
      connection_(complete(parameters), static_cast<iwarp::Host&>(*this)),
      confirmed_(parameters.initiator),
      base_position_(socket_.written_bytes()),
      deferral_(driver_.engine, driver_.queue_pair),
      // Only a peer of rdma_cm that asked for no ready-to-receive message is watched.
      initiator_(!paired && !parameters.initiator && parameters.rtr == iwarp::RtrKind::none) {
  // A failure of an earlier connection of the queue pair does not count for this one.
  parts_.completions.clear_failure();
}

// Called before connection_ is made: socket_ and parts_ are declared before it.
iwarp::Connection::Options StreamCarrier::complete(StreamParameters parameters) const {
  parameters.strict_crc = parts_.context.device().settings().strict_crc;
  parameters.mulpdu_bytes = socket_.mulpdu_bytes(parameters.send_markers);
  parameters.limits = parts_.limits;
  parameters.receiver_not_ready.timer_ns = retry_timer_ns(parts_.attributes.min_rnr_timer);
  return parameters;
}

int StreamCarrier::start(QueuePairLock& lock) {
  // In RTR the number of retries is not known yet: see retry_attributes_changed(). A connection
  // manager has told the peer in its own way.
  if (paired_ && !parts_.is_unreliable() && parts_.qp.state == IBV_QPS_RTS) {
    connection_.announce_rnr_retries(parts_.attributes.rnr_retry);
  }
  watch_idle_peer();
  token_ = driver_.engine.watch(socket_.fd(), EPOLLIN, driver_.queue_pair.lock());
  if (token_ == 0) {
    lose_stream(ENOMEM);
    return ENOMEM;
  }
  // Starts the clock of a ready-to-receive message, which the constructor of Connection has built.
  connection_.on_time(sys::now_ns());
  if (initiator_.possible()) watch_initiator();
  // The peer's first FPDU may be in the socket already, and an initiator's ready-to-receive message
  // leaves now. Both would otherwise wait for a turn of the engine.
  drive(Occasion::ready, lock);
  return 0;
}

// --- Work ----------------------------------------------------------------------------------------

// A responder may send only after the peer's first FPDU (RFC 5044 §7.1). In SQD nothing new starts.
bool StreamCarrier::takes_requests(const QueuePairLock& /*lock*/) const {
  const bool closing = closing_end_ns_ != iwarp::Connection::never_ns;
  return confirmed_ && !held_ && !closing && !connection_.ended() && parts_.qp.state != IBV_QPS_SQD;
}

int StreamCarrier::post(const SendRequest& request, QueuePairLock& /*lock*/) {
  gathering_.add(iwarp::total_bytes(request.work.slices));
  return error_of(connection_.post(request.work));
}

void StreamCarrier::advance(QueuePairLock& lock) {
  if (!parts_.waiting.empty() && takes_requests(lock)) {
    parts_.waiting.release([this](const iwarp::WorkRequest& request) {
      (void)connection_.post(request);  // it was checked, and the queue of a new stream has room
    });
  }
  send_posted(false);
}

void StreamCarrier::send_posted(bool keep_end) {
  set_alarm();
  send_available(keep_end);
  watch_peer();
  credit_wait_.note(connection_.awaits_credit(), parts_.completions.counters());
}

// Most receives are posted before their message; then there is nothing to do, and no clock is read.
void StreamCarrier::receives_posted(QueuePairLock& lock) {
  if (!connection_.starving()) return;  // nearly always
  connection_.receives_posted(sys::now_ns());
  advance(lock);
}

// All that was received is processed, and the answers to it are written, before the queue pair
// publishes the completions of this call: the application may exit right after its last one.
void StreamCarrier::drive(Occasion occasion, QueuePairLock& lock) {
  switch (occasion) {
    case Occasion::ready:
      if (receive_available() >= bulk_bytes) driver_.engine.expect_more();
      connection_.rest();
      return StreamCarrier::advance(lock);
    case Occasion::polled:
    case Occasion::waiting:
      gathering_.polled();
      if (gathering_.waits()) send_available();
      if (receive_available() >= bulk_bytes) driver_.engine.note_bulk();
      if (occasion == Occasion::waiting) connection_.rest();
      // Only proofs, given or asked for, may be deferred. Anything else that is due leaves now.
      if (!defer_proofs(occasion == Occasion::waiting, lock)) StreamCarrier::advance(lock);
      return;
    case Occasion::between_polls:
      return;  // the next poll reads the socket
    case Occasion::deferred:
      // The application may have sent them meanwhile, with its own next call.
      if (!deferral_.under_way()) return;
      note_late_gathering();
      return StreamCarrier::drive(Occasion::ready, lock);
    case Occasion::deadline:
      // One deadline of the engine serves all clocks of the carrier; each looks whether its own
      // time has come.
      alarm_ns_ = iwarp::Connection::never_ns;
      look_for_peer();
      look_for_initiator();
      gathering_.look_at_end();
      on_time(sys::now_ns());
      return StreamCarrier::advance(lock);
  }
}

// A socket that has no room is watched for that, too.
void StreamCarrier::note_steady_polling(const QueuePairLock& /*lock*/) {
  if (token_ != 0 && !writing_) driver_.engine.leave(token_);
}

void StreamCarrier::retry_attributes_changed(QueuePairLock& lock) {
  if (connection_.ended()) return;
  connection_.set_rnr_timer(retry_timer_ns(parts_.attributes.min_rnr_timer));
  connection_.announce_rnr_retries(parts_.attributes.rnr_retry);
  advance(lock);
}

// After each call that may have changed the time at which a held Send gives up.
void StreamCarrier::set_alarm() {
  const std::uint64_t deadline_ns = connection_.deadline_ns();
  // An alarm that comes too early sets the next one.
  if (deadline_ns == iwarp::Connection::never_ns || alarm_ns_ <= deadline_ns) return;
  alarm_ns_ = deadline_ns;
  driver_.engine.call_at(deadline_ns, driver_.queue_pair.lock());
}

// --- The socket ----------------------------------------------------------------------------------

std::size_t StreamCarrier::receive_available() {
  std::size_t all = 0;
  // Bounded, so that one busy stream does not keep the others waiting. What is left is reported
  // again by epoll, which is level-triggered here.
  for (int i = 0; i < limits::reads_per_turn; ++i) {
    planned_.clear();
    connection_.plan_receive(planned_);
    if (planned_.empty()) break;
    std::size_t room = 0;
    for (const auto& piece : planned_) room += piece.iov_len;
    const auto got = socket_.receive(planned_);
    // 0 is the end of the peer's stream.
    if (got <= 0) {
      on_receive_error(static_cast<int>(-got));
      break;
    }
    heard_ = true;
    all += static_cast<std::size_t>(got);
    recheck_faults(sys::tick_ns());
    connection_.received(static_cast<std::size_t>(got));
    // What came in may have begun or ended a wait for a receive.
    if (connection_.clock_needed()) connection_.on_time(sys::now_ns());
    // A short read has emptied the socket. Asking again would cost a system call that returns
    // EAGAIN.
    if (static_cast<std::size_t>(got) < room) break;
    // The program takes what is complete while it still is in the processor's cache, and the peer
    // need not wait for its answers.
    if (all >= limits::bytes_per_turn && !parts_.completions.empty()) break;
  }
  return all;
}

// An error that is not named here means that TCP has lost the connection.
void StreamCarrier::on_receive_error(int error) {
  if (error == EAGAIN || error == EINTR) return;
  if (error == EFAULT) {
    connection_.receive_memory_lost();  // memory was unmapped under its registration
    return;
  }
  lose_stream(error);
}

// Requests whose last byte the peer's TCP has acknowledged count as done. The end of the peer's
// stream (error 0) and a failed send (EPIPE) are resets for the others: the peer will not answer.
void StreamCarrier::lose_stream(int error) {
  parts_.completions.note_loss(error == 0 || error == EPIPE ? ECONNRESET : error);
  if (error == ETIMEDOUT && !connection_.ended()) ++parts_.context.device().refusals().silent;
  const std::uint64_t acknowledged = socket_.acknowledged_bytes();
  connection_.peer_closed(acknowledged > base_position_ ? acknowledged - base_position_ : 0);
}

void StreamCarrier::watch_initiator() {
  // WEFT_RESPONDER_FIRST permits what RFC 5044 §7.1 forbids, for peers that are known to accept it.
  initiator_.watch(sys::now_ns(), parts_.context.device().settings().responder_first);
  driver_.engine.call_at(initiator_.deadline_ns(), driver_.queue_pair.lock());
}

// The clocks of the protocol, and the bound of begin_disconnect().
void StreamCarrier::on_time(std::uint64_t now_ns) {
  if (now_ns >= closing_end_ns_) connection_.close();
  connection_.on_time(now_ns);
}

void StreamCarrier::look_for_initiator() {
  // The deadline of the engine is shared with other clocks, so this call may be meant for them.
  if (initiator_.deadline_ns() == SilentInitiator::never_ns) return;
  if (confirmed_ || connection_.ended()) return initiator_.stop();
  switch (initiator_.on_time(sys::now_ns(), !parts_.waiting.empty())) {
    case SilentInitiator::Step::none:
      break;
    case SilentInitiator::Step::report:
      if (parts_.context.device().first_silent_initiator()) SilentInitiator::report(socket_.fd());
      break;
    case SilentInitiator::Step::speak:
      connection_.send_first();
      confirmed_ = true;
      break;
  }
  if (initiator_.deadline_ns() != SilentInitiator::never_ns) {
    driver_.engine.call_at(initiator_.deadline_ns(), driver_.queue_pair.lock());
  }
}

// A host that vanishes sends no reset, and TCP alone would retry for a quarter of an hour. So while
// requests wait, the timeout and retry_cnt of the queue pair count, as on InfiniBand. An alarm
// looks now and then; posting costs nothing as long as one is set.
void StreamCarrier::watch_peer() {
  if (peer_look_ns_ != iwarp::Connection::never_ns) return;
  const ibv_qp_attr& attributes = parts_.attributes;
  if (attributes.timeout == 0 || connection_.ended() || connection_.requests_done()) {
    waiting_since_ns_ = 0;
    return;
  }
  heard_ = false;
  const std::uint64_t now_ns = sys::now_ns();
  if (waiting_since_ns_ == 0) waiting_since_ns_ = now_ns;
  next_look_for_peer(now_ns + limits::peer_look_ns);
}

void StreamCarrier::next_look_for_peer(std::uint64_t at_ns) {
  peer_look_ns_ = at_ns;
  driver_.engine.call_at(at_ns, driver_.queue_pair.lock());
}

// A server of rdma_cm learns of a client that vanished by the event DISCONNECTED only. A paired
// queue pair has no such event: it stays as it is, as on InfiniBand. While requests are held, both
// ends are on this host and may leave TCP at once.
void StreamCarrier::watch_idle_peer() {
  if (!paired_ && !held_) keep_alive_while_idle(socket_.fd());
}

void StreamCarrier::hold_requests(bool hold) {
  const bool released = std::exchange(held_, hold) && !hold;
  if (released) watch_idle_peer();
}

void StreamCarrier::look_for_peer() {
  // Likewise: not the time of this clock yet. never_ns is always later.
  const std::uint64_t now_ns = sys::now_ns();
  if (now_ns < peer_look_ns_) return;
  peer_look_ns_ = iwarp::Connection::never_ns;
  const ibv_qp_attr& attributes = parts_.attributes;
  const std::uint64_t timeout_ns =
      retry_time_ns(attributes.timeout, attributes.retry_cnt,
                    parts_.context.device().settings().min_retry_time_ns);
  // What TCP has delivered may wait for an answer: then keepalive probes ask for the host.
  const bool waits = timeout_ns != 0 && !connection_.ended() && !connection_.requests_done();
  // The peer's host was there a moment ago. The first probe would be due a second (TCP_KEEPIDLE)
  // after its last byte, so the next look is soon enough to ask TCP for it.
  if (waits && std::exchange(heard_, false)) {
    static_assert(3 * limits::peer_look_ns < 1'000'000'000);
    return next_look_for_peer(now_ns + 2 * limits::peer_look_ns);
  }
  if (waits != keeps_alive_) {
    keeps_alive_ = waits;
    keep_alive(socket_.fd(), waits, timeout_ns);
    if (!waits) watch_idle_peer();
  }
  // Silence counts only while requests wait: an idle connection may be silent.
  if (waits && (silenced(timeout_ns) ||
                peer_is_silent(socket_.fd(), timeout_ns, now_ns - waiting_since_ns_))) {
    lose_stream(ETIMEDOUT);
  }
}

void StreamCarrier::send_available(bool keep_end) {
  // What was deferred leaves with whatever else is due.
  deferral_.end();
  gathering_.sent();
  if (keep_end && !writing_) keep_segments_whole(true);
  while (true) {
    const auto pieces = connection_.plan_send();
    if (pieces.empty()) break;
    const auto sent = socket_.send(pieces);
    if (sent == -EINTR) continue;
    // EPOLLOUT is asked for only while the socket is full, because a level-triggered epoll would
    // report it all the time.
    // A link makes room by itself, with its next alarm.
    if (sent == -EAGAIN) {
      keep_segments_whole(false);
      return want_write(!socket_.link());
    }
    if (sent == -EFAULT) {
      connection_.send_memory_lost();
      return;
    }
    if (sent < 0) {
      // The peer has closed the stream. Its last messages, and its Terminate if it sent one, are
      // still to be read.
      while (!connection_.ended() && receive_available() > 0) {
      }
      if (!connection_.ended()) lose_stream(static_cast<int>(-sent));
      return;
    }
    connection_.sent(static_cast<std::size_t>(sent));
    follow_segment_size(static_cast<std::size_t>(sent));
  }
  if (!keep_end) keep_segments_whole(false);
  want_write(false);
}

// A short segment costs the sender and the receiver about as much as one of 64 KiB, on one host
// some 3 us. So bulk leaves in whole segments as long as more of it is likely to follow at once:
// TCP keeps the rest until then (TCP_CORK, tcp(7)).
void StreamCarrier::keep_segments_whole(bool whole) {
  if (segments_.whole == whole) return;
  segments_.whole = whole;
  sys::set_option(socket_.fd(), IPPROTO_TCP, TCP_CORK, whole ? 1 : 0);
}

// RFC 5044 §3: the FPDU size follows TCP's segment size, which is small until TCP has seen the
// peer's window grow, and shrinks when a router reports a smaller MTU.
void StreamCarrier::follow_segment_size(std::size_t sent_bytes) {
  constexpr std::size_t look_every_bytes = 256 * 1024;
  segments_.sent_since_look += sent_bytes;
  if (segments_.sent_since_look < look_every_bytes) return;
  segments_.sent_since_look = 0;
  connection_.set_mulpdu_bytes(socket_.mulpdu_bytes(send_markers_));
}

void StreamCarrier::want_write(bool wanted) {
  if (writing_ == wanted || token_ == 0) return;
  writing_ = wanted;
  note_room(wanted);
  std::uint32_t events = EPOLLIN;
  // EPOLLIN stays: receiving never depends on being able to send, or two full sockets would wait
  // for each other.
  if (wanted) events |= EPOLLOUT;
  driver_.engine.change(token_, events);
}

// Of a connection that is silent the engine would report again and again what is not read.
void StreamCarrier::listen(bool wanted) {
  if (wanted == (token_ != 0)) return;
  if (!wanted) {
    driver_.engine.unwatch(std::exchange(token_, 0));
    return;
  }
  // What could not be sent meanwhile is not known here. If there is nothing, this costs one event.
  writing_ = true;
  const std::uint32_t events = EPOLLIN | EPOLLOUT;
  token_ = driver_.engine.watch(socket_.fd(), events, driver_.queue_pair.lock());
  if (token_ == 0) lose_stream(ENOMEM);
}

// --- The end -------------------------------------------------------------------------------------

// We have sent a Terminate: the peer's requests were refused, and no completion of this side shows
// it. Layers 0 and 1 (RDMAP, DDP) with type 1 are protection errors (RFC 5040 §4.8).
Carrier::End StreamCarrier::end(const QueuePairLock& /*lock*/) const {
  End end{.reason = connection_.end_reason(), .had_peer = confirmed_};
  if (end.reason != iwarp::EndReason::terminated) return end;
  namespace terminate = wire::terminate;
  const wire::TerminateCode code = connection_.terminate().code;
  if (code.layer <= 1 && code.type == 1) {
    end.event = IBV_EVENT_QP_ACCESS_ERR;
  } else if (code == terminate::rdma_unexpected_opcode ||
             code == terminate::untagged_invalid_queue) {
    end.event = IBV_EVENT_QP_REQ_ERR;
  }
  return end;
}

// A completion must not say less than the program can know: the peer may have received a Send and
// have answered it in another way, while the proof is still on its way. An adapter has the
// acknowledgement long before the program can know that.
bool StreamCarrier::begin_disconnect(QueuePairLock& lock) {
  if (closing_end_ns_ != iwarp::Connection::never_ns) return !connection_.ended();
  if (!connection_.ended()) receive_available();
  if (gathering_.waits() && !connection_.ended()) send_available();
  if (connection_.ended() || connection_.requests_done()) return false;
  connection_.close_when_proven();
  if (connection_.ended()) return false;
  closing_end_ns_ = sys::now_ns() + parts_.context.device().settings().disconnect.proofs_ns;
  driver_.engine.call_at(closing_end_ns_, driver_.queue_pair.lock());
  advance(lock);
  return !connection_.ended();
}

// Reads once more, so that answers and a Terminate that are in the socket decide how requests
// complete.
void StreamCarrier::disconnect(QueuePairLock& lock) {
  if (!connection_.ended()) receive_available();
  flush(lock);
}

// An adapter would have sent long ago what was posted before this call.
void StreamCarrier::flush(QueuePairLock& /*lock*/) {
  if (gathering_.waits() && !connection_.ended()) send_available();
  if (!connection_.ended()) connection_.close();
}

// Hands the socket over to Linger, with whatever it did not take yet.
void StreamCarrier::stop(QueuePairLock& /*lock*/) {
  deferral_.end();
  add_counters(parts_.completions.counters());
  credit_wait_ = {};
  note_room(false);
  if (token_ != 0) driver_.engine.unwatch(token_);
  token_ = 0;
  if (!socket_.valid()) return;
  std::vector<std::byte> rest;
  if (end_shaping(rest)) return;
  // The peer reads no more, so there is nothing to send and nothing to wait for.
  if (connection_.end_reason() == iwarp::EndReason::peer_closed) {
    socket_.close();
    return;
  }
  for (const auto& piece : connection_.plan_send()) {
    const auto* at = static_cast<const std::byte*>(piece.iov_base);
    rest.insert(rest.end(), at, at + piece.iov_len);
  }
  Linger::start(driver_.engine, std::move(socket_), std::move(rest));
}

// The socket stays open and quiet: LocalCarrier closes it when both ends have left TCP.
StreamSocket StreamCarrier::release_socket(QueuePairLock& /*lock*/) {
  deferral_.end();
  if (token_ != 0) driver_.engine.unwatch(token_);
  token_ = 0;
  return std::move(socket_);
}

// A paired queue pair survives its peer, as on InfiniBand, where a connection has no end: requests
// without an answer are retried until their timeout ends. Until then the program finds what has
// completed before.
bool StreamCarrier::fails_later() const {
  return paired_ && confirmed_ && !parts_.completions.failed() && !parts_.is_unreliable() &&
         connection_.end_reason() == iwarp::EndReason::peer_closed;
}

// --- Calls of the protocol core ------------------------------------------------------------------

iwarp::Memory StreamCarrier::remote_memory(std::uint32_t stag, std::uint64_t offset,
                                           std::uint64_t length_bytes, iwarp::RemoteRight right) {
  // An access of the peer to memory is a message that arrives, as a Send is.
  parts_.note_arrival();
  const iwarp::Memory memory = parts_.memory.remote_memory(
      {.stag = stag, .offset = offset, .length_bytes = length_bytes, .right = right});
  if (memory.fault != iwarp::Fault::none) [[unlikely]]
    not_found_ = {.stag = stag, .offset = offset, .length_bytes = length_bytes, .right = right};
  return memory;
}

iwarp::Memory StreamCarrier::local_memory(const iwarp::LocalSlice& slice, bool for_writing) {
  return parts_.memory.local_memory(slice, for_writing);
}

bool StreamCarrier::next_receive(iwarp::ReceiveRequest& request) {
  // Without a hold a missing receive ends the stream, so nothing waits for the next one.
  return parts_.take_receive(request, holds_);
}

// The core reports parts of a message as they are placed: bytes are counted at once, the operation
// with its last part.
void StreamCarrier::complete_send(const iwarp::SendCompletion& completion) {
  if (completion.status == iwarp::Status::success || !fails_later()) {
    return parts_.complete(completion);
  }
  // The silent requests before it are done.
  parts_.waiting.hold(completion.wr_id, completion.operation);
  if (parts_.observation) parts_.observation->watch.done_silently(completion.covered - 1);
  parts_.completions.send_slots().give_back_locked(completion.covered - 1);
}

void StreamCarrier::complete_receive(const iwarp::ReceiveCompletion& completion) {
  parts_.complete_receive(completion);
}

// Called from inside the connection, so it only takes notes; QueuePair::settle() notifies the
// observer without the lock.
void StreamCarrier::on_peer_ready() {
  parts_.notices.ready = true;
  confirmed_ = true;
}

void StreamCarrier::on_end(iwarp::EndReason reason) {
  parts_.notices.reason = reason;
  parts_.notices.ended = true;
  if (reason == iwarp::EndReason::terminated) count_terminate(connection_.terminate().code);
}

void StreamCarrier::count_terminate(const wire::TerminateCode& code) {
  Refusals& refusals = parts_.context.device().refusals();
  if (code.layer <= 1 && code.type == 1) {
    ++refusals.terminated_access;
    // A Terminate for an atomic does not quote its memory, which was looked up last.
    const auto quoted = RefusedAccess::quoted(connection_.terminate());
    parts_.refused = quoted.stag != 0 ? quoted : not_found_;
  } else if (code == wire::terminate::untagged_no_buffer) {
    ++refusals.terminated_no_buffer;
  } else {
    ++refusals.terminated_other;
  }
}

// --- Other ---------------------------------------------------------------------------------------

void StreamCarrier::forget_memory(const std::byte* base, std::size_t length_bytes,
                                  QueuePairLock& /*lock*/) {
  connection_.forget(base, length_bytes);
}

void StreamCarrier::add_counters(QueuePairCounters& counters) const {
  const std::uint64_t now_ns = sys::now_ns();
  counters.rnr_waits += connection_.rnr_waits();
  counters.rnr_wait_ns += connection_.rnr_wait_ns(now_ns);
  counters.credit_wait_ns += credit_wait_.waited_ns(now_ns);
  counters.discarded_answer_bytes += connection_.discarded_answer_bytes();
  counters.unreceived.operations += connection_.unreceived().messages;
  counters.unreceived.bytes += connection_.unreceived().bytes;
}

}  // namespace weft::device
