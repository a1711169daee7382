// How a LocalCarrier leaves TCP, or stays on it: see local_agreement.h.
#include <string_view>
#include <utility>

#include "device/local/local_carrier.h"
#include "device/local/ptracer.h"

namespace weft::device {
namespace {

// The passive side offers as soon as its handshake is done. This is for one that has not opened the
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

}  // namespace

int LocalCarrier::start(QueuePairLock& lock) {
  if (pair_) {
    start_in_pair(lock);
    return 0;
  }
  // As StreamCarrier::start() announces it.
  if (paired_ && parts_.qp.state == IBV_QPS_RTS) retries_ = parts_.attributes.rnr_retry;
  // Nothing may be sent over TCP that would have to be finished there.
  stream_->hold_requests(true);
  if (const int failed = stream_->start(lock)) return failed;
  begin_agreement(lock);
  return 0;
}

void LocalCarrier::begin_agreement(QueuePairLock& lock) {
  const std::uint32_t receives = LocalConnection::receives_of(parts_);
  inbox_ = LocalConnection::make_inbox(parts_, receives);
  if (!inbox_.valid()) return stay_on_tcp("there is no shared memory", lock);
  // Before the offer, at which the peer looks whether it reaches the memory of this process.
  name_ptracer(channel_.peer(), parts_.context.device().settings().reach.ptracer);
  agreement_ = std::make_unique<LocalAgreement>(
      channel_, active_, inbox_, receives, parts_.context.grants(),
      parts_.context.device().peer_processes(), parts_.shared.offered);
  if (agreement_->begin() == LocalAgreement::State::refused) {
    return stay_on_tcp(agreement_->refusal(), lock);
  }
  // Kept for the life of the connection: the channel carries wake-ups and shows the peer's end.
  token_ = driver_.engine.watch(channel_.fd(), EPOLLIN,
                                std::make_shared<ChannelWatch>(driver_.queue_pair));
  if (token_ == 0) return stay_on_tcp("there are no descriptors", lock);
  if (agreement_->may_give_up()) {
    agreement_end_ns_ = sys::now_ns() + agreement_ns;
    driver_.engine.call_at(agreement_end_ns_, driver_.queue_pair.lock());
  }
  agree(lock);
}

void LocalCarrier::agree(QueuePairLock& lock) {
  const LocalAgreement::State state = agreement_->advance();
  if (agreement_->refuses_peer()) ++parts_.context.device().refusals().local_refused;
  if (state != LocalAgreement::State::pending) end_agreement(state, agreement_->refusal(), lock);
}

// Starts what has waited, and then a disconnection that was put off. What the program has posted
// behind that is flushed, and so it must not start.
void LocalCarrier::end_agreement(LocalAgreement::State state, std::string_view why,
                                 QueuePairLock& lock) {
  const bool closes = put_off();
  const std::size_t posted_before = std::exchange(closing_, {}).posted_before;
  WaitingWork behind;
  if (closes) parts_.waiting.move_behind(posted_before, behind);
  state == LocalAgreement::State::agreed ? leave_tcp(lock) : stay_on_tcp(why, lock);
  if (closes && !begin_disconnect(lock)) disconnect(lock);
  behind.move_behind(0, parts_.waiting);
}

// What the program has posted would have left over TCP, so it is not flushed. The peer answers
// soon; where it does not, the bound is that of the proofs.
bool LocalCarrier::put_off_disconnect(QueuePairLock& lock) {
  if (put_off()) return !stream_->ended(lock);
  drive_agreement(Occasion::ready, lock);
  if (!agreeing()) return begin_disconnect(lock);
  if (stream_->ended(lock) || parts_.waiting.empty()) return false;
  closing_.posted_before = parts_.waiting.size();
  closing_.end_ns = sys::now_ns() + parts_.context.device().settings().disconnect.proofs_ns;
  driver_.engine.call_at(closing_.end_ns, driver_.queue_pair.lock());
  return true;
}

// Closing the channel makes the peer stay as well. The peer may have closed the connection, which
// must be noticed before the requests that have waited are sent.
void LocalCarrier::stay_on_tcp(std::string_view why, QueuePairLock& lock) {
  if (token_ != 0) driver_.engine.unwatch(token_);
  token_ = 0;
  agreement_.reset();
  channel_.close();
  inbox_ = {};
  // The user forbids TCP.
  if (!parts_.note_carrier({.name = "tcp", .reason = why})) return stream_->flush(lock);
  stream_->hold_requests(false);
  stream_->drive(Occasion::ready, lock);
}

void LocalCarrier::note_leaving(bool staged) {
  std::string_view why;
  if (staged) why = "the kernel does not let the processes read each other's memory";
  const bool forced = parts_.context.device().settings().same_host == SameHost::staged;
  if (staged && forced) why = "WEFT_SAME_HOST is staged";
  (void)parts_.note_carrier({.name = "same-host", .reason = why});
}

void LocalCarrier::leave_tcp(QueuePairLock& lock) {
  LocalPeer peer = agreement_->take_peer();
  note_leaving(peer.staged);
  parts_.shared.received = std::move(peer.shared);
  agreement_.reset();
  // The peer's first FPDU will not come any more. Leaving TCP shows as much: the peer has the
  // connection.
  if (!stream_->confirmed()) parts_.notices.ready = true;
  parts_.notices.ended = false;  // of the stream: see drive_agreement()
  socket_ = std::make_unique<StreamSocket>(stream_->release_socket(lock));
  stream_.reset();
  ProcessPairs& pairs = parts_.context.device().process_pairs();
  const pid_t process = peer.process->pid();
  if (active_) pairs.met(process, channel_, socket_->ends().remote, peer.staged);
  auto wire = std::make_unique<ChannelWire>(pairs, std::move(channel_), std::move(inbox_),
                                            std::move(peer.inbox), process);
  link_ = std::make_unique<Link>(
      parts_, std::move(wire),
      LocalConnection::Peer{
          .process = std::move(peer.process), .receives = peer.receives, .staged = peer.staged});
  open_link();
  link_->connection.wake();  // the peer may have asked for something while this end was not open
  take_in(Occasion::ready);
  advance(lock);
}

// Both processes have met before. The serving end has its inbox open before it accepts, and the
// dialing end before it rings, which stands for the first FPDU.
void LocalCarrier::start_in_pair(QueuePairLock& lock) {
  if (paired_ && parts_.qp.state == IBV_QPS_RTS) retries_ = parts_.attributes.rnr_retry;
  // The serving end sends them only below, and note_carrier() closes them.
  const SharedFiles offered = std::move(parts_.shared.offered);
  PairEnd& end = pair_->end();
  note_leaving(end.staged());
  LocalConnection::prepare(parts_, end.own());
  end.serve(driver_.queue_pair);
  LocalConnection::Peer peer{
      .process = end.process(), .receives = end.peer_receives(), .staged = end.staged()};
  if (active_) parts_.shared.received = end.take_files();
  link_ = std::make_unique<Link>(parts_, std::move(pair_), std::move(peer));
  open_link();
  if (active_) {
    link_->connection.wire().wake_waiter();
  } else {
    end.accept(parts_.context, offered);
    parts_.shared.received = end.take_files();
  }
  take_in(Occasion::ready);
  advance(lock);
}

void LocalCarrier::open_link() {
  inbox::Inbox& own = link_->connection.own();
  own.retry_timer_ns = retry_timer_ns();
  own.access = parts_.attributes.qp_access_flags;
  own.hold_bytes = static_cast<std::uint32_t>(receiver_not_ready_.hold_bytes);
  own.retries = receiver_not_ready_.retries;
  if (retries_) link_->requester.set_retries(*retries_);
  own.armed = inbox::Armed::any;        // the program may have armed its completion queue before
  link_->responder.publish_receives();  // before the peer looks for receives
  // Behind everything above: a peer that sees 1 finds a complete inbox.
  own.open.store(1, std::memory_order_release);
}

// The peer may leave TCP and close the connection before this end has looked, so the end of the
// stream is believed only if the agreement has not been reached by then.
void LocalCarrier::drive_agreement(Occasion occasion, QueuePairLock& lock) {
  agree(lock);
  if (!agreeing()) return;
  const std::uint64_t now_ns = sys::now_ns();
  if (agreement_->may_give_up() && now_ns >= agreement_end_ns_) {
    const std::string_view why = "the other end does not answer";
    return end_agreement(LocalAgreement::State::refused, why, lock);
  }
  if (put_off() && now_ns >= closing_.end_ns) return disconnect(lock);
  // The ready-to-receive message and the end of the stream still travel over TCP.
  stream_->drive(occasion, lock);
  if (stream_->ended(lock)) agree(lock);
}

}  // namespace weft::device
