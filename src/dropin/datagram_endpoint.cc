#include "dropin/datagram_endpoint.h"

#include <algorithm>

namespace weft::dropin {
namespace {

// The bytes before the payload of a received datagram. A UD queue pair writes 40 bytes of GRH in
// front of each message.
constexpr std::size_t header_bytes = verbs::grh_bytes + DatagramAddress::wire_bytes;

// ibv_mtu is an enumeration: 1 is 256 bytes, and each step doubles.
std::size_t mtu_bytes(const verbs::Context& context) {
  return std::size_t{128} << context.query_port(1).raw().active_mtu;
}

// The number of datagrams that fit into a buffer, at least one.
std::uint32_t places(std::uint32_t buffer_bytes, std::size_t place_bytes, std::uint32_t max) {
  return std::clamp(static_cast<std::uint32_t>(buffer_bytes / place_bytes), 1U, max);
}

}  // namespace

// A datagram with its address must fit into one UD message, which is limited by the MTU.
DatagramEndpoint::DatagramEndpoint(const stream::Options& options)
    : context_(verbs::open_device({}, options.backend)),
      domain_(context_.create_domain()),
      channel_(context_.create_channel()) {
  // The GRH is not a part of the message, so that only the buffers of receives have room for it.
  max_message_bytes_ = mtu_bytes(context_) - DatagramAddress::wire_bytes;
  send_place_bytes_ = DatagramAddress::wire_bytes + max_message_bytes_;
  receive_place_bytes_ = header_bytes + max_message_bytes_;
  const auto sends = places(options.send_buffer_bytes, send_place_bytes_, options.send_queue);
  const auto receives =
      places(options.receive_buffer_bytes, receive_place_bytes_, options.receive_queue);
  // One queue takes the completions of both directions. It has room for all requests that can be
  // outstanding, so that it cannot overrun.
  queue_.emplace(
      context_.create_completion_queue(static_cast<int>(sends + receives), {.channel = &channel_}));
  auto builder = domain_.queue_pair(*queue_, *queue_, IBV_QPT_UD);
  builder.max_send_requests(sends).max_receive_requests(receives);
  send_memory_.emplace(domain_.allocate<std::byte>(sends * send_place_bytes_));
  receive_memory_.emplace(domain_.allocate<std::byte>(receives * receive_place_bytes_));
  // librdmacm gives this Q_Key to the queue pairs of the UDP port space. A receiver drops a
  // datagram that has another one.
  queue_pair_.emplace(builder.build().activate(RDMA_UDP_QKEY));
  in_use_.resize(sends);
  for (std::uint32_t place = 0; place < sends; ++place) free_places_.push_back(place);
  for (std::uint32_t place = 0; place < receives; ++place) post_receive(place);
}

std::shared_ptr<const verbs::AddressHandle> DatagramEndpoint::handle_of(const ibv_ah_attr& route) {
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
    // ENETUNREACH is what the socket calls return for a peer without a route.
    throw Error(ENETUNREACH, "the device has no GID of the peer's address family");
  }
}

// The place that was freed last is used first, because its memory is the most likely to be in the
// cache. The bytes in front stay free for the address, which post_send() writes.
FilledPlace DatagramEndpoint::fill(stream::detail::Gather from) {
  const FilledPlace filled{free_places_.back(), from.size_bytes()};
  free_places_.pop_back();
  const auto place = send_memory_->elements().subspan(filled.place * send_place_bytes_);
  from.copy(place.subspan(DatagramAddress::wire_bytes, filled.bytes));
  return filled;
}

void DatagramEndpoint::post_send(const DatagramRoute& route, const FilledPlace& filled) {
  const std::size_t at = filled.place * send_place_bytes_;
  route.source.write(send_memory_->elements().subspan(at, DatagramAddress::wire_bytes));
  // The handle has to exist until the completion, and the peer may be forgotten before that.
  in_use_[filled.place] = route.address_handle;
  const auto slice = send_memory_->slice(at, DatagramAddress::wire_bytes + filled.bytes);
  if (queue_pair_->post_send_to({*route.address_handle, route.queue_pair, route.key}, slice,
                                filled.place | is_send_) != 0) {
    // A request that could not be posted has no completion, which would free the place.
    finish_send(filled.place);
  }
}

void DatagramEndpoint::post_receive(std::uint32_t place) {
  // Cannot fail: the receive queue has a slot for each place.
  (void)queue_pair_->post_receive(
      receive_memory_->slice(place * receive_place_bytes_, receive_place_bytes_), place);
}

// The message begins behind the 40 bytes of the GRH, whether or not the datagram had one
// (ibv_post_recv(3)).
std::span<const std::byte> DatagramEndpoint::received(std::uint32_t place) const {
  return receive_memory_->elements().subspan(place * receive_place_bytes_ + verbs::grh_bytes,
                                             receive_place_bytes_ - verbs::grh_bytes);
}

// All events are taken: the descriptor stays readable while one is left.
bool DatagramEndpoint::take_events() {
  bool any = false;
  while (channel_.wait(Deadline::now())) any = true;
  return any;
}

void DatagramEndpoint::finish_send(std::uint32_t place) {
  in_use_[place].reset();
  free_places_.push_back(place);
}

}  // namespace weft::dropin
