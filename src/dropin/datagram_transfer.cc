// Sends and receives datagrams.
#include <algorithm>

#include "dropin/datagram_socket.h"

namespace weft::dropin {
namespace {

stream::Transfer failed(int error) {
  return {stream::TransferStatus::failed, 0, error};
}

}  // namespace

// The datagram is copied, so the caller's memory is free at once.
stream::Transfer DatagramSocket::send(stream::detail::Gather from,
                                      const std::optional<DatagramAddress>& to,
                                      const Deadline& deadline) {
  Lock lock(mutex_);
  const std::size_t bytes = from.size_bytes();
  const auto address = to ? to : connected_;
  if (!address) return failed(EDESTADDRREQ);
  // Checked before the wait: a datagram that can never be sent must not block.
  if (bytes > endpoint_.max_message_bytes()) return failed(EMSGSIZE);
  const bool ready =
      wait(lock, deadline, [this] { return closed_ || error_ != 0 || endpoint_.can_send(); });
  // The callers turn ECANCELED into EBADF, since another thread has closed the descriptor.
  if (closed_) return failed(ECANCELED);
  // The error of an earlier datagram is returned once, and this datagram is not sent.
  if (error_ != 0) return failed(report_error());
  if (!ready) return {stream::TransferStatus::would_block, 0, 0};
  // May throw. No place is taken before, so that none is lost.
  Peer& peer = need_peer(*address);
  const FilledPlace filled = endpoint_.fill(std::move(from));
  if (peer.route.address_handle) {
    endpoint_.post_send(peer.route, filled);
  } else {
    // Either set_route() sends it, or fail_peer() drops it.
    peer.waiting.push_back(filled);
  }
  notify();
  return {stream::TransferStatus::ok, bytes, 0};
}

stream::Transfer DatagramSocket::receive(stream::detail::Scatter into, const Deadline& deadline,
                                         bool peek, Datagram& datagram) {
  Lock lock(mutex_);
  const bool ready =
      wait(lock, deadline, [this] { return closed_ || error_ != 0 || !arrived_.empty(); });
  if (closed_) return failed(ECANCELED);
  // Datagrams that arrived before the error are received first.
  if (arrived_.empty() && error_ != 0) return failed(report_error());
  if (!ready) return {stream::TransferStatus::would_block, 0, 0};
  const FilledPlace filled = arrived_.front();
  const auto place = endpoint_.received(filled.place);
  // Only arrived() fills the queue, and it has checked the address.
  datagram.from = *DatagramAddress::read(place);
  datagram.bytes = filled.bytes;
  const std::size_t bytes = std::min(into.size_bytes(), filled.bytes);
  into.copy(place.subspan(DatagramAddress::wire_bytes, bytes));
  // A place with a datagram that was only looked at must not be posted again.
  if (!peek) {
    arrived_.pop_front();
    endpoint_.post_receive(filled.place);
  }
  notify();
  return {stream::TransferStatus::ok, bytes, 0};
}

// With mutex_ held. Handles all completions.
void DatagramSocket::process() {
  if (closed_) return;
  const auto any =
      endpoint_.process([this](std::uint32_t place, std::size_t bytes) { arrived(place, bytes); });
  if (any > 0) notify();
}

// Drops what is not a datagram of this protocol, and what a connected socket must not receive.
void DatagramSocket::arrived(std::uint32_t place, std::size_t bytes) {
  constexpr std::size_t front = DatagramAddress::wire_bytes;
  const auto from = bytes < front ? std::nullopt : DatagramAddress::read(endpoint_.received(place));
  if (!from || (connected_ && *from != *connected_)) {
    endpoint_.post_receive(place);
    return;
  }
  // The address is what the sender claims, as with UDP. It adds no peer, so that a sender cannot
  // make the table grow.
  const auto peer = peers_.find(*from);
  if (peer != peers_.end()) peer->second.last_received = Clock::now();
  arrived_.push_back({place, bytes - front});
}

}  // namespace weft::dropin
