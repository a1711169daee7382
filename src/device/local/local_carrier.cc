// Class LocalCarrier: this file and local_carrier_agreement.cc. While `stream_` exists, the
// connection is still on TCP and every call goes there.
#include "device/local/local_carrier.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault_handler.h"
#include "device/queue_pair/observed_stream_carrier.h"
#include "device/queue_pair/requests.h"

namespace weft::device {
namespace {

using iwarp::EndReason;

// Polls for each look at more than shared memory.
constexpr unsigned look_every = 64;

// The end that the peer has reported, as this end sees it. Over TCP, the end whose memory or
// receive was to be accessed would have sent the Terminate.
Carrier::End end_of(inbox::End reported) {
  switch (reported) {
    case inbox::End::terminated:
      return {.reason = EndReason::peer_terminated, .had_peer = true};
    case inbox::End::request_refused:
      return {.reason = EndReason::terminated, .had_peer = true};
    case inbox::End::access_refused:
      return {.reason = EndReason::terminated, .had_peer = true, .event = IBV_EVENT_QP_ACCESS_ERR};
    default:
      return {.reason = EndReason::peer_closed, .had_peer = true};
  }
}

}  // namespace

LocalCarrier::Link::Link(QueuePairParts& parts, std::unique_ptr<LocalWire> wire,
                         LocalConnection::Peer peer)
    : connection(parts, std::move(wire), std::move(peer)),
      requester(parts, connection),
      responder(parts, connection, requester) {}

std::string_view LocalCarrier::lasting_obstacle(const QueuePairParts& parts) {
  Device& device = parts.context.device();
  if (device.settings().same_host == SameHost::off) return "WEFT_SAME_HOST is off";
  // UC must drop messages without a receive, which this carrier lets wait.
  if (parts.is_unreliable()) return "the queue pair is of type UC";
  if (parts.qp.qp_type != IBV_QPT_RC) return "the queue pair is of type XRC";
  if (device.faults() && device.faults()->plan().names_streams()) {
    return "a rule of faults acts on TCP connections";
  }
  if (device.link()) return "a link delays TCP connections";
  // Nothing would be in the capture: there are no segments.
  if (device.capture()->running()) return "a capture is written";
  return "";
}

std::string_view LocalCarrier::obstacle(const QueuePairParts& parts,
                                        const StreamParameters& parameters, const TcpEnds& tcp,
                                        const LocalChannel& channel) {
  const std::string_view lasting = lasting_obstacle(parts);
  if (!lasting.empty()) return lasting;
  // The copies need two processes, or at least two queue pairs with an inbox each.
  if (parameters.to_itself) return "the queue pair is connected to itself";
  // Both ways to get a channel check the addresses.
  if (!channel.valid()) {
    if (!tcp.within_host()) return "the peer has an address of another host";
    return "the other end offers nothing else: it has another user or network namespace, or has "
           "WEFT_SAME_HOST off";
  }
  return parts.context.open_grants() ? "" : "there is no shared memory";
}

LocalCarrier::LocalCarrier(QueuePairParts& parts, const StreamCarrier::Driver& driver,
                           StreamSocket socket, const StreamParameters& parameters, bool paired,
                           LocalChannel channel, bool active)
    : parts_(parts),
      driver_(driver),
      paired_(paired),
      active_(active),
      receiver_not_ready_(parameters.receiver_not_ready),
      immediates_(parameters.peer.send_immediate),
      stream_(
          ObservedStreamCarrier::if_needed(parts, driver, std::move(socket), parameters, paired)),
      channel_(std::move(channel)) {}

LocalCarrier::LocalCarrier(QueuePairParts& parts, const StreamCarrier::Driver& driver,
                           const StreamParameters& parameters, bool paired, PairEnd pair)
    : parts_(parts),
      driver_(driver),
      paired_(paired),
      active_(!pair.serves()),
      receiver_not_ready_(parameters.receiver_not_ready),
      immediates_(parameters.peer.send_immediate),
      pair_(std::make_unique<PairWire>(std::move(pair))),
      confirmed_(active_ || parameters.rtr == iwarp::RtrKind::none) {
  // A failure of an earlier connection of the queue pair does not count for this one.
  parts_.completions.clear_failure();
}

LocalCarrier::~LocalCarrier() = default;

// --- Work ----------------------------------------------------------------------------------------

// SQD starts nothing new, as over TCP.
bool LocalCarrier::takes_requests(const QueuePairLock& lock) const {
  if (stream_) return stream_->takes_requests(lock);
  return end_.reason == EndReason::none && !is_closing() && parts_.qp.state != IBV_QPS_SQD;
}

bool LocalCarrier::takes_send_immediate(const QueuePairLock& /*lock*/) const {
  return immediates_;
}

int LocalCarrier::post(const SendRequest& request, QueuePairLock& lock) {
  if (stream_) return stream_->post(request, lock);
  // The stream's requester makes the same check, so programs see the same errors.
  if (!iwarp::Requester::acceptable(parts_.limits, request.work)) return EINVAL;
  const bool more = request.verbs && request.verbs->next;
  gathering_.look(parts_.completions.send_slots().taken() + 1);
  const bool gathers = gathering_.possible();
  if (gathers) gathering_.add(iwarp::total_bytes(request.work.slices));
  link_->requester.post(request.work, more || gathers);
  return 0;
}

// Both ends have left TCP, and nothing ends the connection.
bool LocalCarrier::settled() const {
  return link_ && end_.reason == EndReason::none && closing_.end_ns == 0 && confirmed_ &&
         !peer_gone_ &&
         link_->connection.own().end.load(std::memory_order_acquire) == inbox::End::none;
}

bool LocalCarrier::post_promptly(const ibv_send_wr& request, bool signaled,
                                 const QueuePairLock& /*lock*/) {
  if (!settled() || socket_ || !parts_.waiting.empty() ||
      !link_->requester.post_promptly(request, signaled)) {
    return false;
  }
  gathering_.look(parts_.completions.send_slots().taken());
  gathering_.add_alone();
  return true;
}

// One system call places several Writes for little more than one of them. They are executed by the
// program's next poll; where that does not come, by the progress thread.
void LocalCarrier::posted(QueuePairLock& lock) {
  if (stream_) return stream_->posted(lock);
  const bool may_wait = gathering_.may_wait() && !parts_.completions.awaited();
  if (may_wait && link_->requester.waits()) {
    link_->requester.end_accesses();
    return watch_gathering();
  }
  LocalCarrier::advance(lock);
  gathering_.left();
}

// One alarm after the other while requests are gathered, since an alarm that is set here wakes the
// progress thread, and one that it sets itself does not.
void LocalCarrier::watch_gathering() {
  if (watch_due_ns_ != 0) return;
  watch_due_ns_ = sys::now_ns() + limits::between_looks_at_gathered_ns;
  driver_.engine.call_at(watch_due_ns_, driver_.queue_pair.lock());
}

void LocalCarrier::look_at_gathered() {
  if (watch_due_ns_ == 0 || sys::now_ns() < watch_due_ns_) return;
  watch_due_ns_ = 0;
  if (gathering_.waits() && gathering_.is_stale()) {
    // Without a progress thread the program's own calls are in time.
    if (driver_.engine.mode() != ProgressMode::manual) gathering_.missed();
    execute();
  }
  if (gathering_.used()) watch_gathering();
}

// Messages to a peer with a shared receive queue complete when the peer takes them, and to every
// peer there is room for more then. A peer that neither polls nor sleeps does not take them by
// itself. One alarm after the other while something waits for that, as watch_gathering().
void LocalCarrier::watch_taking() {
  if (nudge_.due_ns != 0 || !link_ || !link_->requester.awaits_taking()) return;
  nudge_.due_ns = sys::now_ns() + nudge_.pause_ns;
  driver_.engine.call_at(nudge_.due_ns, driver_.queue_pair.lock());
}

// The looks become rare where the peer needs no wake-up, or where that does not help because its
// process is stopped.
void LocalCarrier::look_at_taking() {
  if (nudge_.due_ns == 0 || sys::now_ns() < nudge_.due_ns) return;
  constexpr std::uint64_t longest_pause_ns = 50 * limits::between_looks_at_sent_ns;
  const Nudge last = std::exchange(nudge_, {});
  if (!link_->requester.awaits_taking()) return;
  nudge_.stalled = link_->requester.stalls();
  if (nudge_.stalled) link_->connection.wake();
  if (!nudge_.stalled || last.stalled) {
    nudge_.pause_ns = std::min(2 * last.pause_ns, longest_pause_ns);
  }
  watch_taking();
}

void LocalCarrier::execute() {
  gathering_.sent();
  link_->requester.advance();
  watch_taking();
}

void LocalCarrier::advance(QueuePairLock& lock) {
  if (stream_) return stream_->advance(lock);
  if (!parts_.waiting.empty() && takes_requests(lock)) {
    parts_.waiting.release(
        [this](const iwarp::WorkRequest& request) { link_->requester.post(request, false); });
  }
  close_tcp();
  execute();
  // Afterwards, so that everything that was possible before the end is done.
  look_for_end();
  keep_time();
}

// A message that has waited for a receive of the shared queue is taken now.
void LocalCarrier::receives_posted(QueuePairLock& lock) {
  if (stream_) return stream_->receives_posted(lock);
  if (end_.reason != EndReason::none) return;
  if (!parts_.receives.shared()) return link_->responder.publish_receives();
  drain();
  // An answer behind the message may have let the next request begin.
  watch_taking();
  look_for_end();
  keep_time();
}

void LocalCarrier::drive(Occasion occasion, QueuePairLock& lock) {
  if (agreeing()) {
    drive_agreement(occasion, lock);
    if (agreeing()) return;
  }
  if (stream_) return stream_->drive(occasion, lock);
  if (occasion == Occasion::polled || occasion == Occasion::waiting) gathering_.polled();
  take_in(occasion);
  if (occasion == Occasion::deadline) {
    look_at_gathered();
    look_at_taking();
  }
  // Nearly always idle in a receiver that polls: one look at memory is all that a poll costs. What
  // is gathered is for the program's calls.
  const bool by_program = occasion == Occasion::polled || occasion == Occasion::waiting;
  if (by_program || !gathering_.waits()) {
    if (!link_->requester.idle()) execute();
  }
  if (is_closing()) look_for_proofs();
  look_for_end();
  keep_time();
}

// Nearly all polls of a receiver that waits: a look at its inbox is all that they cost.
bool LocalCarrier::poll_promptly(DirectPoll* poll, const QueuePairLock& /*lock*/) {
  if (!settled() || !link_->requester.idle()) return false;
  // Now and then drive() looks at more than the inbox.
  if ((polls_ + 1) % look_every == 0) return false;
  ++polls_;
  gathering_.polled();
  if (link_->connection.reader().is_empty()) return true;
  return poll && link_->responder.take_promptly(*poll);
}

// Messages before the end of the connection count, so they are taken first.
void LocalCarrier::take_in(Occasion occasion) {
  if (end_.reason != EndReason::none) return;
  if (occasion == Occasion::deadline) alarm_ns_ = UINT64_MAX;
  if (!confirmed_) look_for_peer();
  const bool polled = occasion == Occasion::polled;
  const bool looks = ++polls_ % look_every == 0;
  // To read the clock for each message would cost a twentieth of a round trip.
  if (!polled || looks) recheck_faults(sys::tick_ns());
  // Polling looks at shared memory only. The channel, which costs a system call, is the progress
  // thread's; where there is none, only this notices a peer that was killed.
  if (polled && !(looks && driver_.engine.mode() == ProgressMode::manual)) return drain();
  read_channel();
  drain();
  arm_again();
}

// A wake-up has disarmed the inbox. Where its message has raised an event, the program arms again
// before it sleeps. But a wake-up may come late: the peer looks at the flag after it has published
// a message, and meanwhile this end may have taken the message and have armed for the next one.
void LocalCarrier::arm_again() {
  inbox::Inbox& own = link_->connection.own();
  if (own.armed.load(std::memory_order_relaxed) != inbox::Armed::no) return;
  const bool thread = driver_.engine.mode() == ProgressMode::thread;  // it alone looks for messages
  if (!thread && !parts_.completions.awaited()) return;
  const bool any = thread || parts_.completions.receives_awaited();
  own.armed.store(any ? inbox::Armed::any : inbox::Armed::solicited, std::memory_order_seq_cst);
  // A message may have come before the peer could see that.
  drain();
}

// What is left after one turn is taken soon, as no wake-up comes for it. An end that is closing
// takes no messages, but the peer's answers.
void LocalCarrier::drain() {
  if (is_closing()) {
    if (link_->requester.is_answered()) link_->requester.take_answer();
    return;
  }
  if (link_->responder.drain()) return;
  driver_.engine.call_at(sys::now_ns(), driver_.queue_pair.lock());
}

// Both ends have left TCP, so nothing looks at the connection any more. A reset leaves nothing
// behind (TIME_WAIT).
void LocalCarrier::close_tcp() {
  if (!socket_ || !link_->connection.peer_is_open()) return;
  socket_->abort();
  socket_.reset();
}

void LocalCarrier::read_channel() {
  if (!link_->connection.wire().read()) peer_gone_ = true;
}

// The peer opens its inbox once it has the acceptance, as it sends its first FPDU over TCP.
void LocalCarrier::look_for_peer() {
  if (!link_->connection.peer_is_open()) return;
  confirmed_ = true;
  parts_.notices.ready = true;
}

// The last look for messages comes after the peer was asked for wake-ups: see
// LocalConnection::push().
void LocalCarrier::expect_event(bool solicited_only, QueuePairLock& lock) {
  if (!link_ || end_.reason != EndReason::none) return;
  inbox::Inbox& own = link_->connection.own();
  const bool weaker = solicited_only && own.armed == inbox::Armed::any;
  const inbox::Armed wanted = solicited_only ? inbox::Armed::solicited : inbox::Armed::any;
  // The queue may be armed for any message already, which must not become weaker.
  if (!weaker) own.armed.store(wanted, std::memory_order_seq_cst);
  drive(Occasion::polled, lock);
}

void LocalCarrier::begin_look(const QueuePairLock& /*lock*/) {
  if (link_) link_->connection.own().armed.store(inbox::Armed::no, std::memory_order_relaxed);
}

void LocalCarrier::end_look(QueuePairLock& lock) {
  if (!link_ || end_.reason != EndReason::none) return;
  arm_again();
  advance(lock);
}

void LocalCarrier::retry_attributes_changed(QueuePairLock& lock) {
  retries_ = parts_.attributes.rnr_retry;
  if (stream_) return stream_->retry_attributes_changed(lock);
  link_->requester.set_retries(*retries_);
  link_->connection.own().retry_timer_ns = retry_timer_ns();
  advance(lock);
}

// The peer checks these rights itself, so it has to see them.
void LocalCarrier::access_changed(QueuePairLock& /*lock*/) {
  if (link_) link_->connection.own().access = parts_.attributes.qp_access_flags;
}

std::uint64_t LocalCarrier::retry_timer_ns() const {
  return std::max(iwarp::rnr_timer_ns(parts_.attributes.min_rnr_timer), limits::least_rnr_timer_ns);
}

bool LocalCarrier::requests_done(const QueuePairLock& lock) const {
  return stream_ ? stream_->requests_done(lock) : link_->requester.idle();
}

// The one deadline is that of a Send that waits for a receive.
void LocalCarrier::keep_time() {
  const std::uint64_t deadline_ns = link_->requester.deadline_ns();
  if (deadline_ns == UINT64_MAX || alarm_ns_ <= deadline_ns) return;
  alarm_ns_ = deadline_ns;
  driver_.engine.call_at(deadline_ns, driver_.queue_pair.lock());
}

// --- The end -------------------------------------------------------------------------------------

// What this side has found itself comes first: its failure is the cause, and the peer's end may be
// its consequence.
void LocalCarrier::look_for_end() {
  if (end_.reason != EndReason::none) return;
  const inbox::End reported = link_->connection.own().end.load(std::memory_order_acquire);
  // What came before the end, and what the peer has taken before it.
  if (reported != inbox::End::none || peer_gone_) {
    drain();
    link_->requester.retire_taken();
  }
  const auto& failed = link_->requester.failure();
  if (failed) return finish(failed->reason, {}, failed->reported);
  const auto& refused = link_->responder.failure();
  if (refused) return finish(EndReason::terminated, refused->event, refused->reported);
  if (reported == inbox::End::none && !peer_gone_) return;
  if (reported == inbox::End::access_refused) note_refused();
  // Both have closed: see look_for_proofs().
  if (is_closing() && reported == inbox::End::closed) {
    return finish(EndReason::local_close, {}, inbox::End::closed);
  }
  const End end = end_of(reported == inbox::End::none ? inbox::End::closed : reported);
  finish(end.reason, end.event, inbox::End::closed);
}

// What the peer has written is not trusted to be one of the values.
void LocalCarrier::note_refused() {
  const inbox::Refused& refused = link_->connection.own().refused;
  const bool reads = refused.right.load(std::memory_order_relaxed) == iwarp::RemoteRight::read;
  parts_.refused = {.stag = refused.stag.load(std::memory_order_relaxed),
                    .offset = refused.offset.load(std::memory_order_relaxed),
                    .length_bytes = refused.length_bytes.load(std::memory_order_relaxed),
                    .right = reads ? iwarp::RemoteRight::read : iwarp::RemoteRight::write};
}

void LocalCarrier::finish(EndReason reason, std::optional<ibv_event_type> event,
                          inbox::End reported) {
  end_ = {.reason = reason, .had_peer = confirmed_, .event = event};
  gathering_.sent();
  link_->requester.end_accesses();
  // Before the requests are flushed: the peer sees the end in any case, and a completion may let
  // the program exit.
  link_->connection.report_end(reported);
  if (reason == EndReason::peer_closed) parts_.completions.note_loss(ECONNRESET);
  if (reason == EndReason::terminated) {
    Refusals& refusals = parts_.context.device().refusals();
    ++(event == IBV_EVENT_QP_ACCESS_ERR ? refusals.terminated_access : refusals.terminated_other);
  }
  link_->responder.flush();
  flush_requests();
  parts_.notices.reason = reason;
  parts_.notices.ended = true;
}

// As StreamCarrier: a paired queue pair survives its peer, and what was under way fails when the
// timeout of the queue pair is over.
bool LocalCarrier::fails_later() const {
  return paired_ && !parts_.completions.failed() && end_.reason == EndReason::peer_closed;
}

void LocalCarrier::flush_requests() {
  link_->requester.release([this](const iwarp::WorkRequest& request, std::uint32_t covered) {
    if (fails_later()) {
      parts_.waiting.hold(request.wr_id, request.operation);
      parts_.completions.send_slots().give_back_locked(covered - 1);
      if (parts_.observation) parts_.observation->watch.done_silently(covered - 1);
      return;
    }
    const auto status = end_.reason == EndReason::peer_closed && !parts_.completions.failed()
                            ? iwarp::Status::retry_exceeded
                            : iwarp::Status::flushed;
    parts_.complete({.wr_id = request.wr_id,
                     .operation = request.operation,
                     .status = status,
                     .covered = covered});
  });
}

bool LocalCarrier::ended(const QueuePairLock& lock) const {
  return stream_ ? stream_->ended(lock) : end_.reason != EndReason::none;
}

Carrier::End LocalCarrier::end(const QueuePairLock& lock) const {
  return stream_ ? stream_->end(lock) : end_;
}

// As StreamCarrier::begin_disconnect(): messages to a shared receive queue, and what the peer's
// device was asked for, may have been carried out, and what waits for a receive would be at the
// peer over TCP.
bool LocalCarrier::begin_disconnect(QueuePairLock& lock) {
  if (agreeing()) return put_off_disconnect(lock);
  if (stream_) return stream_->begin_disconnect(lock);
  if (closing_.end_ns != 0) return is_closing();
  take_in(Occasion::ready);
  if (end_.reason == EndReason::none) execute();
  look_for_end();
  if (end_.reason != EndReason::none || link_->requester.idle()) return false;
  link_->connection.own().open.store(inbox::Inbox::closing, std::memory_order_seq_cst);
  link_->connection.wake();
  closing_.end_ns = sys::now_ns() + parts_.context.device().settings().disconnect.proofs_ns;
  driver_.engine.call_at(closing_.end_ns, driver_.queue_pair.lock());
  // No program may poll any more.
  link_->requester.watch_taking();
  execute();
  look_for_proofs();
  look_for_end();
  keep_time();
  return is_closing();
}

// Where both ends are closing, neither takes what the other one has sent.
void LocalCarrier::look_for_proofs() {
  if (link_->requester.failure()) return;
  const bool both =
      link_->connection.peer().open.load(std::memory_order_seq_cst) == inbox::Inbox::closing;
  const bool over = both || link_->requester.idle() || sys::now_ns() >= closing_.end_ns;
  if (over) finish(EndReason::local_close, {}, inbox::End::closed);
}

void LocalCarrier::disconnect(QueuePairLock& lock) {
  if (stream_) return stream_->disconnect(lock);
  take_in(Occasion::ready);
  look_for_end();
  flush(lock);
}

// An adapter would have executed long ago what was posted before this call.
void LocalCarrier::flush(QueuePairLock& lock) {
  if (stream_) return stream_->flush(lock);
  if (gathering_.waits() && end_.reason == EndReason::none) {
    execute();
    look_for_end();
  }
  if (end_.reason == EndReason::none) finish(EndReason::local_close, {}, inbox::End::closed);
}

// The memory is closed to the peer before it is given up, and a copy that is under way is awaited.
void LocalCarrier::stop(QueuePairLock& lock) {
  if (token_ != 0) driver_.engine.unwatch(token_);
  token_ = 0;
  agreement_.reset();
  if (stream_) {
    stream_->stop(lock);
    return channel_.close();  // after the stream: see stay_on_tcp()
  }
  link_->connection.close_memory();
  add_counters(parts_.completions.counters());
  link_.reset();
  if (socket_) socket_->close();
}

// --- Other ---------------------------------------------------------------------------------------

// The region has left the grant table, so only an access that has found it before can be under way.
void LocalCarrier::forget_memory(const std::byte* base, std::size_t length_bytes,
                                 QueuePairLock& lock) {
  if (stream_) return stream_->forget_memory(base, length_bytes, lock);
  // The peer's device may be copying for a request of this side, from or to the same memory.
  link_->requester.withdraw_request(base, length_bytes);
  link_->connection.await_access();
}

// What the peer has done in memory here, by its own count.
void LocalCarrier::add_counters(QueuePairCounters& counters) const {
  if (stream_) return stream_->add_counters(counters);
  if (!link_) return;
  const inbox::Inbox& own = link_->connection.own();
  const AccessTotals& accesses = own.accesses;
  counters.peer_writes.operations += accesses.writes.operations;
  counters.peer_writes.bytes += accesses.writes.bytes;
  counters.peer_reads.operations += accesses.reads.operations;
  counters.peer_reads.bytes += accesses.reads.bytes;
  counters.peer_atomics.operations += accesses.atomics.operations;
  counters.peer_atomics.bytes += accesses.atomics.bytes;
  link_->requester.add_counters(counters);
  ReceiveWait::add_peers_waits(own, counters);
}

// A message of the peer that finds no receive waits at the peer (receive_wait.h).
Carrier::Waits LocalCarrier::waits() const {
  if (stream_) return stream_->waits();
  return {.credits = link_ && link_->requester.awaits_receive()};
}

void LocalCarrier::abandon_after_fork() {
  if (stream_) stream_->abandon_after_fork();
  channel_.disown();
  inbox_.abandon();
  if (socket_) socket_->disown();
  if (link_) link_->connection.abandon_after_fork();
}

}  // namespace weft::device
