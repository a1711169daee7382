#include "weft/capture/credit_findings.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "capture/findings/credit_accounts.h"
#include "capture/findings/credit_wire.h"
#include "capture/text/units.h"
#include "weft/capture/connection_map.hpp"

namespace weft::capture {
namespace {

using Protocol = AnnouncedCredits::Protocol;

// Kinds of frames: docs/message-protocol.md, Frames.
constexpr std::uint8_t frame_update = 3;

// Layout of the 32-bit words: docs/stream-protocol.md, Messages.
constexpr std::size_t word_bytes = 4;
constexpr std::uint32_t word_update = 1U << 31;
constexpr unsigned word_kind_shift = 28;
constexpr std::uint32_t word_data = 0;
constexpr std::uint32_t word_map = 2;
constexpr std::uint32_t word_length_mask = (1U << word_kind_shift) - 1;
constexpr unsigned word_receives_shift = 21;
constexpr std::uint32_t word_receives_mask = 0xFF;
constexpr std::uint32_t word_bytes_mask = (1U << word_receives_shift) - 1;

}  // namespace

class CreditFindings::Work {
 public:
  Work(const ConnectionTable& connections, FindingSink& sink)
      : connections_(connections), sink_(&sink) {}

  struct Sender {
    // Created by the first acknowledgement with credits.
    std::unique_ptr<EndToEndCredits> end_to_end;
    AnnouncedCredits announced;
  };
  struct State {
    Protocol protocol = Protocol::none;
    bool lost = false;  // packets were lost, so the credits are unknown
    std::array<Sender, 2> senders;

    [[nodiscard]] Sender& of(Side side) { return senders[side == Side::a ? 0 : 1]; }
  };

  State& state(ConnectionId id);
  static void request(State& state, const Origin& origin, bool first, bool last,
                      bool takes_receive);
  static void frame(State& state, const Origin& origin, Bytes bytes);
  static void word(State& state, const Origin& origin, std::uint32_t word);
  void report_all(ConnectionId id);
  void forget(ConnectionId id) { states_.erase(id); }
  void finish();
  void report_so_far(FindingSink& sink);

 private:
  void report(ConnectionId id, Side side, const CreditWatch& watch, std::string_view what);

  const ConnectionTable& connections_;
  FindingSink* sink_;
  ConnectionMap<State> states_;
};

// Creates the state at the first event. The handshake precedes the traffic, so both offers are
// known by then.
CreditFindings::Work::State& CreditFindings::Work::state(ConnectionId id) {
  if (State* known = states_.find(id)) return *known;
  State& state = states_.get(id);
  const Connection& connection = connections_[id];
  state.protocol = AnnouncedCredits::protocol_of(connection);
  if (state.protocol == Protocol::none) return state;
  state.of(Side::a).announced = AnnouncedCredits(state.protocol, connection.offer_b.private_data);
  state.of(Side::b).announced = AnnouncedCredits(state.protocol, connection.offer_a.private_data);
  return state;
}

void CreditFindings::Work::request(State& state, const Origin& origin, bool first, bool last,
                                   bool takes_receive) {
  const auto& account = state.of(origin.side).end_to_end;
  if (!account || state.lost) return;
  account->sent(origin.stamp, static_cast<std::uint32_t>(origin.position), first, last,
                takes_receive);
}

// Each frame grants credits to the other side. All frames but a pure update use one.
void CreditFindings::Work::frame(State& state, const Origin& origin, Bytes bytes) {
  if (state.lost || bytes.size() < CreditFrame::start_bytes) return;
  const auto start = CreditFrame::of(bytes);
  if (start.kind != frame_update && !state.of(origin.side).announced.sent(origin.stamp, 0))
    state.lost = true;
  state.of(other(origin.side)).announced.given(origin.stamp, start.granted, 0);
}

// A word is either an update, which grants credits, or announces data or a ring. A map uses a
// receive, but no bytes of the ring.
void CreditFindings::Work::word(State& state, const Origin& origin, std::uint32_t word) {
  if (state.lost) return;
  if ((word & word_update) != 0) {
    const std::uint32_t receives = word >> word_receives_shift & word_receives_mask;
    state.of(other(origin.side)).announced.given(origin.stamp, receives, word & word_bytes_mask);
    return;
  }
  const std::uint32_t kind = word >> word_kind_shift;
  if (kind != word_data && kind != word_map) return;
  const std::uint32_t bytes = kind == word_data ? word & word_length_mask : 0;
  if (!state.of(origin.side).announced.sent(origin.stamp, bytes)) state.lost = true;
}

void CreditFindings::Work::report(ConnectionId id, Side side, const CreditWatch& watch,
                                  std::string_view what) {
  const CreditWatch::Waits& waits = watch.waits();
  if (waits.count == 0) return;
  const Connection& connection = connections_[id];
  sink_->on_finding(
      {finding::credit_stall, id,
       fmt::format("{} had no {} left, {}, and continued when {} had granted more: it waited up "
                   "to {} in all, up to {} at a time.",
                   endpoint_text(connection, side), what, times_text(waits.count),
                   endpoint_text(connection, other(side)), duration_text(waits.total_ns),
                   duration_text(waits.longest_ns)),
       waits.stamps});
}

// The account of end-to-end credits exists only on InfiniBand, the announced one only for Weft's
// protocols.
void CreditFindings::Work::report_all(ConnectionId id) {
  State* const state = states_.find(id);
  if (state == nullptr) return;
  for (const Side side : {Side::a, Side::b}) {
    const Sender& sender = state->of(side);
    if (sender.end_to_end) report(id, side, sender.end_to_end->watch(), "end-to-end credits");
    report(id, side, sender.announced.watch(),
           state->protocol == Protocol::stream ? "room in the ring or receives"
                                               : "credits for messages");
  }
}

void CreditFindings::Work::finish() {
  for (const auto& [id, state] : states_) report_all(id);
  states_.clear();
}

void CreditFindings::Work::report_so_far(FindingSink& sink) {
  FindingSink* const own = std::exchange(sink_, &sink);
  for (const auto& [id, state] : states_) report_all(id);
  sink_ = own;
}

// --- Events --------------------------------------------------------------------------------------

CreditFindings::CreditFindings(const ConnectionTable& connections, FindingSink& sink)
    : work_(std::make_unique<Work>(connections, sink)) {}
CreditFindings::~CreditFindings() = default;

// A Send needs a receive. Only its first part can hold the frame start or the word.
void CreditFindings::on_send(const Origin& origin, const SendPart& part) {
  auto& state = work_->state(origin.connection);
  const bool first = part.offset == 0;
  Work::request(state, origin, first, part.last, first);
  if (!first) return;
  if (state.protocol == Protocol::message) Work::frame(state, origin, part.bytes);
  if (state.protocol == Protocol::stream && part.last && part.bytes.size() == word_bytes) {
    Work::word(state, origin, stream_word_of(part.bytes));
  }
}

// On InfiniBand a stream sends its word as the immediate data of a Write, which then needs a
// receive.
void CreditFindings::on_write(const Origin& origin, const WritePart& part) {
  auto& state = work_->state(origin.connection);
  const bool takes_receive = part.last && part.has_immediate;
  Work::request(state, origin, part.first, part.last, takes_receive);
  if (takes_receive && state.protocol == Protocol::stream) {
    Work::word(state, origin, part.immediate);
  }
}

// A Read or atomic counts as a message under way, but it needs no receive.
void CreditFindings::on_read_request(const Origin& origin, const ReadRequest& request) {
  if (!request.repeated) Work::request(work_->state(origin.connection), origin, true, true, false);
}

void CreditFindings::on_atomic_request(const Origin& origin, const AtomicRequest&) {
  Work::request(work_->state(origin.connection), origin, true, true, false);
}

// On iWARP the word of a stream is in an Immediate Data message.
void CreditFindings::on_immediate(const Origin& origin, const ImmediateMessage& message) {
  auto& state = work_->state(origin.connection);
  if (state.protocol != Protocol::stream || message.bytes.size() < word_bytes) return;
  Work::word(state, origin, stream_word_of(message.bytes));
}

// Credits in an acknowledgement belong to the sender of the requests, which is the other side.
void CreditFindings::on_credits(const Origin& origin, const CreditUpdate& update) {
  auto& state = work_->state(origin.connection);
  auto& account = state.of(other(origin.side)).end_to_end;
  if (state.lost) return;
  if (!account) account = std::make_unique<EndToEndCredits>();
  account->given(origin.stamp, update);
}

// Lost packets may have used or granted credits.
void CreditFindings::on_gap(const Origin& origin, const Gap&) {
  work_->state(origin.connection).lost = true;
}

void CreditFindings::on_close(ConnectionId connection) {
  work_->report_all(connection);
}

void CreditFindings::on_forget(ConnectionId connection) {
  work_->forget(connection);
}

void CreditFindings::finish() {
  work_->finish();
}

void CreditFindings::report_so_far(FindingSink& sink) {
  work_->report_so_far(sink);
}

}  // namespace weft::capture
