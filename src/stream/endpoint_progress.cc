// Progress of a stream in the background: completions, connection events, keepalive, and the
// notification of observers.
#include "stream/endpoint.h"

#include <utility>

#include "base/kept_turn.h"
#include "base/pause.h"
#include "verbs/failure.h"

namespace weft::stream::detail {

// Handles what has completed. Called by every thread that waits, and by the stream thread.
void Endpoint::process() {
  const KeptTurn turn;  // the stream thread of a simulation takes the same lock
  const bool probed = channel_.keepalive().probe_is_under_way();
  if (channel_.poll() || channel_.is_violated()) note_progress();
  // An answer that comes before an event was asked for is found here, and the next check was
  // planned for a peer that does not answer.
  const bool answered = probed && !channel_.keepalive().probe_is_under_way();
  if (answered && registration_) check_keepalive();
}

// Takes the bytes that the peer has placed, if that does not need its messages to be handled first.
void Endpoint::process_placed() {
  const KeptTurn turn;
  if (channel_.look_before_messages()) note_progress();
}

// Looks only at what a peer of this host changes without messages. Returns whether there was
// anything.
bool Endpoint::look_for_changes() {
  // A short burst: longer spinning is decided by the caller, which knows Options::spin.
  constexpr int looks = 16;
  for (int i = 0; i < looks; ++i) {
    if (channel_.sees_changes()) {
      process();
      return true;
    }
    pause_processor();
  }
  return false;
}

void Endpoint::note_progress() {
  // A program that has received may send at once, as with TCP.
  const bool arrived = channel_.readable() > 0 || channel_.end_received();
  if (arrived && connector_.note_arrival()) check_keepalive();
  // Disconnects at once, so that the peer stops and its program sees an error.
  if (channel_.is_violated()) connector_.disconnect();
  if (sleepers_ > 0) changed_.notify_all();
}

// An Error of one step, such as a device without room for the queue pair, ends the attempt.
void Endpoint::process_connection_events() {
  const auto carry_out = [this](const auto& step) {
    try {
      step();
    } catch (const Error& error) {
      connector_.fail(error.error_number(), verbs::detail::without_cause(error), error.detail());
    }
    changed_.notify_all();
  };
  if (connector_.is_looked_up()) carry_out([this] { connector_.finish_lookup(); });
  while (const auto event = connector_.next_event()) carry_out([&] { handle(*event); });
}

void Endpoint::handle(const verbs::ConnectionEvent& event) {
  switch (event.type()) {
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      process();  // bytes and the end that arrived before the disconnection
      connector_.fail(ECONNRESET, "the peer has disconnected");
      channel_.break_off(ECONNRESET);
      return;
    default:
      connector_.handle(event);
      if (event.type() == RDMA_CM_EVENT_ESTABLISHED) check_keepalive();
  }
}

// Sends a probe or gives the peer up, if that is due, and asks the stream thread to call again.
void Endpoint::check_keepalive() {
  if (connector_.phase() != Phase::open || !options_.keepalive || channel_.error() != 0 ||
      closed_) {
    return;
  }
  const auto now = steady_now();
  KeepaliveTimer& timer = channel_.keepalive();
  switch (timer.due(*options_.keepalive, now)) {
    case KeepaliveTimer::Action::give_up:
      channel_.break_off(ETIMEDOUT);
      connector_.disconnect();
      return;
    case KeepaliveTimer::Action::send_probe:
      channel_.send_probe();
      if (channel_.error() != 0) return;
      break;
    case KeepaliveTimer::Action::none:
      break;
  }
  if (const auto next = timer.next_check(*options_.keepalive, now)) registration_.wake_at(*next);
}

void Endpoint::check_idle_rings() {
  IdleRings& rings = channel_.idle_rings();
  if (!rings.planned() || !rings.due(steady_now())) return;
  channel_.give_back_pages();
  if (rings.wants_check()) plan_idle_check();
}

// Out of line: a stream that sends without pause comes here once in a second.
void Endpoint::plan_idle_check() {
  if (connector_.phase() != Phase::open || closed_ || channel_.error() != 0) return;
  registration_.wake_at(channel_.idle_rings().plan(steady_now(), channel_.statistics().bytes_sent));
}

// --- Which thread polls --------------------------------------------------------------------------

// Without an observer and without anything to send, the next call of the program polls soon enough.
bool Endpoint::needs_thread() const {
  return sleepers_ > 0 || notifier_.has_observers() || channel_.keepalive().probe_is_under_way() ||
         channel_.control_waits();
}

// How the peer is to wake this process for its next bytes. More bytes change nothing for observers
// while some can be received already, but for those that count them.
WakeBy Endpoint::wake_for_bytes() const {
  if (sleepers_ > 0) return WakeBy::message;
  if (notifier_.has_only_watchers() && notifier_.watchers_look()) return WakeBy::none;
  if (channel_.readable() > 0 && !notifier_.needs_every_arrival()) return WakeBy::none;
  return channel_.has_bell() && notifier_.has_only_watchers() ? WakeBy::bell : WakeBy::message;
}

// Makes the next completion raise an event for the stream thread, and the peer send a message when
// it changes a counter in shared memory. What came before raises no event: process() finds it. That
// may be the message itself, which has to be requested again then. A queue that was armed already
// has nothing that raised no event, so only the counters are looked at.
void Endpoint::arm() {
  // Once: a bell that is rung from here on wakes the program, which comes here again.
  channel_.note_bell();
  while (channel_.is_open() && channel_.error() == 0 &&
         !(armed_ && channel_.wakes_requested(wake_for_bytes()))) {
    const bool arms = !std::exchange(armed_, true);
    if (arms) channel_.transport().queue().arm();
    channel_.request_wakes(wake_for_bytes());
    if (arms || channel_.sees_changes()) process();
  }
}

// Returns whether there was one. A queue that is not armed raises none, and one that is armed
// raises one, so no system call looks for more.
bool Endpoint::take_completion_event() {
  if (!armed_ || !channel_.transport().channel().wait(Deadline::now())) return false;
  armed_ = false;
  return true;
}

// Called by the stream thread, or by a thread that leads. Must not throw: an error breaks this
// stream only.
void Endpoint::on_io() noexcept {
  const Lock lock(mutex_);
  // close() has removed this stream from the thread.
  if (!registration_) return;  // closed while this thread was on its way here
  try {
    const bool completed = take_completion_event();
    process();
    // While it is open, a connection event that has come as well makes the thread call again.
    if (!completed || connector_.phase() != Phase::open) process_connection_events();
    check_keepalive();
    check_idle_rings();
    leave();
  } catch (const Error& error) {
    connector_.fail(error.error_number(), verbs::detail::without_cause(error), error.detail());
    channel_.break_off(error.error_number());
    notify();
  } catch (...) {
    // The only other exception is std::bad_alloc.
    channel_.break_off(ENOMEM);
  }
}

// False once the deadline has passed.
bool Endpoint::sleep(Lock& lock, const Deadline& deadline) {
  const int timeout_ms = deadline.poll_timeout_ms();
  if (timeout_ms < 0) {
    changed_.wait(lock, std::nullopt);
    return true;
  }
  changed_.wait(lock, std::chrono::milliseconds(timeout_ms));
  return !deadline.passed();
}

// --- Notification --------------------------------------------------------------------------------

void Endpoint::leave() {
  if (needs_thread()) arm();
  notify();
}

Stream::Readiness Endpoint::readiness_now() const {
  Stream::Readiness ready;
  const bool over = closed_ || connector_.failure().error != 0 || channel_.error() != 0;
  ready.readable = over || has_bytes_or_end();
  ready.writable = over || can_send() || (channel_.is_open() && channel_.flow().finished());
  ready.settled = !connector_.is_connecting();
  ready.over = over;
  ready.ended = channel_.end_received();
  ready.drained = ready.ended && channel_.readable() == 0;
  ready.arrived_bytes = channel_.statistics().bytes_received;
  ready.bells = channel_.bells();
  return ready;
}

bool Endpoint::refused_send_can_go_on() const {
  return send_refused_ && (can_send() || send_error() != 0);
}

// The descriptor is readable until a call of the program has returned what it stands for, so that
// an event loop sees each change once.
bool Endpoint::descriptor_wanted() const {
  const bool lost =
      connector_.failure().error != 0 || (channel_.error() != 0 && !channel_.end_received());
  return channel_.readable() > 0 || (is_at_end() && !end_reported_) || lost || closed_ ||
         refused_send_can_go_on() ||
         (!result_reported_ && connector_.phase() != Phase::idle && !connector_.is_connecting());
}

// Reports the current state to all observers. `connected` or `failed` comes before `shutdown`.
void Endpoint::notify() {
  if (notifier_.has_descriptor()) notifier_.set_descriptor_readable(descriptor_wanted());
  if (notifier_.has_send_descriptor()) {
    notifier_.set_send_descriptor_readable(refused_send_can_go_on());
  }
  notifier_.report(readiness_now());
  if (!notifier_.has_event_queue() || closed_) return;
  const int failure = connector_.failure().error;
  const bool open = connector_.phase() == Phase::open;
  if (open || failure != 0) notifier_.report_connected(failure);
  const bool end_received = channel_.end_received();
  if (open && (end_received || channel_.error() != 0)) {
    notifier_.report_shutdown(end_received ? 0 : channel_.error());
  }
}

// --- Observers -----------------------------------------------------------------------------------

int Endpoint::fd() {
  const Lock lock(mutex_);
  const int fd = notifier_.fd();
  process();
  leave();
  return fd;
}

int Endpoint::send_fd() {
  const Lock lock(mutex_);
  const int fd = notifier_.send_fd();
  process();
  leave();
  return fd;
}

Stream::Readiness Endpoint::watch(Stream::Watcher* watcher) {
  const Lock lock(mutex_);
  notifier_.add(watcher);
  process();
  leave();
  // A new watcher learns the present state once, even if nothing changes from now on.
  watcher->changed(notifier_.reported());
  return notifier_.reported();
}

void Endpoint::unwatch(Stream::Watcher* watcher) {
  const Lock lock(mutex_);
  notifier_.remove(watcher);
  if (!notifier_.has_observers()) channel_.stop_bell();
}

Stream::Readiness Endpoint::readiness() {
  const Lock lock(mutex_);
  process();
  leave();
  return readiness_now();
}

// A program that looks again has no use for the bell that it has asked for before it slept.
void Endpoint::look() {
  const Lock lock(mutex_);
  const bool may_ring = channel_.bell_requested() && notifier_.watchers_look();
  if (!may_ring && !channel_.sees_changes()) return;
  if (may_ring) channel_.stop_bell();
  process_placed();
  leave();
}

bool Endpoint::report_again() {
  const Lock lock(mutex_);
  if (channel_.sees_changes()) process();
  leave();
  notifier_.report_again();
  return channel_.is_open() && channel_.has_bell() && channel_.flow().peer_places();
}

void Endpoint::attach(std::shared_ptr<EventQueueCore> queue, std::uint64_t cookie) {
  const Lock lock(mutex_);
  notifier_.attach(std::move(queue), cookie);
  process();
  leave();
}

}  // namespace weft::stream::detail
