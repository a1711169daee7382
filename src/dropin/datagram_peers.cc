// Finds the peers of a datagram rsocket by rdma_cm's service resolution in the UDP port space.
#include <algorithm>

#include "dropin/datagram_socket.h"
#include "dropin/provider_table.h"
#include "dropin/rsocket.h"

namespace weft::dropin {
namespace {

constexpr std::chrono::seconds resolve_timeout{5};
// A peer from which nothing arrived for this time is resolved again before the next send: a program
// that was restarted has another queue pair at the same port.
constexpr std::chrono::seconds max_silence{1};
constexpr std::size_t max_peers = 1024;

}  // namespace

void DatagramSocket::connect(const DatagramAddress& peer) {
  const Lock lock(mutex_);
  connected_ = peer;
  error_ = 0;
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
    if (peer->second.resolving || peer->first == connected_) continue;
    if (oldest == peers_.end() || peer->second.last_received < oldest->second.last_received)
      oldest = peer;
  }
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
    const int status = event->status();
    const bool is_step = event->type() == RDMA_CM_EVENT_ADDR_RESOLVED ||
                         event->type() == RDMA_CM_EVENT_ROUTE_RESOLVED;
    event.reset();  // before its id is destroyed: rdma_destroy_id(3) waits for all events
    if (over) {
      peer->second.resolving.reset();
    } else if (!is_step) {
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
  if (local_.is_any_host()) {
    source = DatagramAddress::of(local_of(*entry.resolving));
    source.port = local_.port;
  }
  entry.route = {endpoint_.handle_of(parameters.ah_attr), parameters.qp_num, parameters.qkey,
                 source};
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
