// How a queue pair gets its carrier and loses it, and what becomes of the work that waits for one.
#include <cerrno>
#include <utility>

#include "device/addresses.h"
#include "device/completion/unannounced.h"
#include "device/local/observed_local_carrier.h"
#include "device/queue_pair/observed_stream_carrier.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::device {
namespace {

// Queue pairs that find each other by number have no sides: which of them dials is no choice of the
// program.
faults::Side side_of(const StreamParameters& parameters, bool paired) {
  if (paired) return faults::Side::none;
  return parameters.initiator ? faults::Side::active : faults::Side::passive;
}

}  // namespace

// The stream of a connection manager ends a search that the program may have begun by itself.
// rdma_cm reports the queue pair as connected next, so it must be in RTS by then.
int QueuePair::attach(StreamSocket socket, const StreamParameters& parameters,
                      std::weak_ptr<ConnectionObserver> observer) {
  QueuePairLock lock(mutex_);
  if (parts_.destroyed || carrier_ || handle_.qp.state == IBV_QPS_ERR) return EINVAL;
  search_.end(lock);
  parts_.notices.observer = std::move(observer);
  handle_.qp.state = IBV_QPS_RTS;
  const int failed = open_stream(std::move(socket), parameters, false, lock);
  settle(lock);
  return failed;
}

QueuePair::PairingView QueuePair::asked_by_peer() {
  QueuePairLock lock(mutex_);
  if (!search_.pairing()) search_.asked_early(lock);
  return {handle_.qp.state, search_.pairing()};
}

bool QueuePair::awaits_pairing() {
  const QueuePairLock lock(mutex_);
  const bool early = handle_.qp.state == IBV_QPS_RESET || handle_.qp.state == IBV_QPS_INIT;
  return early && !search_.pairing() && !parts_.destroyed;
}

int QueuePair::attach_pair(StreamSocket socket, const StreamParameters& parameters,
                           const Pairing& pairing) {
  QueuePairLock lock(mutex_);
  // A pairing that was cancelled (RESET, and RTR again) may still deliver a stream of the queue
  // pair's earlier life.
  if (parts_.destroyed || carrier_ || search_.pairing().get() != &pairing) return EINVAL;
  parts_.notices.observer.reset();
  const int failed = open_stream(std::move(socket), parameters, true, lock);
  // The user forbids TCP (Settings::same_host), so trying again would bring the same.
  if (failed == EPROTONOSUPPORT) {
    fail_waiting(lock);
    enter_error(lock);
  }
  if (failed != 0) drop_carrier(lock);  // the pairing tries again
  settle(lock);
  return failed;
}

// A LocalCarrier begins on TCP as well, and leaves it only if both ends agree. An end with an
// obstacle closes its channel, which makes the other end stay on TCP.
int QueuePair::open_stream(StreamSocket socket, const StreamParameters& parameters, bool paired,
                           QueuePairLock& lock) {
  const StreamCarrier::Driver driver{context().engine(), weak_from_this()};
  const TcpEnds ends = socket.ends();
  if (ends.known()) parts_.end.peer = gid_of(ends.remote);
  parts_.end.side = side_of(parameters, paired);
  if (socket.has_pair()) return open_in_pair(std::move(socket), parameters, paired, lock);
  // The dialing end brings its channel with the socket. That of the accepting end has arrived at
  // the device's listener, under the addresses of the TCP connection.
  const bool active = socket.has_channel();
  LocalChannel channel =
      active ? socket.take_channel() : context().device().local_listeners().take(ends);
  DeviceFaults* const faults = context().device().faults();
  if (faults) [[unlikely]]
    socket.set_faults(faults->stream(handle_.qp.qp_num, parts_.end));
  if (DeviceLink* link = context().device().link()) [[unlikely]]
    socket.set_link(link->stream());
  const std::string_view obstacle = LocalCarrier::obstacle(parts_, parameters, ends, channel);
  // Over TCP the engine's epoll wakes this process. Through shared memory the peer does, and only
  // if it is asked to.
  Unannounced::note(wakes_itself_.exchange(!obstacle.empty()), !obstacle.empty());
  if (obstacle.empty()) {
    carrier_ = ObservedLocalCarrier::if_needed(parts_, driver, std::move(socket), parameters,
                                               paired, std::move(channel), active);
  } else {
    channel.close();  // the other end stays on TCP as well
    if (!parts_.note_carrier({.name = "tcp", .reason = obstacle})) {
      socket.abort();
      return EPROTONOSUPPORT;
    }
    carrier_ =
        ObservedStreamCarrier::if_needed(parts_, driver, std::move(socket), parameters, paired);
    carrier_memory_.set(carrier_.get(), sizeof(StreamCarrier));
  }
  return carrier_->start(lock);
}

// The dialing end has looked before whether it can use shared memory. Where the serving end cannot,
// both speak iWARP over a Unix socket.
int QueuePair::open_in_pair(StreamSocket socket, const StreamParameters& parameters, bool paired,
                            QueuePairLock& lock) {
  const StreamCarrier::Driver driver{context().engine(), weak_from_this()};
  PairEnd end = std::move(socket.pair());
  std::string_view obstacle;
  if (end.serves()) obstacle = LocalCarrier::lasting_obstacle(parts_);
  if (obstacle.empty() && end.serves() &&
      !(context().open_grants() && end.take_inbox(LocalConnection::receives_of(parts_)))) {
    obstacle = "there is no shared memory";
  }
  Unannounced::note(wakes_itself_.exchange(!obstacle.empty()), !obstacle.empty());
  if (obstacle.empty()) {
    carrier_ = ObservedLocalCarrier::if_needed(parts_, driver, parameters, paired, std::move(end));
    return carrier_->start(lock);
  }
  if (!parts_.note_carrier({.name = "tcp", .reason = obstacle})) return EPROTONOSUPPORT;
  StreamSocket stream(end.accept_as_stream(), socket.ends(), nullptr, false);
  if (!stream.valid()) return ENOMEM;
  carrier_ =
      ObservedStreamCarrier::if_needed(parts_, driver, std::move(stream), parameters, paired);
  return carrier_->start(lock);
}

PairTerms QueuePair::pair_terms() {
  if (!LocalCarrier::lasting_obstacle(parts_).empty()) return {};
  return {.context = &context(), .receives = LocalConnection::receives_of(parts_)};
}

int QueuePair::share_memory(int file, int bell) {
  SharedFiles offered{sys::Descriptor(file), sys::Descriptor(bell)};
  const QueuePairLock lock(mutex_);
  if (carrier_ || parts_.destroyed) return EISCONN;
  parts_.shared.offered = std::move(offered);
  return 0;
}

int QueuePair::take_shared_memory(int& bell) {
  const QueuePairLock lock(mutex_);
  // Files of memory are exchanged only when both ends leave TCP, and whether they will is decided
  // after the handshake.
  if (parts_.carrier.name == CarrierNote{}.name) return -EAGAIN;  // not settled yet
  SharedFiles& received = parts_.shared.received;
  if (!received.memory.valid()) return -EOPNOTSUPP;
  bell = received.bell.release();
  return received.memory.release();
}

// A pairing that was replaced must not fail the work that waits for its successor.
void QueuePair::fail_pairing(const Pairing& pairing) {
  QueuePairLock lock(mutex_);
  if (search_.pairing().get() == &pairing && !carrier_) fail_waiting(lock);
  settle(lock);
}

void QueuePair::disconnect() {
  QueuePairLock lock(mutex_);
  // Before enter_error(): what has arrived is taken in first, so that requests it answers succeed
  // and are not flushed. A queue pair that is destroyed waits for no proofs, because its
  // completions are removed from the queues.
  const bool closes = carrier_ && !parts_.destroyed && carrier_->begin_disconnect(lock);
  if (carrier_ && !closes) carrier_->disconnect(lock);
  enter_error(lock);
  settle(lock);
}

// The program may destroy the queues when it has destroyed the queue pair.
bool QueuePair::has_unpolled_success() {
  const QueuePairLock lock(mutex_);
  if (parts_.destroyed) return false;
  const ibv_qp& qp = handle_.qp;
  for (ibv_cq* queue : {qp.send_cq, qp.recv_cq}) {
    if (queue && CompletionQueue::of(queue)->holds_success_of(qp.qp_num)) return true;
  }
  return false;
}

// InfiniBand has no end of a connection: a peer that disappears leaves a paired queue pair as it
// was, and only requests that are under way or come later fail. With a connection manager, or after
// a Terminate, the end of the connection is the queue pair's.
void QueuePair::on_carrier_ended(QueuePairLock& lock) {
  const Carrier::End end = carrier_->end(lock);
  if (end.event) parts_.raise(*end.event);
  if (handle_.qp.state == IBV_QPS_ERR) return enter_error(lock);  // it was closing
  // A UC queue pair reports no failure of its peer (InfiniBand has no NAKs there), so even a
  // Terminate only means that the peer has left.
  const bool lost = end.reason == iwarp::EndReason::peer_closed ||
                    (parts_.is_unreliable() && end.reason == iwarp::EndReason::peer_terminated);
  const bool managed = !search_.pairing();
  if (managed && lost && context().device().is_strict_roce()) return on_peer_left(lock);
  // Requests may wait while the ends agree to leave TCP. The first one was under way, as over TCP.
  const bool waits = !parts_.waiting.empty() && !parts_.completions.failed();
  if (managed && lost && waits) return fail_waiting(lock);
  if (managed || !lost) return enter_error(lock);
  // A request has failed already, which on InfiniBand is the error state. What waits is the work
  // that StreamCarrier::complete_send() has put off.
  if (parts_.completions.failed()) {
    return parts_.waiting.empty() ? enter_error(lock) : fail_waiting(lock);
  }
  drop_carrier(lock);
  // Where the peer never had the connection, both ends dial again and the program notices nothing.
  search_.lost(!end.had_peer, lock);
  await_carrier(lock);
}

// An adapter's queue pair learns of a disconnection from rdma_disconnect(3) only, so the receives
// stay. Requests fail for want of an answer.
void QueuePair::on_peer_left(QueuePairLock& lock) {
  if (parts_.completions.failed()) return enter_error(lock);
  drop_carrier(lock);
  search_.peer_left(lock);
  await_carrier(lock);
}

// Flushes first: a request without a completion would keep its place for ever. A permanent carrier
// (UD) stays for the next life of the queue pair.
void QueuePair::drop_carrier(QueuePairLock& lock) {
  if (!carrier_) return;
  carrier_->flush(lock);
  carrier_->stop(lock);
  if (!carrier_->permanent()) carrier_.reset();
}

// After posting, where there is no carrier: the work waits, for the timeout of the queue pair.
void QueuePair::await_carrier(QueuePairLock& lock) {
  if (!search_.await(lock)) fail_waiting(lock);
}

// The first request fails, because the peer did not answer, and the others are flushed.
void QueuePair::fail_waiting(QueuePairLock& lock) {
  if (parts_.waiting.empty()) return;
  // UC has no acknowledgements, so its sender cannot learn that the peer is missing.
  if (parts_.is_unreliable()) return drop_waiting(lock);
  bool first = true;
  parts_.waiting.release([&](const iwarp::WorkRequest& request) {
    parts_.complete({.wr_id = request.wr_id,
                     .operation = request.operation,
                     .status = first ? iwarp::Status::retry_exceeded : iwarp::Status::flushed});
    first = false;
  });
  enter_error(lock);
}

// An unreliable connection without a peer completes its requests as if it had sent them.
void QueuePair::drop_waiting(QueuePairLock& /*lock*/) {
  std::uint32_t silent = 0;
  parts_.waiting.release([&](const iwarp::WorkRequest& request) {
    ++silent;
    // Its place is given back by the next completion, which covers it.
    if (!request.signaled) return;
    parts_.complete({.wr_id = request.wr_id, .operation = request.operation, .covered = silent});
    silent = 0;
  });
  parts_.completions.send_slots().give_back_locked(silent);
}

}  // namespace weft::device
