#include "device/queue_pair/observed_stream_carrier.h"

#include <cerrno>
#include <utility>

#include "device/connect/linger.h"

namespace weft::device {

std::unique_ptr<StreamCarrier> ObservedStreamCarrier::if_needed(QueuePairParts& parts,
                                                                const Driver& driver,
                                                                StreamSocket socket,
                                                                const StreamParameters& parameters,
                                                                bool paired) {
  const bool traced = parts.observation && parts.observation->watch.has_trace();
  if (!traced && !socket.shaped()) {
    return std::make_unique<StreamCarrier>(parts, driver, std::move(socket), parameters, paired);
  }
  auto made =
      std::make_unique<ObservedStreamCarrier>(parts, driver, std::move(socket), parameters, paired);
  if (traced) made->begin_trace();
  return made;
}

// `weft top` may come and go while the connection lives.
RequestWatch* ObservedStreamCarrier::watch() const {
  return parts().observation ? &parts().observation->watch : nullptr;
}

// --- What the carrier is called for --------------------------------------------------------------

// What a link delays is due by an alarm, which follow() sets, so nothing is gathered there.
void ObservedStreamCarrier::posted(QueuePairLock& lock) {
  if (socket().shaped()) return advance(lock);
  StreamCarrier::posted(lock);
  follow();
}

void ObservedStreamCarrier::advance(QueuePairLock& lock) {
  StreamCarrier::advance(lock);
  follow();
}

// A poll of the program defers no answers here, for the same reason. An alarm takes in what a link
// has carried by now, which epoll does not report.
void ObservedStreamCarrier::drive(Occasion occasion, QueuePairLock& lock) {
  const bool shaped = socket().shaped();
  const bool by_program = occasion == Occasion::polled || occasion == Occasion::waiting;
  if (shaped && occasion == Occasion::deadline) receive_available();
  StreamCarrier::drive(shaped && by_program ? Occasion::ready : occasion, lock);
  follow();
}

// --- Traces --------------------------------------------------------------------------------------

// Messages of an unreliable connection may be lost, so they cannot be counted at both ends.
void ObservedStreamCarrier::begin_trace() {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t size = sizeof here;
  const int fd = socket().fd();
  const bool named = getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) == 0;
  size = sizeof there;
  if (!named || getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0 ||
      parts().is_unreliable()) {
    return watch()->connection_began({}, {});
  }
  watch()->connection_began(to_string(here), to_string(there));
}

// Before the completions of the call become visible: a request leaves before it completes. The end
// of a connection flushes requests, which then count as sent.
void ObservedStreamCarrier::follow() {
  if (RequestWatch* const watching = watch()) {
    using Wait = QueuePairTrace::Wait;
    if (!connection().ended()) watching->sent(connection().requests_sent());
    const Waits now = waits();
    watching->waits(Wait::room, now.room);
    watching->waits(Wait::credits, now.credits);
    watching->waits(Wait::receive, now.receive);
  }
  if (socket().faults()) carry_out_faults();
  if (socket().link() && !connection().ended()) follow_link();
}

void ObservedStreamCarrier::note_peer_access(const iwarp::PeerAccess& access) {
  StreamCarrier::note_peer_access(access);
  RequestWatch* const watching = watch();
  if (!watching || !access.last || access.bytes == 0) return;
  using Kind = QueuePairTrace::Kind;
  watching->placed(access.right == iwarp::RemoteRight::read     ? Kind::read
                   : access.right == iwarp::RemoteRight::atomic ? Kind::atomic
                                                                : Kind::write);
}

// --- Faults on demand ----------------------------------------------------------------------------

void ObservedStreamCarrier::inject(const faults::Action& fault, QueuePairLock& /*lock*/) {
  if (StreamFaults* faults = socket().faults()) faults->add(fault);
}

bool ObservedStreamCarrier::next_receive(iwarp::ReceiveRequest& request) {
  StreamFaults* const faults = socket().faults();
  if (faults && !faults->takes_message(sys::now_ns())) return false;
  return StreamCarrier::next_receive(request);
}

// It is as good as a connection to a host that has vanished.
bool ObservedStreamCarrier::silenced(std::uint64_t timeout_ns) const {
  return socket().faults() && socket().faults()->silent_ns(sys::now_ns()) >= timeout_ns;
}

// Sends what is due, and comes back when more is. A socket is not watched while the link takes
// nothing more: a level-triggered epoll would report it again and again.
void ObservedStreamCarrier::follow_link() {
  StreamLink& link = *socket().link();
  const std::uint64_t now_ns = sys::now_ns();
  const StreamFaults* faults = socket().faults();
  // A connection that a rule has silenced keeps what is on the link, too.
  if (faults && faults->state() != StreamFaults::State::open) return;
  if (const auto failed = socket().flush_link(now_ns)) {
    return lose_stream(static_cast<int>(-failed));
  }
  listen(link.reads());
  const std::uint64_t next_ns = link.next_ns(now_ns);
  if (next_ns == DelayedBytes::never_ns) return;
  if (link_alarm_ns_ > now_ns && link_alarm_ns_ <= next_ns) return;
  link_alarm_ns_ = next_ns;
  driver().engine.call_at(next_ns, driver().queue_pair.lock());
}

void ObservedStreamCarrier::carry_out_faults() {
  StreamFaults& faults = *socket().faults();
  const std::uint64_t now_ns = sys::now_ns();
  faults.on_time(now_ns);
  if (connection().ended()) return;
  // Messages that a rule has kept from their receives.
  if (faults.ready_again(now_ns)) {
    connection().receives_posted(now_ns);
    send_available();
  }
  if (const auto code = faults.take_terminate()) {
    connection().terminate_with({.layer = static_cast<std::uint8_t>(*code >> 16),
                                 .type = static_cast<std::uint8_t>(*code >> 8 & 0xFF),
                                 .code = static_cast<std::uint8_t>(*code & 0xFF)});
    send_available();
  }
  const StreamFaults::State state = faults.state();
  if (state == StreamFaults::State::closed) socket().shutdown_write();
  if (state == StreamFaults::State::closed || state == StreamFaults::State::reset) {
    return lose_stream(ECONNRESET);
  }
  listen(state != StreamFaults::State::silent);
  if (const auto alarm_ns = faults.new_alarm_ns()) {
    driver().engine.call_at(*alarm_ns, driver().queue_pair.lock());
  }
}

// False: the connection ends as others do.
bool ObservedStreamCarrier::stop_with_faults() {
  switch (socket().faults()->state()) {
    case StreamFaults::State::reset:
      socket().abort();
      return true;
    case StreamFaults::State::silent:
      if (!socket().faults()->vanished()) break;
      parts().context.device().faults()->keep_silent(socket().release());
      return true;
    case StreamFaults::State::closed:
      // Not closed at once: TCP would send a reset if something has not been read.
      socket().set_faults(nullptr);
      Linger::start(driver().engine, std::move(socket()), {});
      return true;
    case StreamFaults::State::open:
      break;
  }
  socket().set_faults(nullptr);
  return false;
}

// What a link has not carried yet leaves at once.
bool ObservedStreamCarrier::end_shaping(std::vector<std::byte>& rest) {
  rest = socket().end_link();
  return socket().faults() && stop_with_faults();
}

}  // namespace weft::device
