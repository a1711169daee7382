// Connects by TCP and makes the MPA handshake of the active side, in the phases idle, (queued,)
// (refused,) connecting, shaking, done. Where two processes of one host know each other, the
// request goes to the peer process itself, in the phases idle, asking, done; and by TCP if that
// cannot take it. Each phase has one deadline; an alarm that an earlier phase has left behind is
// recognised by its time.
#include "device/connect/dialer.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/kernel_random.h"
#include "device/addresses.h"
#include "device/connect/linger.h"
#include "device/connect/pairing_requests.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::device {

using iwarp::HandshakeFailure;

Dialer::Dialer(Device& device, Plan plan, std::function<void(Outcome)> done)
    : device_(device), plan_(std::move(plan)), done_(std::move(done)) {}

// Every entry point follows one pattern: a result is computed under the lock and reported after it
// is released, because `done_` may call back into the owner of this dialer.
void Dialer::start() {
  Result result;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::idle) result = dial();
  }
  report(std::move(result));
}

bool Dialer::local_address(sockaddr_storage& address) {
  const std::lock_guard lock(mutex_);
  if (socket_.has_pair()) {
    address = socket_.ends().local;
    return true;
  }
  const int fd = socket_.valid() ? socket_.fd() : fd_.get();
  return fd >= 0 && sys::local_address(fd, &address) >= 0;
}

// No outcome is reported afterwards: the phase makes every later event a no-op.
void Dialer::cancel() {
  const std::lock_guard lock(mutex_);
  give_up_turn();
  phase_ = Phase::done;
  drop();
}

// From the first byte of the MPA request on the peer may have accepted it, so dropping the
// connection would lose a stream that the peer believes in.
bool Dialer::cancel_unless_asked() {
  const std::lock_guard lock(mutex_);
  const bool asked = phase_ == Phase::shaking || phase_ == Phase::asking;
  if (asked || phase_ == Phase::done) return false;
  give_up_turn();
  phase_ = Phase::done;
  drop();
  return true;
}

// The engine of the child has closed what it watched; this process must not close the number again.
void Dialer::abandon_after_fork() {
  (void)fd_.release();
  socket_.disown();
  plan_.reserved.reset();
  if (turn_) turn_->disown();
  phase_ = Phase::done;
}

namespace {

// The port of this end, for programs that look at it. Nothing listens there, and TCP's own ports
// are free again as well once a connection has left TCP.
std::uint16_t next_source_port() {
  constexpr std::uint32_t first = 32768;
  constexpr std::uint32_t count = 28232;
  static std::atomic<std::uint32_t> next{random_word() % count};
  return static_cast<std::uint16_t>(first + next.fetch_add(1, std::memory_order_relaxed) % count);
}

}  // namespace

Dialer::Result Dialer::dial() {
  return ask_pair() ? std::nullopt : dial_in_turn();
}

Dialer::Result Dialer::dial_in_turn() {
  if (!plan_.takes_turns) return dial_by_tcp();
  const bool within_host = stays_on_host(plan_.source, plan_.destination);
  auto turn = device_.pairing_requests().dial_turns().take(plan_.destination, within_host,
                                                           weak_from_this());
  if (turn) {
    turn_.emplace(std::move(*turn));
    return dial_by_tcp();
  }
  if (phase_ == Phase::queued) return std::nullopt;
  phase_ = Phase::queued;
  set_deadline(limits::longest_wait_to_dial_ns);
  return std::nullopt;
}

// Meanwhile the two processes may have met.
Dialer::Result Dialer::turn_may_have_come() {
  if (ask_pair()) {
    device_.pairing_requests().dial_turns().pass_on(plan_.destination);
    return std::nullopt;
  }
  return sys::now_ns() < deadline_ns_ ? dial_in_turn() : dial_by_tcp();
}

// It may have been called already, and would not pass its turn on.
void Dialer::give_up_turn() {
  if (phase_ == Phase::queued) device_.pairing_requests().dial_turns().pass_on(plan_.destination);
}

// A program that has bound a port wants to be seen with it.
bool Dialer::ask_pair() {
  if (!plan_.pair.context || plan_.reserved.valid() || plan_.source.ss_family == AF_UNSPEC ||
      asked_pair_) {
    return false;
  }
  const auto pair = device_.process_pairs().towards(plan_.destination);
  if (!pair) return false;
  asked_pair_ = true;
  TcpEnds ends{.local = plan_.source, .remote = plan_.destination};
  if (port_of(ends.local) == 0) set_port(ends.local, next_source_port());
  handshake_.emplace(plan_.handshake, plan_.private_data);
  const SharedFiles none;
  PairEnd end = pair->dial({.source = ends.local,
                            .destination = ends.remote,
                            .frame = handshake_->output(),
                            .terms = plan_.pair,
                            .files = plan_.sharing ? plan_.sharing->shared_files() : none},
                           weak_from_this());
  if (!end.valid()) return false;
  handshake_->output_done(handshake_->output().size());
  socket_ = StreamSocket(std::move(end), ends);
  phase_ = Phase::asking;
  await_reply();
  return true;
}

Dialer::Result Dialer::answered() {
  auto reply = socket_.pair().take_reply();
  if (!reply && !socket_.pair().is_lost()) return std::nullopt;
  // Another process may have the port by now, or the pair was given up: TCP knows. It also serves
  // where memory or descriptors are short at the moment.
  using pair_message::Answer;
  const Answer answer = reply ? reply->answer : Answer::not_serving;
  if (answer == Answer::not_serving || answer == Answer::busy || answer == Answer::lacking) {
    if (reply && answer == Answer::not_serving) {
      device_.process_pairs().refused(plan_.destination);
    }
    socket_ = StreamSocket();
    return dial_in_turn();
  }
  if (answer == Answer::as_stream) {
    socket_ = StreamSocket(std::move(reply->stream), socket_.ends(), nullptr, true);
    if (!socket_.valid()) return fail(ENOMEM);
  }
  for (Bytes rest = reply->frame; !rest.empty();) {
    const std::size_t part = std::min(handshake_->wanted_bytes(), rest.size());
    if (part == 0) break;
    handshake_->input(rest.first(part));
    rest = rest.subspan(part);
  }
  // A frame that accepts, in an answer that does not.
  if (handshake_->accepted() && socket_.has_pair() && !socket_.pair().is_complete()) {
    return fail(ECONNRESET, HandshakeFailure::bad_frame);
  }
  // The peer's program has given up without an answer, or its frame is not complete.
  Result result = settle();
  if (!result) result = fail(ECONNRESET, HandshakeFailure::closed);
  return result;
}

Dialer::Result Dialer::dial_by_tcp() {
  if (const int failed = open()) return fail(failed);
  return connect();
}

Dialer::Result Dialer::connect() {
  const auto* to = reinterpret_cast<const sockaddr*>(&plan_.destination);
  const socklen_t bytes = length_of(plan_.destination);
  int result = sys::connect(fd_.get(), to, bytes);
  // Linux ends a refused attempt with the next call only.
  if (result == -ECONNABORTED) result = sys::connect(fd_.get(), to, bytes);
  if (result == -ECONNREFUSED) return try_again_later();
  // Everything but these errors is final, for example ENETUNREACH: only a refused port may open
  // soon.
  if (result < 0 && result != -EINPROGRESS) return fail(-result);
  phase_ = Phase::connecting;
  // Within a host the connection is there at once, although connect(2) says that it is under way.
  sockaddr_storage peer{};
  if (sys::peer_address(fd_.get(), &peer) >= 0) return begin_handshake(peer);
  // TCP alone would try for about two minutes.
  set_deadline(plan_.connect_timeout_ns);
  return watch(EPOLLOUT) ? std::nullopt : fail(ENOMEM);
}

// With the same socket: it may be bound to a port that the application asked for.
Dialer::Result Dialer::try_again_later() {
  const std::uint64_t now = sys::now_ns();
  if (refused_until_ns_ == 0) refused_until_ns_ = now + plan_.refused_ns;
  if (now >= refused_until_ns_) return fail(ECONNREFUSED);
  unwatch();
  phase_ = Phase::refused;
  set_deadline(limits::refused_pause_ns);
  return std::nullopt;
}

// Failures here are those of the local host (descriptors, an address that is not its own), so they
// are final.
int Dialer::open() {
  if (plan_.reserved.valid()) {
    // A socket that rdma_bind_addr(3) has bound already.
    fd_ = std::move(plan_.reserved);
  } else {
    const int family = plan_.destination.ss_family;
    fd_.reset(sys::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (!fd_.valid()) return -fd_.release();
    if (plan_.source.ss_family != AF_UNSPEC) {
      // The port is chosen by connect(), which knows which ones are free towards this peer.
      constexpr int bind_address_no_port = 24;  // IP_BIND_ADDRESS_NO_PORT, for both families
      sys::set_option(fd_.get(), IPPROTO_IP, bind_address_no_port, 1);
      // A port that was used by an earlier connection (TIME_WAIT) is free towards other peers.
      sys::set_option(fd_.get(), SOL_SOCKET, SO_REUSEADDR, 1);
      const auto* from = reinterpret_cast<const sockaddr*>(&plan_.source);
      const int bound = sys::bind(fd_.get(), from, length_of(plan_.source));
      if (bound < 0) return -bound;
    }
  }
  apply_tos(fd_.get(), plan_.destination.ss_family, plan_.tos);
  tune(fd_.get(), stays_on_host(plan_.source, plan_.destination));
  return 0;
}

// False where there is no memory or no watch left.
bool Dialer::watch(std::uint32_t events) {
  if (token_ != 0) {
    if (events != watched_) device_.engine().change(token_, events);
  } else {
    const int fd = socket_.valid() ? socket_.fd() : fd_.get();
    token_ = device_.engine().watch(fd, events, shared_from_this());
  }
  watched_ = events;
  return token_ != 0;
}

void Dialer::unwatch() {
  if (token_ != 0) device_.engine().unwatch(std::exchange(token_, 0));
}

void Dialer::drop() {
  turn_.reset();
  unwatch();
  socket_.close();
  fd_.reset();
}

void Dialer::set_deadline(std::uint64_t timeout_ns) {
  deadline_ns_ = sys::now_ns() + timeout_ns;
  device_.engine().call_at(deadline_ns_, shared_from_this());
}

// Wakes up before the timeout if the late reply is to be noticed.
void Dialer::await_reply() {
  const bool notices = plan_.late && plan_.notice_ns < plan_.handshake_timeout_ns;
  reply_until_ns_ = sys::now_ns() + plan_.handshake_timeout_ns;
  set_deadline(notices ? plan_.notice_ns : plan_.handshake_timeout_ns);
}

// What is to be called without the lock, if this deadline is that of the notice.
std::function<void()> Dialer::take_notice() {
  const bool waits = phase_ == Phase::asking || phase_ == Phase::shaking;
  if (!waits || deadline_ns_ >= reply_until_ns_) return nullptr;
  deadline_ns_ = reply_until_ns_;
  device_.engine().call_at(deadline_ns_, shared_from_this());
  return std::exchange(plan_.late, nullptr);
}

void Dialer::on_ready(std::uint32_t /*events*/) {
  Result result;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::asking) {
      result = answered();
    } else if (phase_ == Phase::connecting) {
      // EPOLLOUT reports success and failure alike; SO_ERROR distinguishes them.
      result = connected();
    } else if (phase_ == Phase::shaking) {
      result = shake();
    }
  }
  report(std::move(result));
}

void Dialer::on_deadline() {
  Result result;
  std::function<void()> late;
  {
    const std::lock_guard lock(mutex_);
    // An earlier phase may have left its alarm behind.
    if (phase_ == Phase::done || phase_ == Phase::idle) return;
    const bool queued = phase_ == Phase::queued;
    if (!queued && sys::now_ns() < deadline_ns_) return;
    late = take_notice();
    if (!late) {
      result = queued ? turn_may_have_come() : phase_ == Phase::refused ? connect() : timed_out();
    }
  }
  if (late) return late();
  report(std::move(result));
}

Dialer::Result Dialer::connected() {
  int error = 0;
  socklen_t bytes = sizeof error;
  sys::get_option(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error == ECONNREFUSED) return try_again_later();
  if (error != 0) return fail(error);
  sockaddr_storage peer{};
  if (sys::peer_address(fd_.get(), &peer) < 0) return std::nullopt;  // not yet
  return begin_handshake(peer);
}

Dialer::Result Dialer::begin_handshake(const sockaddr_storage& peer) {
  TcpEnds ends{.remote = peer};
  sys::local_address(fd_.get(), &ends.local);
  // From here on the capture sees the bytes; the tap needs both addresses.
  socket_ = StreamSocket(std::move(fd_), ends, device_.capture(), true);
  // Before the MPA request: see local/local_channel.h.
  if (device_.settings().same_host != SameHost::off) {
    socket_.set_channel(LocalChannel::dial(socket_.ends()));
  }
  handshake_.emplace(plan_.handshake, plan_.private_data);
  phase_ = Phase::shaking;
  await_reply();
  send_request();
  return watch_handshake() ? std::nullopt : fail(ENOMEM);
}

Dialer::Result Dialer::shake() {
  send_request();
  receive_reply();
  Result result = settle();
  if (!result && !watch_handshake()) result = fail(ENOMEM);
  return result;
}

// A request is shorter than any ordinary socket buffer, so EPOLLOUT is rare.
bool Dialer::watch_handshake() {
  return watch(handshake_->output().empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void Dialer::send_request() {
  while (!handshake_->output().empty()) {
    const Bytes rest = handshake_->output();
    const iovec piece{const_cast<std::byte*>(rest.data()), rest.size()};
    const auto sent = socket_.send({&piece, 1});
    if (sent == -EINTR) continue;
    // Full, or the peer closed or reset: what can still be read shows how far it got.
    if (sent < 0) break;
    handshake_->output_done(static_cast<std::size_t>(sent));
  }
}

// Reads no byte beyond the reply: what follows belongs to the stream.
void Dialer::receive_reply() {
  std::array<std::byte, 1024> buffer;
  while (const std::size_t wanted = handshake_->wanted_bytes()) {
    const iovec piece{buffer.data(), std::min(wanted, buffer.size())};
    const auto got = socket_.receive({&piece, 1});
    if (got == -EINTR) continue;
    if (got == -EAGAIN) return;
    // A peer that does not know the revision may as well reset (RFC 6581 §10).
    if (got <= 0) return handshake_->input_closed();
    handshake_->input(Bytes(buffer).first(static_cast<std::size_t>(got)));
  }
}

// The dialer gives up its registration with the engine before it hands the socket over: the queue
// pair makes its own.
Dialer::Result Dialer::settle() {
  if (handshake_->failed()) return failed_handshake();
  if (!handshake_->accepted() && !handshake_->rejected()) return std::nullopt;
  phase_ = Phase::done;
  turn_.reset();
  unwatch();
  Outcome outcome;
  outcome.fell_back = fell_back_;
  const Bytes data = handshake_->peer_private_data();
  outcome.private_data.assign(data.begin(), data.end());
  if (handshake_->rejected()) {
    outcome.rejected = true;
    outcome.status = -ECONNREFUSED;
    // Closes gently, because the rejecting side reads to the end of our stream.
    if (!socket_.has_pair()) Linger::start(device_.engine(), std::move(socket_), {});
    socket_ = StreamSocket();
    return outcome;
  }
  outcome.negotiated = handshake_->negotiated();
  outcome.socket = std::move(socket_);
  socket_ = StreamSocket();
  return outcome;
}

Dialer::Result Dialer::failed_handshake() {
  const HandshakeFailure failure = handshake_->failure();
  if (failure == HandshakeFailure::retry_revision_1 && plan_.may_fall_back && !fell_back_) {
    // A new connection: the peer has closed the old one (RFC 6581 §10).
    drop();
    fell_back_ = true;
    asked_pair_ = true;
    plan_.handshake.revision = 1;
    return dial();
  }
  // The peer speaks MPA or may do so, and has closed: no protocol error.
  if (failure == HandshakeFailure::closed || failure == HandshakeFailure::retry_revision_1) {
    return fail(ECONNRESET, HandshakeFailure::closed);
  }
  // The Terminate with the reason, where the peer has already accepted (RFC 6581 §8).
  const Bytes rest = handshake_->output();
  if (!rest.empty() && !socket_.has_pair()) {
    unwatch();
    Linger::start(device_.engine(), std::move(socket_), {rest.begin(), rest.end()});
    socket_ = StreamSocket();
  }
  return fail(EPROTO, failure);
}

Dialer::Result Dialer::timed_out() {
  return fail(ETIMEDOUT, phase_ == Phase::shaking || phase_ == Phase::asking
                             ? HandshakeFailure::timed_out
                             : HandshakeFailure::none);
}

Dialer::Result Dialer::fail(int error, HandshakeFailure handshake) {
  phase_ = Phase::done;
  drop();
  Outcome outcome;
  outcome.status = -error;
  outcome.fell_back = fell_back_;
  outcome.handshake = handshake;
  return outcome;
}

void Dialer::report(Result result) {
  if (result) done_(std::move(*result));
}

}  // namespace weft::device
