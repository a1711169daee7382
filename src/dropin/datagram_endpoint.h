// The UD queue pair of a datagram rsocket, with the memory that datagrams are sent from and
// received into. The memory consists of places, one for each request that can be posted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dropin/datagram_address.h"
#include "stream/pieces.h"
#include "weft/stream.hpp"

namespace weft::dropin {

// A place that has a datagram.
struct FilledPlace {
  std::uint32_t place = 0;
  std::size_t bytes = 0;  // of the message, without the sender's address
};

// Where datagrams are sent to.
struct DatagramRoute {
  std::shared_ptr<const verbs::AddressHandle> address_handle;  // null until the peer is resolved
  std::uint32_t queue_pair = 0;
  std::uint32_t key = 0;
  DatagramAddress source;  // the address that this side has towards the peer
};

// The caller synchronizes all calls.
class DatagramEndpoint {
 public:
  // Opens the device and posts all receives. Throws Error.
  explicit DatagramEndpoint(const stream::Options& options);

  [[nodiscard]] std::size_t max_message_bytes() const { return max_message_bytes_; }
  [[nodiscard]] std::uint32_t number() const { return queue_pair_->number(); }
  // Throws Error(ENETUNREACH) if the device has no GID of the route's address family.
  [[nodiscard]] std::shared_ptr<const verbs::AddressHandle> handle_of(const ibv_ah_attr& route);

  // --- Sends
  [[nodiscard]] bool can_send() const { return !free_places_.empty(); }
  // Copies a message to a free place, which must exist. post_send() or drop() follows.
  [[nodiscard]] FilledPlace fill(stream::detail::Gather from);
  // Sends. A datagram that cannot be posted is lost, as with UDP.
  void post_send(const DatagramRoute& route, const FilledPlace& filled);
  void drop(const FilledPlace& filled) { free_places_.push_back(filled.place); }

  // --- Receives
  void post_receive(std::uint32_t place);
  // A datagram that was received: the sender's address, then the message.
  [[nodiscard]] std::span<const std::byte> received(std::uint32_t place) const;

  // --- Completions
  // Readable when a completion has come after arm().
  [[nodiscard]] int fd() const { return channel_.fd(); }
  void arm() { queue_->arm(); }
  // Takes the events of the descriptor. True if there was one.
  [[nodiscard]] bool take_events();
  // Handles all completions. Calls `arrived(place, bytes)` for each datagram, with the number of
  // bytes of its address and message. It must call post_receive() for the place, then or later.
  // Returns the number of completions.
  template <typename Arrived>
  std::size_t process(const Arrived& arrived);

 private:
  // Set in the wr_id of sends; the lower bits are the place.
  static constexpr std::uint64_t is_send_ = std::uint64_t{1} << 32;

  void finish_send(std::uint32_t place);

  verbs::Context context_;
  verbs::ProtectionDomain domain_;
  verbs::CompletionChannel channel_;
  std::optional<verbs::CompletionQueue> queue_;
  std::size_t max_message_bytes_ = 0;
  std::size_t send_place_bytes_ = 0;
  std::size_t receive_place_bytes_ = 0;
  std::optional<verbs::TypedRegion<std::byte>> send_memory_;
  std::optional<verbs::TypedRegion<std::byte>> receive_memory_;
  std::optional<verbs::QueuePair> queue_pair_;
  std::vector<std::uint32_t> free_places_;  // of the send memory
  // By place: keeps the handle until the send completes, because a peer may be forgotten before.
  std::vector<std::shared_ptr<const verbs::AddressHandle>> in_use_;
};

template <typename Arrived>
std::size_t DatagramEndpoint::process(const Arrived& arrived) {
  return queue_->for_each([&](const verbs::Completion& completion) {
    const auto place = static_cast<std::uint32_t>(completion.id());
    if ((completion.id() & is_send_) != 0) {
      finish_send(place);
    } else if (completion.ok() && completion.size_bytes() >= verbs::grh_bytes) {
      arrived(place, completion.size_bytes() - verbs::grh_bytes);
    } else {
      post_receive(place);
    }
  });
}

}  // namespace weft::dropin
