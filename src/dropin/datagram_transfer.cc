// Sends and receives datagrams.
#include <algorithm>

#include "dropin/datagram_socket.h"

namespace weft::dropin {
namespace {

// Set in the wr_id of sends; the lower bits are the place in the buffer.
constexpr std::uint64_t is_send = std::uint64_t{1} << 32;

stream::Outcome failed(int error) {
  return {stream::Status::failed, 0, error};
}

}  // namespace

// The datagram is copied, so the caller's memory is free at once.
stream::Outcome DatagramSocket::send(stream::detail::Gather from,
                                     const std::optional<DatagramAddress>& to,
                                     const Deadline& deadline) {
  Lock lock(mutex_);
  const std::size_t bytes = from.size_bytes();
  const auto address = to ? to : connected_;
  if (!address) return failed(EDESTADDRREQ);
  if (bytes > max_message_bytes_) return failed(EMSGSIZE);
  const bool ready =
      wait(lock, deadline, [this] { return closed_ || error_ != 0 || !free_places_.empty(); });
  if (closed_) return failed(ECANCELED);
  if (error_ != 0) return failed(std::exchange(error_, 0));
  if (!ready) return {stream::Status::would_block, 0, 0};
  Peer& peer = need_peer(*address);
  const Filled filled{free_places_.back(), bytes};
  free_places_.pop_back();
  const auto place = send_memory_->elements().subspan(filled.place * send_place_bytes_);
  from.copy(place.subspan(DatagramAddress::wire_bytes, bytes));
  if (peer.address_handle) {
    post_send(peer, filled);
  } else {
    peer.waiting.push_back(filled);
  }
  notify();
  return {stream::Status::ok, bytes, 0};
}

stream::Outcome DatagramSocket::receive(stream::detail::Scatter into, const Deadline& deadline,
                                        bool peek, Datagram& datagram) {
  Lock lock(mutex_);
  const bool ready =
      wait(lock, deadline, [this] { return closed_ || error_ != 0 || !arrived_.empty(); });
  if (closed_) return failed(ECANCELED);
  if (arrived_.empty() && error_ != 0) return failed(std::exchange(error_, 0));
  if (!ready) return {stream::Status::would_block, 0, 0};
  const Filled filled = arrived_.front();
  const auto place =
      receive_memory_->elements().subspan(filled.place * receive_place_bytes_ + verbs::grh_bytes,
                                          receive_place_bytes_ - verbs::grh_bytes);
  datagram.from = *DatagramAddress::read(place);
  datagram.bytes = filled.bytes;
  const std::size_t bytes = std::min(into.size_bytes(), filled.bytes);
  into.copy(place.subspan(DatagramAddress::wire_bytes, bytes));
  if (!peek) {
    arrived_.pop_front();
    post_receive(filled.place);
  }
  notify();
  return {stream::Status::ok, bytes, 0};
}

// With mutex_ held. Handles all completions.
void DatagramSocket::process() {
  if (closed_) return;
  const auto any = queue_->for_each([this](const verbs::Completion& completion) {
    const auto place = static_cast<std::uint32_t>(completion.id());
    if ((completion.id() & is_send) != 0) {
      in_use_[place].reset();
      free_places_.push_back(place);
    } else if (completion.ok()) {
      arrived(place, completion.size_bytes());
    } else {
      post_receive(place);
    }
  });
  if (any > 0) notify();
}

// Drops what is not a datagram of this protocol, and what a connected socket must not receive.
void DatagramSocket::arrived(std::uint32_t place, std::uint32_t bytes) {
  constexpr std::size_t front = verbs::grh_bytes + DatagramAddress::wire_bytes;
  const auto memory = receive_memory_->elements().subspan(place * receive_place_bytes_);
  const auto from =
      bytes < front ? std::nullopt : DatagramAddress::read(memory.subspan(verbs::grh_bytes));
  if (!from || (connected_ && *from != *connected_)) {
    post_receive(place);
    return;
  }
  const auto peer = peers_.find(*from);
  if (peer != peers_.end()) peer->second.last_received = Clock::now();
  arrived_.push_back({place, bytes - front});
}

void DatagramSocket::post_receive(std::uint32_t place) {
  // Cannot fail: the receive queue has a slot for each place.
  (void)queue_pair_->post_receive(
      receive_memory_->slice(place * receive_place_bytes_, receive_place_bytes_), place);
}

// The address handle is kept until the completion: a peer may be forgotten before.
void DatagramSocket::post_send(Peer& peer, const Filled& filled) {
  const std::size_t at = filled.place * send_place_bytes_;
  peer.source.write(send_memory_->elements().subspan(at, DatagramAddress::wire_bytes));
  in_use_[filled.place] = peer.address_handle;
  const auto slice = send_memory_->slice(at, DatagramAddress::wire_bytes + filled.bytes);
  if (queue_pair_->post_send_to({*peer.address_handle, peer.queue_pair, peer.key}, slice,
                                filled.place | is_send) != 0) {
    in_use_[filled.place].reset();  // the datagram is lost, as with UDP
    free_places_.push_back(filled.place);
  }
}

}  // namespace weft::dropin
