// The life of a stream: options, connecting, state, and the end.
#include "stream/endpoint.h"

#include <memory>

#include "stream/private_data.h"

namespace weft::stream::detail {

Endpoint::Endpoint(const Options& options)
    : options_((check(options), options)),
      connector_(options_, channel_, registration_),
      channel_(changed_),
      fork_handler_(this, [](void* endpoint) noexcept {
        static_cast<Endpoint*>(endpoint)->begin_anew_in_child();
      }) {
  options_.device = nullptr;  // the connector keeps it
}

// --- Options -------------------------------------------------------------------------------------

// The verbs objects are created with the sizes, so these cannot change later.
void Endpoint::set_options(const Options& options) {
  check(options);
  // Every call of a stream takes this one lock, and so does the stream thread.
  const Lock lock(mutex_);
  Options changed = options_;
  changed.spin = options.spin;
  changed.linger = options.linger;
  changed.keepalive = options.keepalive;
  if (connector_.phase() == Phase::idle) {
    changed = options;
    connector_.set_device(options.device);
    changed.device = nullptr;
  } else if (changed.send_buffer_bytes != options.send_buffer_bytes ||
             changed.receive_buffer_bytes != options.receive_buffer_bytes ||
             changed.send_queue != options.send_queue ||
             changed.receive_queue != options.receive_queue || changed.variant != options.variant ||
             changed.mapped_buffers != options.mapped_buffers ||
             changed.backend != options.backend) {
    throw Error(EISCONN, "sizes and variant of a stream are settled once it is connected");
  }
  options_ = changed;
  check_keepalive();
}

Options Endpoint::options() {
  const Lock lock(mutex_);
  return options_;
}

// --- Connecting ----------------------------------------------------------------------------------

void Endpoint::bind(const Address& local) {
  const Lock lock(mutex_);
  connector_.bind(local);
}

// The limit depends on the backend: InfiniBand's messages are shorter than MPA's.
void Endpoint::start(const Address& peer, std::span<const std::byte> private_data) {
  check_private_data(private_data.size(), options().backend);
  const Lock lock(mutex_);
  connector_.start(peer, private_data, weak_from_this());
  // Addresses and routes are known at once: this thread goes on, and the stream thread sleeps on.
  process_connection_events();
  connector_.watch_events();
  // The connection may exist by now: then its observers learn of it here.
  leave();
}

void Endpoint::accept(PendingRequest& request, std::span<const std::byte> private_data) {
  const Lock lock(mutex_);
  connector_.accept(request, private_data, weak_from_this());
}

bool Endpoint::await_connected(const Deadline& deadline) {
  Lock lock(mutex_);
  const bool known =
      wait(lock, deadline, [this] { return closed_ || !connector_.is_connecting(); });
  if (!known) return false;
  // The program knows the outcome now, so the descriptor need not report it.
  result_reported_ = true;
  leave();
  if (closed_) throw Error(ECANCELED, "the stream was closed");
  if (connector_.phase() == Phase::idle) {
    throw Error(ENOTCONN, "the stream was not connected");
  }
  if (connector_.failure().error != 0) connector_.failure().raise();
  return true;
}

// A connection that is lost after the peer's end was received is no failure: the program has all
// bytes, and learns of the loss when it sends.
State Endpoint::state() {
  const Lock lock(mutex_);
  if (closed_) return State::closed;
  if (connector_.phase() == Phase::idle) return State::idle;
  if (connector_.is_connecting()) return State::connecting;
  result_reported_ = true;
  notify();
  const bool lost = channel_.error() != 0 && !channel_.end_received();
  return connector_.failure().error != 0 || lost ? State::failed : State::connected;
}

int Endpoint::error_number() {
  const Lock lock(mutex_);
  const int failure = connector_.failure().error;
  return failure != 0 ? failure : channel_.error();
}

std::span<const std::byte> Endpoint::peer_private_data() {
  const Lock lock(mutex_);
  return connector_.peer_private_data();
}

Variant Endpoint::variant() {
  const Lock lock(mutex_);
  return channel_.is_open() ? channel_.transport().variant() : Variant::automatic;
}

const verbs::Id& Endpoint::id() {
  const Lock lock(mutex_);
  if (!connector_.id()) throw Error(ENOTCONN, "the stream has no address yet");
  return *connector_.id();
}

const verbs::ProtectionDomain& Endpoint::domain() {
  const Lock lock(mutex_);
  if (!channel_.has_transport()) throw Error(ENOTCONN, "the stream has no device yet");
  return channel_.transport().domain();
}

Statistics Endpoint::statistics() {
  const Lock lock(mutex_);
  return channel_.statistics();
}

Endpoint::Turns& Endpoint::turns() {
  const Lock lock(mutex_);
  if (!turns_) turns_ = std::make_unique<Turns>();
  return *turns_;
}

// --- The end -------------------------------------------------------------------------------------

// Waits for calls that send in other threads: the end must not cut their bytes in two. Those that
// wait for room return, as shutdown(2) ends a send(2): their peer may read nothing any more.
void Endpoint::finish() {
  Lock lock(mutex_);
  finishing_ = true;
  if (sleepers_ > 0) changed_.notify_all();
  const Turn turn(*this, lock, sending_, Deadline::never());
  finishing_ = false;
  if (!turn.taken()) throw Error(ECANCELED, "the stream was closed");
  wait(lock, Deadline::never(),
       [this] { return connector_.phase() == Phase::open || send_error() != 0; });
  if (const int error = send_error()) {
    // finish() may be called again, as shutdown(2).
    if (error == EPIPE) return;  // finished by an earlier call
    throw Error(error == ECONNRESET ? ENOTCONN : error, "cannot finish a stream");
  }
  channel_.flow().finish();
  channel_.send_control();
  leave();
}

void Endpoint::stop_receiving() {
  const Lock lock(mutex_);
  receiving_stopped_ = true;
  if (sleepers_ > 0) changed_.notify_all();
  leave();
}

// Calls in other threads return ECANCELED first, so that no thread copies from or to the rings any
// more. Then everything that was sent, and the end, must complete before the disconnection, which
// would discard it. Calls that wait for completions wait for the disconnection at the latest.
bool Endpoint::close(const Deadline& deadline) {
  Lock lock(mutex_);
  if (closed_) {
    // The call that closes has a deadline of its own.
    const bool over = wait(lock, deadline, [this] { return connector_.phase() == Phase::over; });
    return over && clean_;
  }
  closed_ = true;
  changed_.notify_all();
  notify();
  // They see `closed_` and return: a copy that is under way without the lock must end before the
  // rings are freed.
  wait(lock, Deadline::never(), [this] { return !receiving_ && (!sending_ || row_completes_); });
  // The peer of a stream that was accepted a moment ago counts as connected already: it is to
  // receive the end, not a reset.
  if (channel_.is_open()) wait(lock, deadline, [this] { return !connector_.is_connecting(); });
  if (can_send_end()) {
    channel_.flow().finish();
    channel_.send_control();
    wait(lock, deadline, [this] { return channel_.flow().all_sent() || channel_.error() != 0; });
  }
  close_connection(lock);
  return clean_;
}

// As close(), without the parts that may wait: then nothing but the end is sent.
bool Endpoint::close_if_sent() {
  Lock lock(mutex_);
  if (closed_ || sending_ || receiving_ || completing_ > 0 || connector_.is_connecting()) {
    return false;
  }
  // What follows raises events, for which the stream thread need not wake up any more.
  registration_.leave();
  if (can_send_end()) {
    channel_.flow().finish();
    channel_.send_control();
    process();
    if (!channel_.flow().all_sent() && channel_.error() == 0) {
      connector_.register_again(weak_from_this());
      // The timers of the registration before are gone.
      channel_.keepalive().forget_check();
      check_keepalive();
      if (const auto at = channel_.idle_rings().planned()) registration_.wake_at(*at);
      leave();
      return false;
    }
  }
  closed_ = true;
  notify();
  close_connection(lock);
  return true;
}

bool Endpoint::can_send_end() const {
  return channel_.is_open() && connector_.phase() == Phase::open && channel_.error() == 0;
}

// With the lock, and after the last completion that counts.
void Endpoint::close_connection(Lock& lock) {
  clean_ = !channel_.is_open() || (channel_.flow().all_sent() && channel_.flow().finished()) ||
           connector_.failure().error != 0;
  // After the completions above: a disconnection discards what is still in the queue.
  connector_.disconnect();
  // Their memory, and the row of a mapping, are in use until the disconnection has ended the
  // requests.
  wait(lock, Deadline::never(), [this] { return completing_ == 0; });
  connector_.set_over();
  changed_.notify_all();
  // Afterwards the stream thread calls this object no more.
  registration_.leave();
}

// The connection is the parent's: what belongs to it is left where it is, because a thread may have
// been changing it, and because nothing may be written to what the parent shares with its peer. A
// stream that was not connected is only unlocked.
void Endpoint::begin_anew_in_child() noexcept {
  std::construct_at(&mutex_);
  std::construct_at(&changed_);
  sending_ = receiving_ = finishing_ = row_completes_ = false;
  sleepers_ = completing_ = 0;
  if (connector_.phase() == Phase::idle && !connector_.id()) return;
  std::construct_at(&turns_);
  std::construct_at(&registration_);
  std::construct_at(&notifier_);
  std::construct_at(&channel_, changed_);
  std::construct_at(&connector_, options_, channel_, registration_);
  connector_.give_up_in_child();
  armed_ = false;
  viewed_bytes_ = 0;
}

// Disconnects without the end, which is a reset for the peer. A close() that waits in another
// thread goes on at once.
void Endpoint::abort() {
  const Lock lock(mutex_);
  if (connector_.phase() != Phase::over && channel_.error() == 0) {
    connector_.disconnect();
    connector_.fail(ECANCELED, "the attempt to connect was cancelled");
    channel_.break_off(ECANCELED);
  }
  clean_ = false;
  notify();
}

}  // namespace weft::stream::detail
