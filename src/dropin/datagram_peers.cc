// How a datagram rsocket finds its peers: by rdma_cm's questions in the UDP port space.
#include <algorithm>

#include "dropin/datagram_socket.h"
#include "dropin/rsocket.h"
#include "dropin/seam.h"

namespace weft::dropin {
namespace {

constexpr std::chrono::seconds patience{5};
// A peer of which nothing was heard for so long is asked again: a program that was started anew has
// another queue pair at the same port.
constexpr std::chrono::seconds silence{1};
constexpr std::size_t most_peers = 1024;

}  // namespace

void DatagramSocket::connect(const DatagramAddress& peer) {
  const Lock lock(mutex_);
  connected_ = peer;
  error_ = 0;
  (void)need_peer(peer);
}

DatagramSocket::Peer& DatagramSocket::need_peer(const DatagramAddress& address) {
  if (!peers_.contains(address)) make_room_for_peers();
  const auto [peer, is_new] = peers_.try_emplace(address);
  const bool silent = peer->second.where && Clock::now() - peer->second.heard > silence;
  if ((!is_new && !silent) || peer->second.question) return peer->second;
  try {
    ask(peer);
  } catch (...) {
    peers_.erase(peer);
    throw;
  }
  return peer->second;
}

// The one that was silent for the longest time can be found again.
void DatagramSocket::make_room_for_peers() {
  if (peers_.size() < most_peers) return;
  auto oldest = peers_.end();
  for (auto peer = peers_.begin(); peer != peers_.end(); ++peer) {
    if (peer->second.question || peer->first == connected_) continue;
    if (oldest == peers_.end() || peer->second.heard < oldest->second.heard) oldest = peer;
  }
  if (oldest != peers_.end()) peers_.erase(oldest);
}

void DatagramSocket::ask(Peers::iterator peer) {
  peer->second.question.emplace(events_, RDMA_PS_UDP);
  peer->second.question->resolve_address(peer->first.to_text(), patience);
}

void DatagramSocket::look_at_events() {
  while (auto event = events_.next(Deadline::now())) {
    if (event->type() == RDMA_CM_EVENT_CONNECT_REQUEST) {
      answer(*event);
      continue;
    }
    const auto peer = std::ranges::find_if(peers_, [&](const auto& entry) {
      return entry.second.question && entry.second.question->raw() == event->id();
    });
    if (peer == peers_.end()) continue;
    try {
      handle(*event, peer);
    } catch (const Error& error) {
      event.reset();
      lost(peer, error.error_number());
      continue;
    }
    const bool over = !peer->second.question || event->type() == RDMA_CM_EVENT_ESTABLISHED;
    const int status = event->status();
    const bool is_step = event->type() == RDMA_CM_EVENT_ADDR_RESOLVED ||
                         event->type() == RDMA_CM_EVENT_ROUTE_RESOLVED;
    event.reset();  // an id lives as long as its events
    if (over) {
      peer->second.question.reset();
    } else if (!is_step) {
      lost(peer, status < 0 ? -status : ECONNREFUSED);
    }
  }
}

void DatagramSocket::handle(const verbs::ConnectionEvent& event, Peers::iterator peer) {
  switch (event.type()) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      peer->second.question->resolve_route(patience);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      peer->second.question->connect();
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      found(peer, event.raw()->param.ud);
      return;
    default:
      return;
  }
}

void DatagramSocket::answer(verbs::ConnectionEvent& event) {
  rdma_conn_param parameters{};
  parameters.qp_num = queue_pair_->number();
  const verbs::Id request = event.take_request();
  // Who is not answered asks again.
  (void)table().accept(request.raw(), &parameters);
}

std::shared_ptr<const verbs::AddressHandle> DatagramSocket::handle_of(const ibv_ah_attr& route) {
  try {
    return std::make_shared<const verbs::AddressHandle>(
        domain_.create_address_handle({.gid = verbs::Gid(route.grh.dgid),
                                       .gid_index = route.grh.sgid_index,
                                       .hop_limit = route.grh.hop_limit,
                                       .traffic_class = route.grh.traffic_class,
                                       .lid = route.dlid,
                                       .service_level = route.sl,
                                       .port = route.port_num}));
  } catch (const Error&) {
    throw Error(ENETUNREACH, "the device has no GID of that family");
  }
}

void DatagramSocket::found(Peers::iterator peer, const rdma_ud_param& parameters) {
  Peer& entry = peer->second;
  entry.where = handle_of(parameters.ah_attr);
  entry.queue_pair = parameters.qp_num;
  entry.key = parameters.qkey;
  entry.source = local_;
  if (local_.is_any_host()) {
    entry.source = DatagramAddress::of(local_of(*entry.question));
    entry.source.port = local_.port;
  }
  entry.heard = Clock::now();
  for (const Filled& filled : std::exchange(entry.waiting, {})) post_send(entry, filled);
}

void DatagramSocket::lost(Peers::iterator peer, int error) {
  for (const Filled& filled : peer->second.waiting) free_places_.push_back(filled.place);
  if (peer->first == connected_) error_ = error;
  peers_.erase(peer);
  tell();
}

}  // namespace weft::dropin
