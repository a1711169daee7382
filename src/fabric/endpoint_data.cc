// fi_msg(3) in the form that fi_endpoint(3) defines for FI_EP_SOCK_STREAM: a transfer is complete
// when its call returns, and the result is the number of bytes.
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <array>
#include <span>

#include "fabric/endpoint.h"
#include "fabric/table_functions.h"

namespace weft::fabric {
namespace {

// Takes no lock, so that a transfer does not wait for other calls on the endpoint.
stream::Stream* stream_of(fid_ep* endpoint) {
  return static_cast<Endpoint&>(*endpoint).stream();
}

// The buffers of one call in the form of the stream layer. There are at most as many as the
// iov_limit that fi_getinfo(3) returns.
template <typename Byte>
struct Pieces {
  std::array<std::span<Byte>, max_pieces> spans{};
  std::size_t count = 0;

  // False if there are more than max_pieces.
  [[nodiscard]] bool read(const iovec* from, std::size_t entries) {
    if (entries > spans.size() || (!from && entries > 0)) return false;
    count = entries;
    for (std::size_t i = 0; i < entries; ++i) {
      spans[i] = {static_cast<Byte*>(from[i].iov_base), from[i].iov_len};
    }
    return true;
  }
  [[nodiscard]] std::span<const std::span<Byte>> list() const {
    return std::span(spans).first(count);
  }
};

// --- Sending -------------------------------------------------------------------------------------

// A null pointer is valid for a transfer of no bytes.
ssize_t send(fid_ep* endpoint, const void* buffer, std::size_t bytes, void* /*description*/,
             fi_addr_t /*to*/, void* /*context*/) {
  stream::Stream* const stream = stream_of(endpoint);
  if (!stream) return -FI_ENOTCONN;
  if (!buffer && bytes > 0) return -FI_EINVAL;
  return result_of(
      stream->send(std::span(static_cast<const std::byte*>(buffer), bytes), Deadline::now()));
}

ssize_t send_vector(fid_ep* endpoint, const iovec* vector, void** /*descriptions*/,
                    std::size_t count, fi_addr_t /*to*/, void* /*context*/) {
  stream::Stream* const stream = stream_of(endpoint);
  if (!stream) return -FI_ENOTCONN;
  Pieces<const std::byte> pieces;
  if (!pieces.read(vector, count)) return -FI_EINVAL;
  return result_of(stream->send(pieces.list(), Deadline::now()));
}

// FI_PEEK tests without sending: 0 if a send would accept a byte now, else its error.
ssize_t send_message(fid_ep* endpoint, const fi_msg* message, std::uint64_t flags) {
  if (flags == FI_PEEK) {
    stream::Stream* const stream = stream_of(endpoint);
    return stream ? result_of(stream->peek_send()) : -FI_ENOTCONN;
  }
  if (flags != 0) return -FI_ENOSYS;
  if (!message) return -FI_EINVAL;
  return send_vector(endpoint, message->msg_iov, nullptr, message->iov_count, 0, nullptr);
}

// --- Receiving -----------------------------------------------------------------------------------

ssize_t receive(fid_ep* endpoint, void* buffer, std::size_t bytes, void* /*description*/,
                fi_addr_t /*from*/, void* /*context*/) {
  stream::Stream* const stream = stream_of(endpoint);
  if (!stream) return -FI_ENOTCONN;
  if (!buffer && bytes > 0) return -FI_EINVAL;
  return static_cast<Endpoint&>(*endpoint).received(
      stream->receive(std::span(static_cast<std::byte*>(buffer), bytes), Deadline::now()));
}

ssize_t receive_vector(fid_ep* endpoint, const iovec* vector, void** /*descriptions*/,
                       std::size_t count, fi_addr_t /*from*/, void* /*context*/) {
  stream::Stream* const stream = stream_of(endpoint);
  if (!stream) return -FI_ENOTCONN;
  Pieces<std::byte> pieces;
  if (!pieces.read(vector, count)) return -FI_EINVAL;
  return static_cast<Endpoint&>(*endpoint).received(
      stream->receive(pieces.list(), Deadline::now()));
}

// FI_PEEK tests without receiving: 0 if a receive would return something now, even the end or an
// error, else -FI_EAGAIN.
ssize_t receive_message(fid_ep* endpoint, const fi_msg* message, std::uint64_t flags) {
  if (flags == FI_PEEK) {
    stream::Stream* const stream = stream_of(endpoint);
    return stream ? result_of(stream->peek_receive()) : -FI_ENOTCONN;
  }
  if (flags != 0) return -FI_ENOSYS;
  if (!message) return -FI_EINVAL;
  return receive_vector(endpoint, message->msg_iov, nullptr, message->iov_count, 0, nullptr);
}

}  // namespace

ssize_t Endpoint::received(const stream::Transfer& outcome) {
  if (outcome.end() && end_returned_.exchange(true)) return -FI_ESHUTDOWN;
  return result_of(outcome);
}

fi_ops_msg message_ops = {
    .size = sizeof(fi_ops_msg),
    .recv = guarded<receive>,
    .recvv = guarded<receive_vector>,
    .recvmsg = guarded<receive_message>,
    .send = guarded<send>,
    .sendv = guarded<send_vector>,
    .sendmsg = guarded<send_message>,
    .inject = unsupported<decltype(fi_ops_msg::inject)>,
    .senddata = unsupported<decltype(fi_ops_msg::senddata)>,
    .injectdata = unsupported<decltype(fi_ops_msg::injectdata)>,
};

}  // namespace weft::fabric
