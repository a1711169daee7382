#include "support/pair.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/pump.h"

namespace weft::test {

using iwarp::Connection;
using iwarp::Requester;

void Endpoint::connect(const Connection::Options& options) {
  connection_ = std::make_unique<Connection>(options, host);
}

void Endpoint::start(const iwarp::HandshakeOptions& handshake) {
  if (options_.initiator) {
    active_.emplace(handshake, Bytes());
  } else {
    passive_.emplace(handshake);
  }
}

const iwarp::Handshake* Endpoint::handshake() const {
  if (active_) return &*active_;
  return passive_ ? &*passive_ : nullptr;
}

Requester::Posted Endpoint::try_post(iwarp::WorkRequest request,
                                     std::initializer_list<iwarp::LocalSlice> slices) {
  request.slices = {slices.begin(), slices.size()};
  return connection_->post(request);
}

void Endpoint::post(iwarp::WorkRequest request, std::initializer_list<iwarp::LocalSlice> slices) {
  EXPECT_EQ(try_post(request, slices), Requester::Posted::ok);
}

void Endpoint::post_receive(std::uint64_t wr_id, std::initializer_list<iwarp::LocalSlice> slices) {
  host.post_receive(wr_id, slices);
  if (connection_) connection_->receives_posted(now_ns_);
}

std::vector<iwarp::Status> Endpoint::send_statuses() const {
  std::vector<iwarp::Status> statuses;
  for (const auto& completion : host.sends) statuses.push_back(completion.status);
  return statuses;
}

std::vector<std::uint64_t> Endpoint::send_ids() const {
  std::vector<std::uint64_t> ids;
  for (const auto& completion : host.sends) ids.push_back(completion.wr_id);
  return ids;
}

Bytes Endpoint::shake_hands(Bytes bytes) {
  iwarp::Handshake* handshake = active_ ? static_cast<iwarp::Handshake*>(&*active_)
                                        : static_cast<iwarp::Handshake*>(&*passive_);
  while (!bytes.empty() && handshake->wanted_bytes() > 0) {
    const auto part = bytes.first(std::min(bytes.size(), handshake->wanted_bytes()));
    handshake->input(part);
    bytes = bytes.subspan(part.size());
  }
  if (passive_ && passive_->requested() && !passive_->accepted()) passive_->accept(17, 17, {});
  finish_handshake();
  return bytes;
}

// FPDUs may follow once both MPA frames have arrived.
void Endpoint::finish_handshake() {
  const bool agreed = (active_ && active_->accepted()) || (passive_ && passive_->accepted());
  if (!agreed || connection_ || !handshake()->output().empty()) return;
  connect(after_handshake(options_, handshake()->negotiated()));
  const auto early = std::move(early_);
  if (!early.empty()) receive(early);
}

void Endpoint::receive(Bytes bytes) {
  if (!connection_) bytes = shake_hands(bytes);
  if (connection_) {
    (void)feed(*connection_, bytes, now_ns_);
  } else {
    early_.insert(early_.end(), bytes.begin(), bytes.end());
  }
}

void Endpoint::receive_end() {
  if (active_ && !connection_) active_->input_closed();
  if (passive_ && !connection_) passive_->input_closed();
  if (!connection_) return;
  const std::uint64_t delivered = out_.delivered_bytes();
  connection_->peer_closed(delivered - std::min(delivered, handshake_bytes_));
}

void Endpoint::tell_time(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (connection_ && connection_->deadline_ns() <= now_ns) connection_->on_time(now_ns);
}

std::uint64_t Endpoint::deadline_ns() const {
  return connection_ ? connection_->deadline_ns() : Link::never;
}

bool Endpoint::transmit_handshake(std::uint64_t now_ns) {
  iwarp::Handshake* handshake = active_ ? static_cast<iwarp::Handshake*>(&*active_)
                                        : static_cast<iwarp::Handshake*>(&*passive_);
  const std::size_t taken = out_.send(now_ns, handshake->output());
  handshake->output_done(taken);
  handshake_bytes_ += taken;
  finish_handshake();
  return taken > 0;
}

bool Endpoint::transmit(std::uint64_t now_ns) {
  if (!connection_) return handshake() != nullptr && transmit_handshake(now_ns);
  bool sent = false;
  for (;;) {
    const std::size_t room = out_.room();
    const auto bytes = peek(*connection_, room);
    if (room == 0) return sent;
    if (bytes.empty()) break;
    sent = true;
    connection_->sent(out_.send(now_ns, bytes));
  }
  if (connection_->drained()) out_.close(now_ns);
  return sent;
}

Pair::Pair(const PairOptions& options) : a(options.a, a_to_b), b(options.b, b_to_a) {
  if (options.handshake) {
    a.start(options.active);
    b.start(options.passive);
  } else {
    a.connect(options.a);
    b.connect(options.b);
  }
}

void Pair::at(std::uint64_t time_ns, std::function<void()> action) {
  actions_.emplace(time_ns, std::move(action));
}

std::uint64_t Pair::next_ns() const {
  const std::uint64_t action = actions_.empty() ? Link::never : actions_.begin()->first;
  return std::min({a_to_b.next_ns(), b_to_a.next_ns(), a.deadline_ns(), b.deadline_ns(), action});
}

void Pair::transmit() {
  a.tell_time(now_ns_);
  b.tell_time(now_ns_);
  a.transmit(now_ns_);
  b.transmit(now_ns_);
}

void Pair::deliver(Link& link, Endpoint& to, std::uint64_t now_ns) {
  const auto batch = link.take(now_ns);
  to.tell_time(now_ns);
  if (!batch) return;
  if (!batch->bytes.empty()) to.receive(batch->bytes);
  if (batch->end) to.receive_end();
}

bool Pair::step() {
  transmit();
  const std::uint64_t next = next_ns();
  if (next == Link::never) return false;
  now_ns_ = std::max(now_ns_, next);
  if (!actions_.empty() && actions_.begin()->first <= now_ns_) {
    const auto action = std::move(actions_.begin()->second);
    actions_.erase(actions_.begin());
    action();
  }
  deliver(a_to_b, b, now_ns_);
  deliver(b_to_a, a, now_ns_);
  return true;
}

void Pair::drive() {
  constexpr int most_steps = 20'000'000;
  for (int steps = 0; steps < most_steps; ++steps) {
    if (!step()) return;
  }
  ADD_FAILURE() << "the connections never come to rest";
}

PairOptions patient_pair(std::size_t hold_bytes, std::uint64_t timer_ns, std::uint8_t retries) {
  PairOptions options;
  options.a.control_stag = 0xA000'0001;
  options.b.control_stag = 0xB000'0002;
  for (auto* own : {&options.a, &options.b}) {
    const auto& other = own == &options.a ? options.b : options.a;
    own->receiver_not_ready = {.hold_bytes = hold_bytes, .timer_ns = timer_ns, .retries = retries};
    own->peer = {.send_immediate = true,
                 .control_stag = other.control_stag,
                 .hold_bytes = static_cast<std::uint32_t>(hold_bytes)};
  }
  return options;
}

}  // namespace weft::test
