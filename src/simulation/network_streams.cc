// Connections: how they begin, carry bytes and end.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "simulation/network.h"

namespace weft::simulation {
namespace {

// TCP sends again what is not acknowledged after this: the least retransmission timeout of Linux.
constexpr Time again_after_ns = 200'000'000;

std::uint64_t number_of(const Socket& socket) {
  return static_cast<std::uint64_t>(socket.fd);
}

std::uint64_t ns_of(std::chrono::nanoseconds duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
}

}  // namespace

// When `bytes` that leave now are at the other end.
Time Network::delayed(Socket& socket, std::size_t bytes) {
  const Time now = schedule_.now();
  if (!socket.link) return now;
  if (socket.link->cut) return never;
  const Link& link = socket.link->options;
  Time leaves = now;
  if (link.bits_per_second != 0) {
    constexpr std::uint64_t bits_per_byte = 8;
    constexpr std::uint64_t ns_per_s = 1'000'000'000;
    socket.wire_free =
        std::max(socket.wire_free, now) + bytes * bits_per_byte * ns_per_s / link.bits_per_second;
    leaves = socket.wire_free;
  }
  const Time due = leaves + ns_of(link.latency) + schedule_.random().below(ns_of(link.jitter) + 1);
  return !socket.inbox && is_lost(*socket.link) ? due + again_after_ns : due;
}

// By chance. No random number is taken where nothing is lost.
bool Network::is_lost(const LinkState& link) {
  if (link.options.loss <= 0) return false;
  constexpr std::uint64_t parts = 1'000'000'000;
  const auto lost = static_cast<std::uint64_t>(std::min(link.options.loss, 1.0) * double(parts));
  return schedule_.random().below(parts) < lost;
}

// --- The beginning -------------------------------------------------------------------------------

void Network::connect_to_itself(Socket& socket) {
  socket.state = Socket::State::connected;
  socket.in = socket.out = std::make_shared<Pipe>();
  socket.other = share(socket.fd);
}

Socket* Network::listener_for(const Socket& initiator) const {
  const auto host = host_of(initiator, initiator.peer.address);
  if (!host) return nullptr;
  auto found = listeners_.find({*host, initiator.peer});
  if (found == listeners_.end()) {
    found = listeners_.find({*host, Place{.address = INADDR_ANY, .port = initiator.peer.port}});
  }
  return found == listeners_.end() ? nullptr : find(found->second);
}

// The request to connect is at the other host, whose kernel answers it. A second request of the
// same socket, which was sent again after a cut, finds nothing new as long as the first one's
// responder is there.
void Network::arrive(Socket& initiator) {
  if (initiator.state != Socket::State::connecting) return;
  if (initiator.out && !initiator.other.expired()) return;
  const Time due = delayed(initiator, 0);
  if (due == never) return;
  Socket* const listens = initiator.out ? nullptr : listener_for(initiator);
  if (!listens) return schedule_.add({due, Event::Kind::refused, number_of(initiator)});
  const std::shared_ptr<Socket> listener = share(listens->fd);
  const std::shared_ptr<Socket> responder = make_socket();
  join(initiator, responder, due);
  responder->process = listener->process;
  listener->backlog.push_back(responder);
  schedule_.add({due, Event::Kind::established, number_of(initiator)});
  expect_readable(*listener, schedule_.now());
}

// `due`: when the answer reaches the initiator. Nothing that follows comes before it.
void Network::join(Socket& initiator, const std::shared_ptr<Socket>& responder, Time due) {
  initiator.initiated = true;
  initiator.out = responder->in = std::make_shared<Pipe>();
  initiator.in = responder->out = std::make_shared<Pipe>();
  initiator.in->begin(due);
  initiator.other = responder;
  responder->other = share(initiator.fd);
  responder->local = initiator.peer;
  responder->peer = initiator.local;
  responder->link = initiator.link;
  responder->state = Socket::State::connected;
}

void Network::establish(Socket& socket) {
  if (socket.state != Socket::State::connecting) return;
  socket.state = Socket::State::connected;
  report(socket);
}

void Network::fail(Socket& socket, int error) {
  if (socket.state != Socket::State::connecting) return;
  socket.state = Socket::State::failed;
  socket.error = error;
  report(socket);
}

// --- Bytes ---------------------------------------------------------------------------------------

bool Network::is_readable(const Socket& socket, Time now) {
  if (socket.state == Socket::State::listening) return !socket.backlog.empty();
  if (socket.inbox) return !socket.inbox->arrived.empty();
  if (socket.state == Socket::State::failed || socket.was_reset) return true;
  return socket.in && (socket.in->has_bytes(now) || socket.in->ended(now));
}

bool Network::is_writable(const Socket& socket) {
  if (socket.state == Socket::State::failed || socket.was_reset || socket.inbox) return true;
  return socket.state == Socket::State::connected &&
         (socket.out->room() > 0 || socket.out->closed());
}

// What a call for this socket would find.
std::size_t Network::waiting(Socket& socket) const {
  if (socket.inbox) return socket.inbox->arrived.size();
  return socket.backlog.size() + (socket.in ? socket.in->readable(schedule_.now()) : 0);
}

std::ptrdiff_t Network::send(int fd, std::span<const iovec> pieces) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  std::size_t wanted = 0;
  for (const iovec& piece : pieces) wanted += piece.iov_len;
  // A process that has ended does not notice it.
  if (socket->dead()) return static_cast<std::ptrdiff_t>(wanted);
  if (socket->was_reset || socket->state == Socket::State::failed) return -ECONNRESET;
  if (socket->state != Socket::State::connected) return -EAGAIN;
  Pipe& out = *socket->out;
  if (out.ending()) return -EPIPE;
  if (out.closed()) {
    refuse_bytes(*socket);
    return static_cast<std::ptrdiff_t>(wanted);
  }
  const std::size_t count = std::min(wanted, out.room());
  if (count == 0 && wanted > 0) {
    socket->wants_room = true;
    return -EAGAIN;
  }
  out.send(pieces, count, delayed(*socket, count));
  if (const auto other = socket->other.lock()) expect_readable(*other, out.last_due());
  return static_cast<std::ptrdiff_t>(count);
}

// The other end has closed its socket; its kernel answers bytes with a reset.
void Network::refuse_bytes(Socket& socket) {
  const Time there = delayed(socket, 0);
  socket.refusal_due = there == never;
  if (there == never) return;
  schedule_.add({there + (there - schedule_.now()), Event::Kind::reset, number_of(socket)});
}

std::ptrdiff_t Network::receive(int fd, std::span<const iovec> pieces) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  if (socket->dead()) return -EAGAIN;
  if (!socket->in) return socket->state == Socket::State::failed ? -ECONNREFUSED : -EAGAIN;
  const std::size_t got = socket->in->receive(pieces, schedule_.now());
  if (got > 0) {
    give_room(*socket);
    return static_cast<std::ptrdiff_t>(got);
  }
  if (socket->was_reset) return -ECONNRESET;
  return socket->in->ended(schedule_.now()) ? 0 : -EAGAIN;
}

// The sender's TCP hears of the room with an acknowledgement.
void Network::give_room(Socket& reader) {
  const auto sender = reader.other.lock();
  if (!sender || !sender->wants_room) return;
  const Time due = delayed(reader, 0);
  sender->wants_room = due == never;  // otherwise mend() sends it again
  expect_writable(*sender, due);
}

bool Network::peer_closed(int fd) {
  Socket* const socket = find(fd);
  if (!socket || socket->dead() || !socket->in) return false;
  if (socket->in->has_bytes(schedule_.now())) return false;
  return socket->was_reset || socket->in->ended(schedule_.now());
}

// --- The end -------------------------------------------------------------------------------------

// The socket is closed, by its process or with it.
void Network::abandon(Socket& socket) {
  if (std::exchange(socket.abandoned, true)) return;
  socket.events = 0;
  if (socket.state == Socket::State::listening) {
    if (const auto host = host_of(socket)) listeners_.erase({*host, socket.local});
    for (const auto& waiting : std::exchange(socket.backlog, {})) {
      waiting->ends_by_reset = true;
      close(waiting->fd);
    }
  }
  if (!socket.out || socket.out == socket.in) return;
  // TCP answers with a reset to bytes that are never read.
  const bool unread = socket.in->readable(schedule_.now()) > 0;
  socket.in->close(schedule_.now());
  if (socket.was_reset) return;
  if (unread || socket.ends_by_reset) {
    reset_other(socket);
  } else {
    send_end(socket);
  }
}

void Network::send_end(Socket& socket) {
  if (socket.out->ending()) return;
  socket.out->end(delayed(socket, 0));
  if (const auto other = socket.other.lock()) expect_readable(*other, socket.out->last_due());
}

void Network::reset_other(Socket& socket) {
  const auto other = socket.other.lock();
  const Time due = std::max(delayed(socket, 0), socket.out->last_due());
  if (other && due != never) schedule_.add({due, Event::Kind::reset, number_of(*other)});
}

void Network::take_reset(Socket& socket) {
  if (socket.was_reset) return;
  socket.was_reset = true;
  if (socket.in) socket.in->close(schedule_.now());
  report(socket);
}

// --- Links ---------------------------------------------------------------------------------------

void Network::set_link(std::size_t a, std::size_t b, const Link& link) {
  links_.between(a, b).options = link;
}

void Network::cut(std::size_t a, std::size_t b) {
  LinkState& link = links_.between(a, b);
  if (std::exchange(link.cut, true)) return;
  link.cut_since = schedule_.now();
  flights_.lose(link);
  for (const auto& socket : sockets_) {
    if (!socket || socket->link != &link || !socket->out) continue;
    socket->out->hold(schedule_.now());
    if (socket->other.expired()) socket->in->hold(schedule_.now());
  }
}

void Network::mend(std::size_t a, std::size_t b) {
  LinkState& link = links_.between(a, b);
  if (!std::exchange(link.cut, false)) return;
  for (const auto& socket : sockets_) {
    if (socket && socket->link == &link) send_again(*socket);
  }
}

// TCP sends again what was lost since the cut: requests to connect, their answers, bytes, and the
// probes of a full window.
void Network::send_again(Socket& socket) {
  // Not even the request has an answer, or its responder is closed already.
  if (socket.state == Socket::State::connecting && socket.other.expired() && !socket.abandoned) {
    schedule_.add({delayed(socket, 0), Event::Kind::syn, number_of(socket)});
  }
  if (!socket.out) return;
  const Time due = delayed(socket, 0);
  socket.out->release(due);
  if (const auto other = socket.other.lock()) {
    // Before the first bytes.
    if (other->state == Socket::State::connecting) {
      schedule_.add({due, Event::Kind::established, number_of(*other)});
    }
    expect_readable(*other, due);
  }
  if (socket.wants_room && socket.out->room() > 0) {
    socket.wants_room = false;
    expect_writable(socket, due);
  }
  if (socket.refusal_due) refuse_bytes(socket);
  // The other host's kernel sends also for a socket that its program has closed.
  if (socket.state == Socket::State::connected && socket.other.expired()) {
    const Time from_other = delayed(socket, 0);
    socket.in->release(from_other);
    expect_readable(socket, from_other);
  }
}

void Network::reset(std::size_t a, std::size_t b) {
  const LinkState& link = links_.between(a, b);
  // A copy, because none of this may depend on what an event does.
  for (const auto& socket : std::vector(sockets_)) {
    if (!socket || socket->link != &link || !socket->out || socket->dead()) continue;
    schedule_.add({schedule_.now(), Event::Kind::reset, number_of(*socket)});
  }
}

}  // namespace weft::simulation
