// Finds the peers of a datagram rsocket by rdma_cm's service resolution in the UDP port space.
#include <algorithm>

#include "dropin/datagram_socket.h"
#include "dropin/provider_table.h"
#include "dropin/rsocket.h"

namespace weft::dropin {
namespace {

// The limit of each of the two steps, resolving the address and resolving the route.
constexpr std::chrono::seconds resolve_timeout{5};
// A peer from which nothing arrived for this time is resolved again before the next send: a program
// that was restarted has another queue pair at the same port.
constexpr std::chrono::seconds max_silence{1};
// Limits the memory of a socket that sends to ever more addresses. Receiving adds no peers.
constexpr std::size_t max_peers = 1024;

}  // namespace

void DatagramSocket::connect(const DatagramAddress& peer) {
  const Lock lock(mutex_);
  connected_ = peer;
  // An error of an earlier peer is not one of the new peer.
  (void)report_error();
  // The resolution begins now, so that the first datagram has less to wait for.
  (void)need_peer(peer);
}

// Starts to resolve a peer that is new or silent. A silent one keeps its old route meanwhile.
DatagramSocket::Peer& DatagramSocket::need_peer(const DatagramAddress& address) {
  if (!peers_.contains(address)) make_room_for_peers();
  const auto [peer, is_new] = peers_.try_emplace(address);
  const bool is_silent =
      peer->second.route.address_handle && Clock::now() - peer->second.last_received > max_silence;
  if ((!is_new && !is_silent) || peer->second.resolving) return peer->second;
  try {
    resolve(peer);
  } catch (...) {
    // A new entry without a resolution would never get a route, and would keep its datagrams.
    peers_.erase(peer);
    throw;
  }
  return peer->second;
}

// Forgets the peer that was silent for the longest time; it can be resolved again.
void DatagramSocket::make_room_for_peers() {
  if (peers_.size() < max_peers) return;
  auto oldest = peers_.end();
  for (auto peer = peers_.begin(); peer != peers_.end(); ++peer) {
    // A resolution under way has datagrams that wait for it, and the connected peer is needed
    // again.
    if (peer->second.resolving || peer->first == connected_) continue;
    if (oldest == peers_.end() || peer->second.last_received < oldest->second.last_received)
      oldest = peer;
  }
  // If all peers are needed, the limit is exceeded: sending must not fail because of it.
  if (oldest != peers_.end()) peers_.erase(oldest);
}

void DatagramSocket::resolve(Peers::iterator peer) {
  peer->second.resolving.emplace(events_, RDMA_PS_UDP);
  peer->second.resolving->resolve_address(peer->first.to_text(), resolve_timeout);
}

// With mutex_ held, as all functions in this file but connect().
void DatagramSocket::take_events() {
  while (auto event = events_.next(Deadline::now())) {
    if (event->type() == RDMA_CM_EVENT_CONNECT_REQUEST) {
      accept_request(*event);
      continue;
    }
    const auto peer = std::ranges::find_if(peers_, [&](const auto& entry) {
      return entry.second.resolving && entry.second.resolving->raw() == event->id();
    });
    if (peer == peers_.end()) continue;
    try {
      handle(*event, peer);
    } catch (const Error& error) {
      event.reset();
      fail_peer(peer, error.error_number());
      continue;
    }
    const bool over = !peer->second.resolving || event->type() == RDMA_CM_EVENT_ESTABLISHED;
    // The status is read before the event is released.
    const int status = event->status();
    const bool is_step = event->type() == RDMA_CM_EVENT_ADDR_RESOLVED ||
                         event->type() == RDMA_CM_EVENT_ROUTE_RESOLVED;
    event.reset();  // before its id is destroyed: rdma_destroy_id(3) waits for all events
    if (over) {
      peer->second.resolving.reset();
    } else if (!is_step) {
      // A local error is a negative errno value; a rejection by the peer has another number here.
      fail_peer(peer, status < 0 ? -status : ECONNREFUSED);
    }
  }
}

void DatagramSocket::handle(const verbs::ConnectionEvent& event, Peers::iterator peer) {
  switch (event.type()) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      peer->second.resolving->resolve_route(resolve_timeout);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      peer->second.resolving->connect();
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      set_route(peer, event.raw()->param.ud);
      return;
    default:
      return;
  }
}

// In the UDP port space an accept only sends the number of a queue pair: there is no connection, so
// the id of the request is destroyed afterwards.
void DatagramSocket::accept_request(verbs::ConnectionEvent& event) {
  rdma_conn_param parameters{};
  parameters.qp_num = endpoint_.number();
  const verbs::Id request = event.take_request();
  // If this fails, the peer repeats its request.
  (void)table().accept(request.raw(), &parameters);
}

// Sends the datagrams that have waited for the route.
void DatagramSocket::set_route(Peers::iterator peer, const rdma_ud_param& parameters) {
  Peer& entry = peer->second;
  DatagramAddress source = local_;
  // A peer cannot reply to the wildcard address. It gets the one that this host uses towards it,
  // with the port of this socket.
  if (local_.is_any_host()) {
    source = DatagramAddress::of(local_of(*entry.resolving));
    source.port = local_.port;
  }
  entry.route = {endpoint_.handle_of(parameters.ah_attr), parameters.qp_num, parameters.qkey,
                 source};
  // A route that is new counts as a sign of life, or the next send would resolve it again.
  entry.last_received = Clock::now();
  for (const auto& filled : std::exchange(entry.waiting, {})) {
    endpoint_.post_send(entry.route, filled);
  }
}

// Drops the datagrams that wait for the peer. Only the connected peer's error is reported.
void DatagramSocket::fail_peer(Peers::iterator peer, int error) {
  for (const auto& filled : peer->second.waiting) endpoint_.drop(filled);
  if (peer->first == connected_) error_ = error;
  peers_.erase(peer);
  notify();
}

}  // namespace weft::dropin
