// The part of IbAnalysis that assigns packets to connections.
#include <algorithm>
#include <bit>

#include "capture/infiniband/ib_analysis.h"

namespace weft::capture {
namespace {

Transport transport_of(const IbSegment& segment) {
  switch (segment.headers.bth.opcode.transport) {
    case wire::IbTransport::uc:
      return Transport::uc;
    case wire::IbTransport::xrc:
      return Transport::xrc;
    default:
      return Transport::rc;
  }
}

// Transport service types in the REQ message: 1 is UC, and 3 with the extended type 1 is XRC.
Transport transport_of(const wire::CmRequest& request) {
  if (request.transport_code == 1) return Transport::uc;
  if (request.transport_code == 3 && request.extended_transport_code == 1) return Transport::xrc;
  return Transport::rc;
}

// How much later than the traffic of its connection a message of the connection manager may be
// captured.
constexpr std::int64_t most_late_ns = 100'000'000;

bool are_opposite(const auto& one, const auto& other) {
  return one.source == other.destination && one.destination == other.source;
}

bool is_same_direction(const auto& one, const auto& other) {
  return one.source == other.source && one.destination == other.destination;
}

// How many matches join two directions, if nothing speaks against it, and if others are similar.
constexpr std::size_t few_matches = 4;
constexpr std::size_t enough_matches = 16;

// Returns whether the other direction is looked for after this number of responses: rarely when the
// first ones have not decided it, because each search goes through all `flows` that wait. If these
// are many, it is looked for only when there may be enough matches.
bool is_decision_point(std::size_t answers, std::size_t flows) {
  constexpr std::size_t many_flows = 256;
  if (answers > enough_matches || flows >= many_flows) {
    return answers >= few_matches && answers != 2 * few_matches && std::has_single_bit(answers);
  }
  return true;
}

// The field for private data has a fixed size, so zeros at its end carry no information.
std::vector<std::byte> without_trailing_zeros(Bytes bytes) {
  while (!bytes.empty() && bytes.back() == std::byte{0}) bytes = bytes.first(bytes.size() - 1);
  return {bytes.begin(), bytes.end()};
}

template <typename Message>
Connection::Offer offer_of(const Message& message, Bytes private_data) {
  return {.seen = true,
          .has_depths = true,
          .ird = message.responder_resources,
          .ord = message.initiator_depth,
          .private_data = without_trailing_zeros(private_data)};
}

}  // namespace

// InfiniBand connections always have an ICRC.
IbConnection& IbAnalysis::add_connection(Connection connection) {
  connection.crc = true;
  Connection& entry = table_.add(std::move(connection));
  return connections_.get(entry.id, shared_, entry).connection;
}

// Finds the connection of the packet's flow, or stores the packet until it is known.
void IbAnalysis::on_connected(const FlowKey& key, const PacketPath& path,
                              const IbSegment& segment) {
  Flow& flow = flows_[key];
  if (flow.connection && !flow.connection->plausible(flow.side, segment)) {
    pass_on_undecided(flow);
    flow = {};  // another queue pair uses the same number now
  }
  if (flow.connection && restarts(key, path, segment, flow)) return;
  const bool more_evidence = flow.evidence && flow.evidence->add(segment);
  const std::size_t waiting = unpaired_.size() + undecided_.size();
  if (more_evidence && is_decision_point(flow.evidence->answers(), waiting)) {
    join(key, flow, false);
  }
  if (!flow.connection && !begin_alone(key, flow, segment)) {
    if (hold(key, flow, segment)) return;
    if (!join(key, flow, true)) give_up_joining(key, flow, segment);
  } else if (flow.waits) {
    if (hold(key, flow, segment)) return;
    join(key, flow, true);
    flow.waits = false;
  }
  // The requester sends again from here on.
  if (!segment.is_answer() && flow.connection->has_requested(flow.side, segment.psn())) {
    copies_.begin_anew();
  }
  if (!flow.undecided.empty()) pass_on_undecided(flow);
  flow.path.see(path, [&](const PathChange& change) {
    sink_.on_path_change(flow.connection->origin(flow.side, segment.stamp), change);
  });
  flow.connection->on_packet(flow.side, segment);
}

bool IbAnalysis::restarts(const FlowKey& key, const PacketPath& path, const IbSegment& segment,
                          Flow& flow) {
  constexpr std::size_t most_held = 64;
  Connected& connected = *connections_.find(flow.connection->connection().id);
  const auto verdict = flow.connection->restart(flow.side, segment);
  if (verdict == IbConnection::Restart::perhaps && connected.of_restart.size() < most_held) {
    HeldIbSegment held(segment);
    if (shared_.budget.take(held.bytes())) {
      connected.of_restart.push_back({key, path, std::move(held)});
      return true;
    }
  }
  const bool another = verdict == IbConnection::Restart::yes;
  release_restart(connected, another);
  if (another) on_connected(key, path, segment);
  return another;
}

void IbAnalysis::release_restart(Connected& connected, bool another) {
  connected.connection.end_restart();
  if (connected.of_restart.empty() && !another) return;
  const std::vector<HeldPacket> waiting = std::exchange(connected.of_restart, {});
  if (another) begin_again(connected);
  for (const HeldPacket& one : waiting) {
    shared_.budget.give_back(one.segment.bytes());
    if (another) {
      on_connected(one.key, one.path, one.segment.get());
      continue;
    }
    const auto found = flows_.find(one.key);
    if (found == flows_.end() || found->second.connection != &connected.connection) continue;
    connected.connection.on_packet(found->second.side, one.segment.get());
  }
}

// The queue pair numbers of the connection belong to another one from now on.
void IbAnalysis::begin_again(const Connected& connected) {
  for (const FlowKey& one : connected.flows) {
    const auto found = flows_.find(one);
    if (found == flows_.end() || found->second.connection != &connected.connection) continue;
    pass_on_undecided(found->second);
    found->second = {};
  }
}

bool IbAnalysis::awaits_reply(const FlowKey& key) const {
  return manager_.awaits_reply(key.source, key.destination) ||
         manager_.awaits_reply(key.destination, key.source);
}

// Begins a connection with one known direction, unless a connection in the opposite direction lacks
// its second one, which may be this flow. Requests of UC are never answered.
bool IbAnalysis::begin_alone(const FlowKey& key, Flow& flow, const IbSegment& segment) {
  const bool unreliable = segment.headers.bth.opcode.transport == wire::IbTransport::uc;
  const bool candidates =
      std::ranges::any_of(unpaired_, [&](const auto& one) { return are_opposite(one.key, key); });
  if (segment.is_answer() || (candidates && !unreliable) || awaits_reply(key)) return false;
  begin_unpaired(key, flow, segment);
  flow.waits = !unreliable;
  return true;
}

// Keeps the one with the fewest doubts, and the number of doubts of the next one.
void IbAnalysis::Candidates::add(const FlowKey& key, const IbEvidence::Fit& fit) {
  if (fit.matches == 0) {
    without_match = true;
  } else if (!best || fit.doubts < best_fit.doubts) {
    if (best) second_doubts = best_fit.doubts;
    best = key;
    best_fit = fit;
  } else {
    second_doubts = std::min(second_doubts.value_or(fit.doubts), fit.doubts);
  }
}

// Compares the opposite flows with this one. Stops as soon as two fit so well that nothing can be
// decided: where many queue pairs have the same traffic, all of them would fit.
void IbAnalysis::compare(const FlowKey& key, const Flow& flow, bool at_end,
                         Candidates& found) const {
  const auto consider = [&](const FlowKey& one_key) {
    if (!are_opposite(one_key, key)) return;
    const Flow& one = flows_.at(one_key);
    if (!one.evidence || &one == &flow || (flow.connection && one.connection)) return;
    if (!flow.evidence->may_fit(*one.evidence)) return;
    IbEvidence::Fit fit = flow.evidence->fit(*one.evidence);
    fit += one.evidence->fit(*flow.evidence);
    if (fit.conflicts == 0) found.add(one_key, fit);
  };
  for (const Unpaired& one : unpaired_) {
    consider(one.key);
    if (found.undecidable(at_end)) return;
  }
  for (const FlowKey& one : undecided_) {
    consider(one);
    if (found.undecidable(at_end)) return;
  }
}

// Returns whether another flow in the same direction could be taken for this one.
bool IbAnalysis::has_rival(const FlowKey& key, const Flow& flow) const {
  const auto rivals = [&](const FlowKey& one_key) {
    if (!is_same_direction(one_key, key)) return false;
    const Flow& one = flows_.at(one_key);
    return one.evidence && &one != &flow && flow.evidence->resembles(*one.evidence);
  };
  return std::ranges::any_of(unpaired_, rivals, &Unpaired::key) ||
         std::ranges::any_of(undecided_, rivals);
}

// Returns the opposite flow that fits. Another one may begin late in a capture that is out of
// order, so a number of matches is required, and more if PSNs of others are close. If others fit as
// well, nothing is decided before the end of the waiting time: the requests of the right one were
// captured before their responses then, and those of the others not.
std::optional<IbAnalysis::FlowKey> IbAnalysis::partner(const FlowKey& key, const Flow& flow,
                                                       bool at_end) const {
  Candidates found;
  compare(key, flow, at_end, found);
  if (!found.best || found.undecidable(at_end)) return {};
  if (found.second_doubts) {
    return *found.second_doubts > found.best_fit.doubts * 4 ? found.best : std::nullopt;
  }
  const std::size_t matches = found.best_fit.matches;
  if (at_end || matches >= enough_matches) return found.best;
  const bool decided = matches >= few_matches && !found.without_match && !has_rival(key, flow);
  return decided ? found.best : std::nullopt;
}

bool IbAnalysis::join(const FlowKey& key, Flow& flow, bool at_end) {
  if (!flow.evidence) return false;
  const auto found = partner(key, flow, at_end);
  if (found) unite(key, flow, *found);
  return found.has_value();
}

// Joins two flows, of which one at most has a connection.
void IbAnalysis::unite(const FlowKey& key, Flow& flow, const FlowKey& other_key) {
  Flow& opposite = flows_.at(other_key);
  if (flow.connection) {
    attach(other_key, opposite, *flow.connection, other(flow.side));
  } else if (opposite.connection) {
    attach(key, flow, *opposite.connection, other(opposite.side));
  } else {
    const auto frame = [](const Flow& one) {
      return one.undecided.empty() ? ~std::uint64_t{0} : one.undecided.front().get().stamp.frame;
    };
    const bool is_first = frame(flow) < frame(opposite);
    Flow& first = is_first ? flow : opposite;
    Flow& second = is_first ? opposite : flow;
    begin_unpaired(is_first ? key : other_key, first, first.undecided.front().get());
    attach(is_first ? other_key : key, second, *first.connection, other(first.side));
  }
  pass_on_undecided(flow, opposite);
}

// Each decision leaves less to choose from for the others.
void IbAnalysis::join_all_at_end() {
  bool joined = true;
  while (joined) {
    joined = false;
    std::vector<FlowKey> keys = undecided_;
    for (const Unpaired& one : unpaired_) keys.push_back(one.key);
    for (const FlowKey& key : keys) joined |= join(key, flows_.at(key), true);
  }
}

// Makes the flow a direction of the connection, and remembers it for forget().
void IbAnalysis::bind(const FlowKey& key, Flow& flow, IbConnection& connection, Side side) {
  flow.connection = &connection;
  flow.side = side;
  connections_.find(connection.connection().id)->flows.push_back(key);
}

// Joins the second direction; the connection is complete then.
void IbAnalysis::attach(const FlowKey& key, Flow& flow, IbConnection& connection, Side side) {
  IbConnection* const before = flow.connection;
  bind(key, flow, connection, side);
  if (before && before != &connection) withdraw_if_empty(*before);
  std::erase_if(unpaired_, [&](const Unpaired& one) { return one.connection == &connection; });
  std::erase(undecided_, key);
  for (const FlowKey& one : connections_.find(connection.connection().id)->flows) {
    const auto found = flows_.find(one);
    const bool is_mine = found != flows_.end() && found->second.connection == &connection;
    if (is_mine) end_search(found->second);
  }
  // The packets of this flow name the queue pair of their receiver.
  Connection& known = connection.connection();
  Endpoint& receiver = side == Side::a ? known.b : known.a;
  receiver = {.address = key.destination, .number = key.queue_pair};
  // The reply was not captured, but traffic shows that there was one.
  if (known.end == Connection::End::unanswered) known.end = Connection::End::open;
}

// All packets of this direction waited, and belong to the connection that it was just joined to.
void IbAnalysis::withdraw_if_empty(IbConnection& connection) {
  const Connection& known = connection.connection();
  if (known.frames > 0) return;
  std::erase_if(unpaired_, [&](const Unpaired& one) { return one.connection == &connection; });
  const ConnectionId id = known.id;
  connections_.erase(id);
  table_.withdraw(id);
}

// Begins a connection of which only this direction is known. Its own queue pair number is unknown,
// because packets name only the receiver's.
void IbAnalysis::begin_unpaired(const FlowKey& key, Flow& flow, const IbSegment& segment) {
  IbConnection& connection =
      add_connection({.transport = transport_of(segment),
                      .a = {.address = key.source, .known = false},
                      .b = {.address = key.destination, .number = key.queue_pair},
                      .beginning = Connection::Beginning::traffic});
  bind(key, flow, connection, Side::a);
  std::erase(undecided_, key);
  add_unpaired({key, &connection, Side::a});
}

void IbAnalysis::end_search(Flow& flow) {
  flow.evidence.reset();
  flow.waits = false;
}

// Stores a packet of an undecided flow, within the limits on flows, packets and memory.
bool IbAnalysis::hold(const FlowKey& key, Flow& flow, const IbSegment& segment) {
  HeldIbSegment held(segment);
  const bool first = flow.undecided.empty() && !flow.connection;
  if (first && undecided_.size() == limits_.undecided_flows) return false;
  if (flow.undecided.size() == limits_.undecided_packets) return false;
  if (!shared_.budget.take(held.bytes())) return false;
  if (first) undecided_.push_back(key);
  flow.undecided.push_back(std::move(held));
  if (flow.connection) flow.connection->connection().last = segment.stamp;
  return true;
}

void IbAnalysis::give_up_joining(const FlowKey& key, Flow& flow, const IbSegment& segment) {
  begin_unpaired(key, flow, flow.undecided.empty() ? segment : flow.undecided.front().get());
  pass_on_undecided(flow);
}

void IbAnalysis::add_unpaired(const Unpaired& one) {
  if (unpaired_.size() == limits_.alone) {
    const auto oldest = flows_.find(unpaired_.front().key);
    if (oldest != flows_.end()) {
      end_search(oldest->second);
      if (oldest->second.connection) pass_on_undecided(oldest->second);
    }
    unpaired_.pop_front();
  }
  unpaired_.push_back(one);
}

// Processes the waiting packets of a flow that now has a connection.
void IbAnalysis::pass_on_undecided(Flow& flow) {
  const std::vector<HeldIbSegment> waiting(std::move(flow.undecided));
  flow.undecided.clear();
  for (const HeldIbSegment& one : waiting) {
    shared_.budget.give_back(one.bytes());
    flow.connection->on_packet(flow.side, one.get());
  }
}

// The same for the two directions of a connection, in the order of the capture.
void IbAnalysis::pass_on_undecided(Flow& one, Flow& other) {
  const std::vector<HeldIbSegment> of_one(std::move(one.undecided));
  const std::vector<HeldIbSegment> of_other(std::move(other.undecided));
  one.undecided.clear();
  other.undecided.clear();
  const auto pass_on = [&](Flow& flow, const HeldIbSegment& held) {
    shared_.budget.give_back(held.bytes());
    flow.connection->on_packet(flow.side, held.get());
  };
  auto at = of_one.begin();
  for (const HeldIbSegment& next : of_other) {
    const std::uint64_t frame = next.get().stamp.frame;
    for (; at != of_one.end() && at->get().stamp.frame < frame; ++at) pass_on(one, *at);
    pass_on(other, next);
  }
  for (; at != of_one.end(); ++at) pass_on(one, *at);
}

void IbAnalysis::drop_undecided(const FlowKey& key, Flow& flow, std::int64_t time_ns) {
  const auto first_left = std::ranges::find_if(
      flow.undecided, [&](const auto& one) { return one.get().stamp.time_ns >= time_ns; });
  for (auto one = flow.undecided.begin(); one != first_left; ++one) {
    shared_.budget.give_back(one->bytes());
  }
  flow.undecided.erase(flow.undecided.begin(), first_left);
  std::erase(undecided_, key);
}

// --- The connection manager ----------------------------------------------------------------------

// A capture that is out of order may hold the traffic of a connection before its REQ.
IbConnection* IbAnalysis::requested_late(const Flow& flow, const IbManager::Request& request) {
  if (!flow.connection) return nullptr;
  const Connection& known = flow.connection->connection();
  if (known.beginning != Connection::Beginning::traffic || known.frames == 0) return nullptr;
  const std::uint32_t psn = request.message.starting_psn;
  const bool recent = known.first.time_ns >= request.envelope.stamp.time_ns - most_late_ns;
  const bool belongs = (recent && flow.connection->may_begin(flow.side, psn)) ||
                       flow.connection->begins_with(flow.side, psn);
  return belongs ? flow.connection : nullptr;
}

// A REQ names the queue pair of the active side, so packets to it belong to side b of this
// connection.
IbConnection& IbAnalysis::on_request(const IbManager::Request& request) {
  const HostAddress& active = request.envelope.source;
  const HostAddress& passive = request.envelope.destination;
  const FlowKey key{passive, active, request.message.local_qp};
  Flow& flow = flows_[key];
  if (IbConnection* const late = requested_late(flow, request)) {
    late->set_active(other(flow.side));
    late->count(request.envelope.stamp);
    late->begin(flow.side, request.message.starting_psn);
    Connection& known = late->connection();
    known.beginning = Connection::Beginning::handshake;
    known.offer(late->active()) = offer_of(request.message, request.private_data);
    late->set_mtu(request.message.path_mtu_bytes());
    return *late;
  }
  IbConnection& connection =
      add_connection({.transport = transport_of(request.message),
                      .a = {.address = active, .number = request.message.local_qp},
                      .b = {.address = passive, .known = false},
                      .end = Connection::End::unanswered,
                      .offer_a = offer_of(request.message, request.private_data),
                      .mtu_bytes = request.message.path_mtu_bytes(),
                      .answer_within_ns = request.message.answer_within_ns()});
  connection.count(request.envelope.stamp);
  connection.begin(Side::b, request.message.starting_psn);
  // What is older was sent before this connection was requested.
  drop_undecided(key, flow, request.envelope.stamp.time_ns - most_late_ns);
  bind(key, flow, connection, Side::b);
  add_unpaired({key, &connection, Side::b});
  return connection;
}

// A REP names the queue pair of the passive side, which completes the connection.
void IbAnalysis::on_established(IbConnection& connection, const IbManager::Reply& reply) {
  Connection& known = connection.connection();
  const Side active = connection.active();
  const Endpoint& passive = known.endpoint(other(active));
  known.offer(other(active)) = offer_of(reply.message, reply.private_data);
  connection.begin(active, reply.message.starting_psn);
  const FlowKey key{known.endpoint(active).address, passive.address, reply.message.local_qp};
  Flow& flow = flows_[key];
  attach(key, flow, connection, active);
  const auto back = flows_.find({key.destination, key.source, known.endpoint(active).number});
  if (back != flows_.end() && back->second.connection == &connection) {
    pass_on_undecided(flow, back->second);
  } else {
    pass_on_undecided(flow);
  }
}

}  // namespace weft::capture
