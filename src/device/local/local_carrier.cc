#include "device/local/local_carrier.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "device/limits.h"
#include "device/queue_pair/requests.h"

namespace weft::device {
namespace {

using iwarp::EndReason;

// The peer answers as soon as its handshake is done. This is for one that has not opened the
// channel at all: another program may listen on the same port of another address.
constexpr std::uint64_t agreement_ns = 1'000'000'000;

// Watches the channel on behalf of the queue pair. It is a Pollable of its own, because the
// progress thread leaves a queue pair alone that a program polls, and polling does not look at the
// channel.
class ChannelWatch final : public Pollable {
 public:
  explicit ChannelWatch(std::weak_ptr<Pollable> queue_pair) : queue_pair_(std::move(queue_pair)) {}

  void on_ready(std::uint32_t events) override {
    if (const auto queue_pair = queue_pair_.lock()) queue_pair->on_ready(events);
  }

 private:
  std::weak_ptr<Pollable> queue_pair_;
};

std::uint64_t retry_timer_ns(const ibv_qp_attr& attributes) {
  return std::max(iwarp::rnr_timer_ns(attributes.min_rnr_timer), limits::least_rnr_timer_ns);
}

// What the end that is at fault has told, as this end reports it.
Carrier::End end_of(inbox::End told) {
  Carrier::End end{.reason = EndReason::peer_closed, .had_peer = true};
  if (told == inbox::End::closed) return end;
  end.reason = EndReason::terminated;
  if (told == inbox::End::access_refused) end.event = IBV_EVENT_QP_ACCESS_ERR;
  return end;
}

}  // namespace

LocalCarrier::Link::Link(QueuePairParts& parts, LocalChannel channel, SharedMemory inbox,
                         LocalPeer peer, bool holds)
    : connection(parts, std::move(channel), std::move(inbox), LocalConnection::receives_of(parts),
                 std::move(peer)),
      requester(parts, connection, holds),
      responder(parts, connection, requester) {}

bool LocalCarrier::serves(const QueuePairParts& parts, const StreamParameters& parameters) {
  Device& device = parts.context.device();
  return device.settings().same_host && !device.capture() && !parts.is_unreliable() &&
         !parts.receives.shared() && !parameters.to_itself && parts.context.open_grants();
}

LocalCarrier::LocalCarrier(QueuePairParts& parts, const StreamCarrier::Driver& driver,
                           StreamSocket socket, const StreamParameters& parameters, bool paired,
                           LocalChannel channel, bool active)
    : parts_(parts),
      driver_(driver),
      paired_(paired),
      active_(active),
      holds_(parameters.receiver_not_ready.hold_bytes > 0),
      stream_(
          std::make_unique<StreamCarrier>(parts, driver, std::move(socket), parameters, paired)),
      channel_(std::move(channel)) {}

LocalCarrier::~LocalCarrier() = default;

// --- From TCP to shared memory -------------------------------------------------------------------

int LocalCarrier::start(QueuePairLock& lock) {
  stream_->hold_requests(true);
  if (const int failed = stream_->start(lock)) return failed;
  begin_agreement(lock);
  return 0;
}

void LocalCarrier::begin_agreement(QueuePairLock& lock) {
  const std::uint32_t receives = LocalConnection::receives_of(parts_);
  inbox_ = LocalConnection::make_inbox(parts_, receives);
  if (!inbox_.valid()) return stay_on_tcp(lock);
  agreement_.emplace(channel_, active_, inbox_, receives, parts_.context.grants());
  if (agreement_->begin() == LocalAgreement::State::refused) return stay_on_tcp(lock);
  token_ = driver_.engine.watch(channel_.fd(), EPOLLIN,
                                std::make_shared<ChannelWatch>(driver_.queue_pair));
  if (token_ == 0) return stay_on_tcp(lock);
  agreement_end_ns_ = sys::now_ns() + agreement_ns;
  driver_.engine.call_at(agreement_end_ns_, driver_.queue_pair.lock());
  agree(lock);
}

void LocalCarrier::agree(QueuePairLock& lock) {
  switch (agreement_->advance()) {
    case LocalAgreement::State::pending:
      return;
    case LocalAgreement::State::refused:
      return stay_on_tcp(lock);
    case LocalAgreement::State::agreed:
      return leave_tcp(lock);
  }
}

// Closing the channel makes the peer stay as well.
void LocalCarrier::stay_on_tcp(QueuePairLock& lock) {
  if (token_ != 0) driver_.engine.unwatch(token_);
  token_ = 0;
  agreement_.reset();
  channel_.close();
  inbox_ = {};
  stream_->hold_requests(false);
  stream_->advance(lock);
}

void LocalCarrier::leave_tcp(QueuePairLock& lock) {
  LocalPeer peer = agreement_->take_peer();
  agreement_.reset();
  if (!stream_->confirmed()) parts_.notices.ready = true;
  socket_ = stream_->release_socket(lock);
  stream_.reset();
  link_ = std::make_unique<Link>(parts_, std::move(channel_), std::move(inbox_), std::move(peer),
                                 holds_);
  inbox::Inbox& own = link_->connection.own();
  own.retry_timer_ns = retry_timer_ns(parts_.attributes);
  own.access = parts_.attributes.qp_access_flags;
  if (driver_.engine.mode() == ProgressMode::thread) own.armed = inbox::Armed::any;
  own.open.store(true, std::memory_order_release);
  link_->responder.publish_receives();
  link_->connection.wake();  // the peer may have asked for something while this end was not open
  take_in(Occasion::ready);
  advance(lock);
}

// --- Work ----------------------------------------------------------------------------------------

bool LocalCarrier::takes_requests(const QueuePairLock& lock) const {
  if (stream_) return stream_->takes_requests(lock);
  return end_.reason == EndReason::none && parts_.qp.state != IBV_QPS_SQD;
}

bool LocalCarrier::takes_send_immediate(const QueuePairLock& lock) const {
  return !stream_ || agreeing() || stream_->takes_send_immediate(lock);
}

int LocalCarrier::post(const SendRequest& request, QueuePairLock& lock) {
  if (stream_) return stream_->post(request, lock);
  if (!iwarp::Requester::acceptable(parts_.limits, request.work)) return EINVAL;
  link_->requester.post(request.work);
  return 0;
}

void LocalCarrier::advance(QueuePairLock& lock) {
  if (stream_) return stream_->advance(lock);
  if (!parts_.waiting.empty() && takes_requests(lock)) {
    parts_.waiting.release(
        [this](const iwarp::WorkRequest& request) { link_->requester.post(request); });
  }
  link_->requester.advance();
  link_->responder.advance();
  look_for_end();
  keep_time();
}

void LocalCarrier::receives_posted(QueuePairLock& lock) {
  if (stream_) return stream_->receives_posted(lock);
  if (end_.reason == EndReason::none) link_->responder.publish_receives();
}

void LocalCarrier::drive(Occasion occasion, QueuePairLock& lock) {
  if (agreeing() && occasion != Occasion::polled) agree(lock);
  if (agreeing() && sys::now_ns() >= agreement_end_ns_) stay_on_tcp(lock);
  if (stream_) return stream_->drive(occasion, lock);
  take_in(occasion);
  if (!link_->requester.idle()) link_->requester.advance();
  link_->responder.advance();
  look_for_end();
  keep_time();
}

// Messages before the end of the connection count, so they are taken first.
void LocalCarrier::take_in(Occasion occasion) {
  if (end_.reason != EndReason::none) return;
  if (occasion == Occasion::deadline) alarm_ns_ = UINT64_MAX;
  if (occasion != Occasion::polled) read_channel();
  link_->responder.drain();
  if (occasion == Occasion::ready && driver_.engine.mode() == ProgressMode::thread) {
    link_->connection.own().armed.store(inbox::Armed::any, std::memory_order_seq_cst);
    link_->responder.drain();
  }
}

void LocalCarrier::read_channel() {
  while (const auto message = link_->connection.channel().receive()) {
    if (!message->bytes.empty()) continue;
    peer_gone_ = true;
    return;
  }
}

// The last look for messages comes after the peer was asked for wake-ups: see
// LocalConnection::push().
void LocalCarrier::expect_event(bool solicited_only, QueuePairLock& lock) {
  if (!link_ || end_.reason != EndReason::none) return;
  inbox::Inbox& own = link_->connection.own();
  const bool weaker = solicited_only && own.armed == inbox::Armed::any;
  const inbox::Armed wanted = solicited_only ? inbox::Armed::solicited : inbox::Armed::any;
  if (!weaker) own.armed.store(wanted, std::memory_order_seq_cst);
  drive(Occasion::polled, lock);
}

void LocalCarrier::retry_attributes_changed(QueuePairLock& lock) {
  if (stream_) return stream_->retry_attributes_changed(lock);
  link_->connection.own().retry_timer_ns = retry_timer_ns(parts_.attributes);
  advance(lock);
}

bool LocalCarrier::requests_done(const QueuePairLock& lock) const {
  return stream_ ? stream_->requests_done(lock) : link_->requester.idle();
}

void LocalCarrier::keep_time() {
  const std::uint64_t deadline_ns = link_->requester.deadline_ns();
  if (deadline_ns == UINT64_MAX || alarm_ns_ <= deadline_ns) return;
  alarm_ns_ = deadline_ns;
  driver_.engine.call_at(deadline_ns, driver_.queue_pair.lock());
}

// --- The end -------------------------------------------------------------------------------------

void LocalCarrier::look_for_end() {
  if (end_.reason != EndReason::none) return;
  const auto& failed = link_->requester.failure();
  if (failed) return finish(failed->reason, {}, failed->told);
  const auto& refused = link_->responder.failure();
  if (refused) return finish(EndReason::terminated, refused->event, refused->told);
  const inbox::End told = link_->connection.own().end.load(std::memory_order_acquire);
  if (told == inbox::End::none && !peer_gone_) return;
  link_->responder.drain();  // what came before the end
  const End end = end_of(told == inbox::End::none ? inbox::End::closed : told);
  finish(end.reason, end.event, inbox::End::closed);
}

void LocalCarrier::finish(EndReason reason, std::optional<ibv_event_type> event, inbox::End told) {
  end_ = {.reason = reason, .had_peer = true, .event = event};
  link_->connection.tell_end(told);
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
      parts_.completions.send_slots().give_back(covered - 1);
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

void LocalCarrier::disconnect(QueuePairLock& lock) {
  if (stream_) return stream_->disconnect(lock);
  take_in(Occasion::ready);
  look_for_end();
  flush(lock);
}

void LocalCarrier::flush(QueuePairLock& lock) {
  if (stream_) return stream_->flush(lock);
  if (end_.reason == EndReason::none) finish(EndReason::local_close, {}, inbox::End::closed);
}

void LocalCarrier::stop(QueuePairLock& lock) {
  if (token_ != 0) driver_.engine.unwatch(token_);
  token_ = 0;
  agreement_.reset();
  if (stream_) {
    channel_.close();
    return stream_->stop(lock);
  }
  link_->connection.close_memory();
  add_counters(parts_.completions.counters());
  link_.reset();
  socket_.close();
}

// --- Other ---------------------------------------------------------------------------------------

// The region has left the grant table, so only an access that has found it before can be under way.
void LocalCarrier::forget_memory(const std::byte* base, std::size_t length_bytes,
                                 QueuePairLock& lock) {
  if (stream_) return stream_->forget_memory(base, length_bytes, lock);
  link_->connection.await_access();
}

// What the peer has done in memory here, by its own count.
void LocalCarrier::add_counters(QueuePairCounters& counters) const {
  if (stream_) return stream_->add_counters(counters);
  if (!link_) return;
  const inbox::Inbox& own = link_->connection.own();
  counters.peer_writes.operations += own.writes.operations;
  counters.peer_writes.bytes += own.writes.bytes;
  counters.peer_reads.operations += own.reads.operations;
  counters.peer_reads.bytes += own.reads.bytes;
}

void LocalCarrier::abandon_after_fork() {
  if (stream_) stream_->abandon_after_fork();
  channel_.disown();
  inbox_.abandon();
  socket_.disown();
  if (link_) link_->connection.abandon_after_fork();
}

}  // namespace weft::device
