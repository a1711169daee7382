// The part of IbAnalysis that assigns packets to connections.
#include <algorithm>

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
void IbAnalysis::on_connected(const FlowKey& key, const IbSegment& segment) {
  Flow& flow = flows_[key];
  if (flow.connection && !flow.connection->plausible(flow.side, segment)) {
    flow = {};  // another queue pair uses the same number now
  }
  if (!flow.connection && !join(key, flow, segment)) {
    if (hold(key, flow, segment)) return;
    give_up_joining(key, flow, segment);
  }
  // The requester sends again from here on.
  if (!segment.is_answer() && flow.connection->has_requested(flow.side, segment.psn())) {
    copies_.begin_anew();
  }
  if (!flow.undecided.empty()) pass_on_undecided(flow);
  if (segment.is_answer()) decide_others(key, *flow.connection, flow.side, segment);
  flow.connection->on_packet(flow.side, segment);
}

bool IbAnalysis::awaits_reply(const FlowKey& key) const {
  return manager_.awaits_reply(key.source, key.destination) ||
         manager_.awaits_reply(key.destination, key.source);
}

// Joins a flow without connection to a known one, or begins a connection with one known direction.
// Returns false if a later packet may still decide.
bool IbAnalysis::join(const FlowKey& key, Flow& flow, const IbSegment& segment) {
  if (const Unpaired* found = match(key, flow, segment)) {
    attach(key, flow, *found->connection, other(found->side));
    return true;
  }
  // The other direction may be one of the candidates; a response will show which one.
  const bool unreliable = segment.headers.bth.opcode.transport == wire::IbTransport::uc;
  const bool candidates = std::ranges::any_of(unpaired_, [&](const auto& one) {
    return one.key.source == key.destination && one.key.destination == key.source;
  });
  if (segment.is_answer() || (candidates && !unreliable) || awaits_reply(key)) return false;
  begin_unpaired(key, flow, segment);
  return true;
}

// Returns the only connection in the opposite direction with requests that this flow answers, by
// this packet or by a waiting one. If there is more than one, for instance because two queue pairs
// began with the same PSN, the only one with requests for all of its answers. Returns nullptr if
// there is none or still more than one: later answers may decide.
const IbAnalysis::Unpaired* IbAnalysis::match(const FlowKey& key, const Flow& flow,
                                              const IbSegment& segment) const {
  const Unpaired* answers_some = nullptr;
  const Unpaired* answers_all = nullptr;
  std::size_t some = 0;
  std::size_t all = 0;
  for (const Unpaired& one : unpaired_) {
    if (one.key.source != key.destination || one.key.destination != key.source) continue;
    std::size_t answered = 0;
    std::size_t answers = 0;
    const auto count = [&](const IbSegment& packet) {
      if (!packet.is_answer()) return;
      ++answers;
      if (one.connection->has_requested(one.side, packet.psn())) ++answered;
    };
    count(segment);
    for (const HeldIbSegment& packet : flow.undecided) count(packet.get());
    if (answered == 0) continue;
    ++some;
    answers_some = &one;
    if (answered < answers) continue;
    ++all;
    answers_all = &one;
  }
  if (some == 1) return answers_some;
  return all == 1 ? answers_all : nullptr;
}

// Looks for an undecided flow with the request that `answer` responds to. It must be the only one.
void IbAnalysis::decide_others(const FlowKey& key, IbConnection& connection, Side side,
                               const IbSegment& answer) {
  if (undecided_.empty()) return;
  const bool is_unpaired = std::ranges::any_of(
      unpaired_, [&](const Unpaired& one) { return one.connection == &connection; });
  if (!is_unpaired) return;
  const FlowKey* found = nullptr;
  for (const FlowKey& candidate : undecided_) {
    if (candidate.source != key.destination || candidate.destination != key.source) continue;
    const auto& waiting = flows_[candidate].undecided;
    const bool requested = std::ranges::any_of(waiting, [&](const HeldIbSegment& one) {
      return !one.get().is_answer() && one.get().psn() == answer.psn();
    });
    if (!requested) continue;
    if (found) return;
    found = &candidate;
  }
  if (!found) return;
  const FlowKey other_key = *found;
  Flow& flow = flows_[other_key];
  attach(other_key, flow, connection, other(side));
  pass_on_undecided(flow);
}

// Makes the flow a direction of the connection, and remembers it for forget().
void IbAnalysis::bind(const FlowKey& key, Flow& flow, IbConnection& connection, Side side) {
  flow.connection = &connection;
  flow.side = side;
  connections_.find(connection.connection().id)->flows.push_back(key);
}

// Joins the second direction; the connection is complete then.
void IbAnalysis::attach(const FlowKey& key, Flow& flow, IbConnection& connection, Side side) {
  bind(key, flow, connection, side);
  std::erase_if(unpaired_, [&](const Unpaired& one) { return one.connection == &connection; });
  std::erase(undecided_, key);
  // The packets of this flow name the queue pair of their receiver.
  Connection& known = connection.connection();
  Endpoint& receiver = side == Side::a ? known.b : known.a;
  receiver = {.address = key.destination, .number = key.queue_pair};
  // The reply was not captured, but traffic shows that there was one.
  if (known.end == Connection::End::unanswered) known.end = Connection::End::open;
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

// Stores a packet of an undecided flow, within the limits on flows, packets and memory.
bool IbAnalysis::hold(const FlowKey& key, Flow& flow, const IbSegment& segment) {
  HeldIbSegment held(segment);
  const bool first = flow.undecided.empty();
  if (first && undecided_.size() == limits_.undecided_flows) return false;
  if (flow.undecided.size() == limits_.undecided_packets) return false;
  if (!shared_.budget.take(held.bytes())) return false;
  if (first) undecided_.push_back(key);
  flow.undecided.push_back(std::move(held));
  return true;
}

void IbAnalysis::give_up_joining(const FlowKey& key, Flow& flow, const IbSegment& segment) {
  begin_unpaired(key, flow, flow.undecided.empty() ? segment : flow.undecided.front().get());
  pass_on_undecided(flow);
}

void IbAnalysis::add_unpaired(const Unpaired& one) {
  if (unpaired_.size() == limits_.alone) unpaired_.pop_front();
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

void IbAnalysis::drop_undecided(const FlowKey& key, Flow& flow) {
  for (const HeldIbSegment& one : flow.undecided) shared_.budget.give_back(one.bytes());
  flow.undecided.clear();
  std::erase(undecided_, key);
}

// --- The connection manager ----------------------------------------------------------------------

// A REQ names the queue pair of the active side, so packets to it belong to side b of this
// connection.
IbConnection& IbAnalysis::on_request(const IbManager::Request& request) {
  const HostAddress& active = request.envelope.source;
  const HostAddress& passive = request.envelope.destination;
  IbConnection& connection =
      add_connection({.transport = transport_of(request.message),
                      .a = {.address = active, .number = request.message.local_qp},
                      .b = {.address = passive, .known = false},
                      .end = Connection::End::unanswered,
                      .offer_a = offer_of(request.message, request.private_data),
                      .mtu_bytes = request.message.path_mtu_bytes()});
  connection.count(request.envelope.stamp);
  connection.begin(Side::b, request.message.starting_psn);
  const FlowKey key{passive, active, request.message.local_qp};
  Flow& flow = flows_[key];
  drop_undecided(key, flow);  // it was sent before this connection was requested
  bind(key, flow, connection, Side::b);
  add_unpaired({key, &connection, Side::b});
  return connection;
}

// A REP names the queue pair of the passive side, which completes the connection.
void IbAnalysis::on_established(IbConnection& connection, const IbManager::Reply& reply) {
  Connection& known = connection.connection();
  known.offer_b = offer_of(reply.message, reply.private_data);
  connection.begin(Side::a, reply.message.starting_psn);
  const FlowKey key{known.a.address, known.b.address, reply.message.local_qp};
  Flow& flow = flows_[key];
  attach(key, flow, connection, Side::a);
  pass_on_undecided(flow);
}

}  // namespace weft::capture
