// How two queue pairs that name each other by GID and number get one connection. Either end may
// dial; of two requests that cross, one is chosen by PairingEnd's order. Lock order: queue pair,
// pairing, dialer.
#include "device/connect/pairing.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "device/addresses.h"
#include "device/connect/pairing_requests.h"
#include "device/connect/slots.h"
#include "device/lid.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::device {
namespace {

using wire::Hello;
using wire::HelloAnswer;

constexpr std::uint32_t psn_mask = 0xFFFFFF;
constexpr std::uint64_t hidden_for_ever = UINT64_MAX;

std::vector<std::byte> bytes_of(const Hello& hello) {
  std::vector<std::byte> bytes(Hello::bytes);
  hello.emit(bytes);
  return bytes;
}

// Tells the sender of `request` no more than it has named itself.
Hello refusal_of(const Hello& request, HelloAnswer answer) {
  return {.answer = answer,
          .source_qpn = request.destination_qpn,
          .destination_qpn = request.source_qpn,
          .generation = request.generation};
}

void count(Refusals& refusals, HelloAnswer answer) {
  if (answer == HelloAnswer::not_yet) ++refusals.not_ready;
  if (answer == HelloAnswer::refused) ++refusals.refused;
}

// Rises from one attempt of this host to the next, whichever process makes it.
std::uint32_t next_generation() {
  constexpr std::uint64_t unit_ns = 65'536;
  return static_cast<std::uint32_t>(sys::now_ns() / unit_ns);
}

// Serial numbers: the difference counts, so that a wrap-around does no harm.
bool is_older(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) < 0;
}

// The responder's IRD is what the peer may use here; the ORD is what the peer has room for.
StreamParameters parameters_of(const iwarp::Negotiated& negotiated, bool initiator,
                               bool acknowledge) {
  // One read of the ORD is kept for the probes that prove completions.
  const int spare = acknowledge ? 1 : 0;
  return {.initiator = initiator,
          .crc = negotiated.crc,
          .send_markers = negotiated.send_markers,
          .acknowledge = acknowledge && negotiated.ord > 0,
          .ird = negotiated.ird,
          .wire_ord = negotiated.ord,
          .ord = static_cast<std::uint16_t>(std::max(negotiated.ord - spare, 0)),
          .rtr = negotiated.rtr};
}

// What both ends can do counts, and we can do everything that a hello may name.
iwarp::PeerFeatures features_of(const Hello& hello) {
  const auto can = [&hello](std::uint32_t capability) {
    return (hello.capabilities & capability) != 0;
  };
  return {.send_immediate = can(Hello::can_send_immediate),
          .control_stag = can(Hello::can_count_executed) ? hello.control_stag : 0,
          .hold_bytes = can(Hello::can_hold_sends) ? hello.hold_capacity_bytes : 0,
          .names_queues = hello.extended() != 0};
}

// What the peer's hello must have where ours has `extended`.
std::uint32_t opposite_of(std::uint32_t extended) {
  return extended == 0 ? 0 : extended ^ (Hello::extended_sender | Hello::extended_receiver);
}

// Once for each process: the pairing goes on until its retry time is over.
void report_version() {
  static std::atomic_flag printed;
  if (printed.test_and_set()) return;
  log_format(LogLevel::warning, "weft0",
             "the peer's Weft is of an older version, which has no extended connections (XRC)");
}

// Waits a little longer each time, up to `longest`.
std::uint64_t grow(std::uint64_t pause_ns, std::uint64_t shortest, std::uint64_t longest) {
  return std::clamp(pause_ns * 2, shortest, longest);
}

}  // namespace

// By number first: on one host they differ, though its ends may know each other by several
// addresses.
// A total order that both ends compute alike: it decides which of two crossing requests counts.
bool PairingEnd::operator<(const PairingEnd& other) const {
  if (number != other.number) return number < other.number;
  return std::memcmp(gid.raw, other.gid.raw, sizeof gid.raw) < 0;
}

bool PairingEnd::operator==(const PairingEnd& other) const {
  return number == other.number && std::memcmp(gid.raw, other.gid.raw, sizeof gid.raw) == 0;
}

// Everything that can be wrong with an address vector is found here, within ibv_modify_qp(3), which
// can still fail.
int Pairing::make_plan(Device& device, std::uint32_t number, const ibv_qp_attr& attributes,
                       Plan& plan) {
  const ibv_ah_attr& vector = attributes.ah_attr;
  PathEnds ends;
  if (const int failed = path_ends(device, vector, ends)) return failed;
  plan.source = ends.local->address;
  set_port(plan.source, 0);
  plan.local = {gid_of(plan.source), number};
  plan.peer = {ends.destination, attributes.dest_qp_num};
  plan.destination = address_of(ends.destination);
  // A socket has one family, and the peer compares the source address with its address vector.
  if (plan.destination.ss_family != plan.source.ss_family) return EINVAL;
  if (is_any_address(plan.destination)) return EINVAL;
  set_scope(plan.destination, ends.local->interface_index);
  set_port(plan.destination, slot::port_of(attributes.dest_qp_num));
  plan.receive_psn = attributes.rq_psn;
  return 0;
}

Pairing::Pairing(Device& device, std::weak_ptr<QueuePair> queue_pair, const Plan& plan)
    : device_(device), queue_pair_(std::move(queue_pair)), plan_(plan) {}

Pairing::~Pairing() {
  expect_no_more();
}

void Pairing::start(bool asked) {
  const std::lock_guard lock(mutex_);
  expecting_ = true;
  yields_ = plan_.peer < plan_.local && !asked;
  device_.pairing_requests().expect(plan_.local.number, plan_.peer.gid);
  if (device_.faults()) [[unlikely]]
    look_for_fault();
  // From the progress thread, because ibv_modify_qp(3) must not wait: the peer may belong to the
  // same thread.
  try_again(first_pause_ns());
}

// The lower end may have thousands of others to ask for first, so that it is given more time as
// long as something comes from there.
bool Pairing::yields_on(std::uint64_t now_ns) {
  if (!yields_) return false;
  yields_ = device_.pairing_requests().heard_since(plan_.peer.gid, now_ns - pause_ns_);
  return yields_;
}

// Two connections for each pair, one of which is turned down, cost twice the time.
std::uint64_t Pairing::first_pause_ns() const {
  if (to_itself()) return 0;
  return yields_ ? limits::lower_end_asks_ns : limits::rts_follows_ns;
}

// With the lock held.
void Pairing::look_for_fault() {
  const auto fault = device_.faults()->connecting(faults::Point::pair, {.peer = plan_.peer.gid},
                                                  plan_.local.number);
  if (!fault) return;
  const bool late = fault->failure() == faults::Failure::delay;
  hidden_until_ns_ =
      late ? sys::now_ns() + static_cast<std::uint64_t>(fault->argument) : hidden_for_ever;
  if (late) device_.engine().call_at(hidden_until_ns_, shared_from_this());
}

void Pairing::expect_no_more() {
  if (std::exchange(expecting_, false)) {
    device_.pairing_requests().expect_no_more(plan_.peer.gid);
  }
}

// PSNs prove identity: see verify(). Before RTS this end has none to show.
void Pairing::ready_to_send(std::uint32_t psn) {
  const std::lock_guard lock(mutex_);
  if (send_psn_) return;  // from SQD
  send_psn_ = psn & psn_mask;
  // An attempt that could prove nothing was turned down for now.
  if (phase_ != Phase::idle || yields_) return;
  next_attempt_ns_ = sys::now_ns();
  device_.engine().call_at(next_attempt_ns_, shared_from_this());
}

void Pairing::work_waits(std::uint64_t retry_time_ns) {
  const std::lock_guard lock(mutex_);
  // The clock runs from the first request that waits, not from the last.
  if (waiting_since_ns_ != 0 || phase_ == Phase::over) return;
  waiting_since_ns_ = sys::now_ns();
  retry_time_ns_ = retry_time_ns;
  if (retry_time_ns != 0)
    device_.engine().call_at(waiting_since_ns_ + retry_time_ns, shared_from_this());
}

// `again`: the peer never had the stream, so both ends still want one. Otherwise the peer has had
// its connection, and InfiniBand knows no second one without a new RTR.
void Pairing::lost(bool again) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::paired) return;
  if (again) return try_again(0);
  if (plan_.unreliable) {  // no work waits for the peer
    phase_ = Phase::over;
    return;
  }
  phase_ = Phase::lost;
  // Requests that are posted later wait for a time of their own.
  waiting_since_ns_ = 0;
}

// The dialer is cancelled with this lock held. It never calls back from within cancel().
void Pairing::cancel() {
  const std::lock_guard lock(mutex_);
  phase_ = Phase::over;
  if (dialer_) dialer_->cancel();
  dialer_.reset();
  expect_no_more();
}

void Pairing::abandon_after_fork() {
  if (dialer_) dialer_->abandon_after_fork();
}

bool Pairing::over() {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::over;
}

// With the lock held.
void Pairing::try_again(std::uint64_t pause_ns) {
  phase_ = Phase::idle;
  // Counts attempts, also those that were turned down for now.
  ++retries_;
  dialer_.reset();
  pause_ns_ = pause_ns;
  next_attempt_ns_ = sys::now_ns() + pause_ns;
  const std::uint64_t end_ns = end_of_retries_ns();
  // An alarm of its own for each attempt; one that comes too early does nothing.
  device_.engine().call_at(std::min(next_attempt_ns_, end_ns), shared_from_this());
}

// With the lock held. What kept this process from making its next attempt in time is not the
// peer's silence: it had no processor, was stopped, or makes progress in its own calls only.
void Pairing::forgive_own_lateness(std::uint64_t now_ns) {
  // An attempt that a rule of faults holds back is late on purpose.
  const std::uint64_t due_ns = std::max({next_attempt_ns_, hidden_until_ns_, waiting_since_ns_});
  if (phase_ != Phase::idle || waiting_since_ns_ == 0 || now_ns <= due_ns) return;
  if (due_ns < end_of_retries_ns()) waiting_since_ns_ += now_ns - due_ns;
}

std::uint64_t Pairing::end_of_retries_ns() const {
  const bool bounded = waiting_since_ns_ != 0 && retry_time_ns_ != 0;
  return bounded ? waiting_since_ns_ + retry_time_ns_ : UINT64_MAX;
}

// With the lock held. An end that has only yielded does not know yet whether the peer is there.
bool Pairing::must_ask_at_last(std::uint64_t now_ns) {
  if (phase_ != Phase::idle || now_ns < end_of_retries_ns() || now_ns < hidden_until_ns_) {
    return false;
  }
  return std::exchange(yields_, false);
}

void Pairing::on_deadline() {
  std::unique_lock lock(mutex_);
  const std::uint64_t now = sys::now_ns();
  // An attempt that is under way may still succeed.
  if (phase_ != Phase::idle && phase_ != Phase::lost) return;
  forgive_own_lateness(now);
  const bool must_ask = must_ask_at_last(now);
  if (now >= end_of_retries_ns() && !must_ask) {
    phase_ = Phase::over;
    waiting_since_ns_ = 0;
    if (plan_.unreliable) try_again(limits::longest_redial_ns);  // for what is posted later
    lock.unlock();
    if (const auto queue_pair = queue_pair_.lock()) queue_pair->fail_pairing(*this);
    return;
  }
  const bool too_early = now < next_attempt_ns_ && !must_ask;
  if (phase_ == Phase::lost || too_early || now < hidden_until_ns_) return;
  if (to_itself()) {
    phase_ = Phase::accepting;
    lock.unlock();
    return loop();
  }
  if (yields_on(now)) return try_again(grow(pause_ns_, 0, limits::longest_redial_ns));
  phase_ = Phase::dialing;
  // Started after the lock is released: a refused connect() may report at once.
  const auto dialer = dialer_ = make_dialer();
  lock.unlock();
  dialer->start();
}

std::shared_ptr<Dialer> Pairing::make_dialer() {
  Dialer::Plan plan;
  plan.source = plan_.source;
  plan.destination = plan_.destination;
  plan.handshake.crc = device_.settings().crc;
  plan.handshake.ird = limits::max_wire_read_depth;
  plan.handshake.ord = limits::max_wire_read_depth;
  plan.private_data = bytes_of(hello(next_generation()));
  plan.connect_timeout_ns = limits::pairing_connect_ns;
  plan.handshake_timeout_ns = limits::handshake_ns;
  // The hello is in the enhanced request, and a Weft peer knows revision 2.
  plan.may_fall_back = false;
  plan.takes_turns = true;
  if (const auto queue_pair = queue_pair_.lock()) plan.pair = queue_pair->pair_terms();
  // Alarms of the engine remember it for long, and shall not keep its memory.
  // NOLINTNEXTLINE(modernize-make-shared)
  return std::shared_ptr<Dialer>(
      new Dialer(device_, std::move(plan),
                 [weak = weak_from_this(), attempt = ++attempt_](Dialer::Outcome outcome) {
                   if (const auto self = weak.lock()) self->on_dialed(attempt, std::move(outcome));
                 }));
}

void Pairing::on_dialed(std::uint32_t attempt, Dialer::Outcome outcome) {
  std::unique_lock lock(mutex_);
  // A late report: meanwhile the peer's own request was accepted, or the pairing is over.
  if (attempt != attempt_ || phase_ != Phase::dialing) return;
  const auto reply = Hello::parse(outcome.private_data);
  // The peer's process may be gone, and another one may listen at its port now.
  if (outcome.status == 0 && reply &&
      (verify(*reply) != Proof::right ||
       (!outcome.socket.has_pair() &&
        device_.pairing_requests().is_other_users(outcome.socket.ends())))) {
    ++device_.refusals().refused;
    return on_turned_down(HelloAnswer::refused);
  }
  const bool agreed = outcome.status == 0 && reply && reply->source_qpn == plan_.peer.number &&
                      reply->destination_qpn == plan_.local.number &&
                      reply->extended() == opposite_of(plan_.extended);
  if (!agreed) return on_turned_down(reply ? reply->answer : HelloAnswer::refused);
  phase_ = Phase::paired;
  dialer_.reset();
  lock.unlock();
  hand_over(std::move(outcome.socket), outcome.negotiated, features_of(*reply), true);
}

// With the lock held.
void Pairing::on_turned_down(HelloAnswer answer) {
  if (answer == HelloAnswer::bad_version) report_version();
  if (answer == HelloAnswer::not_yet) {
    const auto pause_ns = grow(pause_ns_, limits::shortest_not_yet_ns, limits::longest_not_yet_ns);
    const bool more = waiting_since_ns_ != 0 && !plan_.unreliable;
    // The peer exists and will be ready: no retry is consumed (as RNR NAKs consume none of
    // retry_cnt).
    if (more) waiting_since_ns_ = sys::now_ns() + pause_ns;
    return try_again(pause_ns);
  }
  const auto pause_ns = grow(pause_ns_, limits::shortest_redial_ns, limits::longest_redial_ns);
  // The peer's own request is under way.
  if (answer == HelloAnswer::crossed && waiting_since_ns_ != 0)
    waiting_since_ns_ = sys::now_ns() + pause_ns;
  try_again(pause_ns);
}

bool Pairing::to_itself() const {
  return plan_.peer.number == plan_.local.number &&
         (plan_.peer == plan_.local || is_loopback_address(plan_.destination));
}

// A socket that is connected to itself: what the queue pair sends is what it receives.
// No handshake takes place, because there is no second side. What it would agree on is set here.
void Pairing::loop() {
  sys::Descriptor fd;
  if (connect_to_itself(fd) != 0) {
    const std::lock_guard lock(mutex_);
    return try_again(limits::longest_redial_ns);
  }
  Hello own;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::accepting) return;
    phase_ = Phase::paired;
    own = hello(0);
  }
  const iwarp::Negotiated agreed{.crc = device_.settings().crc,
                                 .ird = limits::max_wire_read_depth,
                                 .ord = limits::max_wire_read_depth};
  const LoopTap::Terms shown{.answering_port = slot::port_of(plan_.local.number),
                             .crc = agreed.crc,
                             .read_depth = agreed.ird};
  hand_over(StreamSocket(std::move(fd), device_.capture(), shown), agreed, features_of(own), true);
}

Hello Pairing::hello(std::uint32_t generation) const {
  const std::uint32_t kind = plan_.unreliable ? Hello::unreliable : Hello::can_hold_sends;
  // What a hello offers is the same for every attempt; only PSN and generation change.
  return {.version = Hello::version_for(plan_.extended),
          .source_qpn = plan_.local.number,
          .destination_qpn = plan_.peer.number,
          .send_psn = send_psn_.value_or(0),
          .receive_psn = plan_.receive_psn & psn_mask,
          .generation = generation,
          .capabilities = Hello::can_send_immediate | Hello::can_count_executed | kind |
                          plan_.extended | (send_psn_ ? Hello::has_send_psn : 0),
          .control_stag = plan_.control_stag,
          .hold_capacity_bytes = plan_.unreliable ? 0 : device_.hold_bytes()};
}

void Pairing::hand_over(StreamSocket stream, const iwarp::Negotiated& negotiated,
                        const iwarp::PeerFeatures& peer, bool initiator) {
  const auto queue_pair = queue_pair_.lock();
  if (!queue_pair) return;
  const bool acknowledge = device_.settings().acknowledge && !plan_.unreliable;
  auto parameters = parameters_of(negotiated, initiator, acknowledge);
  parameters.receiver_not_ready.hold_bytes = plan_.unreliable ? 0 : device_.hold_bytes();
  parameters.unreliable = plan_.unreliable;
  parameters.to_itself = to_itself();
  parameters.peer = peer;
  parameters.control_stag = plan_.control_stag;
  // Called without this lock: the queue pair's lock comes before it.
  if (queue_pair->attach_pair(std::move(stream), parameters, *this) != ENOMEM) return;
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::paired) try_again(limits::longest_redial_ns);
}

void Pairing::on_request(const std::shared_ptr<InboundHandshake>& inbound, const Hello& request) {
  // judge() has changed the phase where it accepts, so no other request can be accepted meanwhile.
  const HelloAnswer answer = judge(*inbound, request);
  if (answer != HelloAnswer::accepted) {
    count(device_.refusals(), answer);
    inbound->reject(bytes_of(refusal_of(request, answer)));
    return;
  }
  std::unique_lock lock(mutex_);
  const Hello reply = hello(request.generation);
  lock.unlock();
  const int failed = inbound->accept(
      limits::max_wire_read_depth, limits::max_wire_read_depth, bytes_of(reply),
      [weak = weak_from_this(), weak_inbound = std::weak_ptr(inbound),
       peer = features_of(request)](StreamSocket stream) {
        const auto self = weak.lock();
        const auto answered = weak_inbound.lock();
        if (!self || !answered) return;
        self->on_accepted(std::move(stream), answered->handshake().negotiated(), peer);
      });
  // The peer has given up in the meantime. An invalid stream starts the next attempt.
  if (failed != 0) on_accepted(StreamSocket(), {}, {});
}

// With the lock held. Programs exchange PSNs out of band, so a host that names the right ones is
// the peer or has overheard them; adapters ignore packets with other PSNs as well. Until both ends
// are ready to send, one of the two numbers may be missing. A request with neither is not accepted.
Pairing::Proof Pairing::verify(const Hello& hello) const {
  const bool sends = (hello.capabilities & Hello::has_send_psn) != 0;
  if (sends && hello.send_psn != (plan_.receive_psn & psn_mask)) return Proof::wrong;
  if (send_psn_ && hello.receive_psn != *send_psn_) return Proof::wrong;
  return sends || send_psn_ ? Proof::right : Proof::none;
}

HelloAnswer Pairing::judge(const InboundHandshake& inbound, const Hello& hello) {
  const PairingEnd source{gid_of(inbound.ends().remote), hello.source_qpn};
  const std::lock_guard lock(mutex_);
  if (hidden_until_ns_ == hidden_for_ever) return HelloAnswer::refused;
  if (hidden_until_ns_ != 0 && sys::now_ns() < hidden_until_ns_) return HelloAnswer::not_yet;
  const bool ended = phase_ == Phase::lost || phase_ == Phase::over;
  const bool unreliable = (hello.capabilities & Hello::unreliable) != 0;
  // The address is that of the TCP connection, which cannot be forged as easily as a number in a
  // hello.
  if (ended || !(source == plan_.peer) || unreliable != plan_.unreliable ||
      hello.extended() != opposite_of(plan_.extended)) {
    return HelloAnswer::refused;
  }
  // Before anything is changed: an impostor may name any generation.
  const Proof proof = verify(hello);
  if (proof == Proof::wrong) ++device_.refusals().wrong_psn;
  if (proof != Proof::right) {
    if (proof == Proof::none) yields_ = false;  // it has asked
    return proof == Proof::wrong ? HelloAnswer::refused : HelloAnswer::not_yet;
  }
  // A request that was delayed on its way, of an attempt that the peer has given up since.
  if (peer_generation_ && is_older(hello.generation, *peer_generation_)) {
    return HelloAnswer::refused;
  }
  peer_generation_ = hello.generation;
  // A live connection is never replaced, or an attacker with the right numbers could take it over.
  if (phase_ == Phase::paired || phase_ == Phase::accepting) return HelloAnswer::refused;
  if (phase_ == Phase::dialing) {
    // Of two requests that cross, the lower end's counts. It takes the other's all the same where
    // its own has not left yet: perhaps it never will arrive.
    const bool ours_counts = plan_.local < plan_.peer;
    if (ours_counts && !dialer_->cancel_unless_asked()) return HelloAnswer::crossed;
    if (!ours_counts) dialer_->cancel();
  }
  // Makes a report of the cancelled dialer a late one.
  ++attempt_;
  dialer_.reset();
  phase_ = Phase::accepting;
  return HelloAnswer::accepted;
}

void Pairing::on_accepted(StreamSocket stream, const iwarp::Negotiated& negotiated,
                          const iwarp::PeerFeatures& peer) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::accepting) return;
    // The reply could not be sent.
    if (!stream.valid()) return try_again(limits::shortest_redial_ns);
    phase_ = Phase::paired;
  }
  hand_over(std::move(stream), negotiated, peer, false);
}

void answer_request(Device& device, const std::shared_ptr<InboundHandshake>& inbound,
                    const Hello& hello) {
  // Also for numbers that do not exist: an unknown host must not learn which ones do.
  HelloAnswer answer = HelloAnswer::refused;
  if (!hello.has_known_version()) {
    answer = HelloAnswer::bad_version;
  } else if (const auto queue_pair = device.find_queue_pair(hello.destination_qpn)) {
    const auto [state, pairing] = queue_pair->asked_by_peer();
    if (pairing) return pairing->on_request(inbound, hello);
    const bool not_yet = state == IBV_QPS_RESET || state == IBV_QPS_INIT;
    if (not_yet) answer = HelloAnswer::not_yet;
  }
  count(device.refusals(), answer);
  inbound->reject(bytes_of(refusal_of(hello, answer)));
}

// InfiniBand's own unit: 4.096 µs times a power of two, for each of 1 + retry_count attempts.
std::uint64_t retry_time_ns(std::uint8_t timeout, std::uint8_t retry_count,
                            std::uint64_t least_ns) {
  // ibv_modify_qp(3): 0 is an infinite timeout.
  if (timeout == 0) return 0;
  constexpr std::uint64_t unit_ns = 4096;
  const std::uint64_t attempts = retry_count + std::uint64_t{1};
  return std::max((unit_ns << (timeout & 31U)) * attempts, least_ns);
}

}  // namespace weft::device
