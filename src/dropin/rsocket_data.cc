// rsocket(7): sends and receives, and maps buffers that the peer writes to.
#include <limits.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <vector>

#include "dropin/export.h"
#include "dropin/rsocket.h"

namespace {

using namespace weft::dropin;
namespace stream = weft::stream;

std::span<const std::byte> bytes_at(const void* buffer, size_t bytes) {
  return {static_cast<const std::byte*>(buffer), bytes};
}
std::span<std::byte> bytes_at(void* buffer, size_t bytes) {
  return {static_cast<std::byte*>(buffer), bytes};
}

template <typename Byte>
std::vector<std::span<Byte>> pieces_of(const iovec* pieces, size_t count) {
  // readv(2) has the same limit and the same error.
  if (count > IOV_MAX) throw weft::Error(EINVAL, "too many pieces");
  std::vector<std::span<Byte>> spans;
  size_t room = SSIZE_MAX;
  for (size_t i = 0; i < count; ++i) {
    if (pieces[i].iov_len > room) throw weft::Error(EINVAL, "the lengths have too large a sum");
    room -= pieces[i].iov_len;
    spans.push_back(bytes_at(pieces[i].iov_base, pieces[i].iov_len));
  }
  return spans;
}

int errno_of(const stream::Transfer& outcome) {
  if (outcome.would_block()) return EAGAIN;
  // ECANCELED means that another thread has closed the socket.
  return outcome.error_number == ECANCELED ? EBADF : outcome.error_number;
}

// recv(2) has the same error for a socket that is not connected.
std::shared_ptr<stream::Stream> need_stream(const Rsocket& socket) {
  auto stream = socket.get_stream();
  if (!stream) throw weft::Error(ENOTCONN, "the rsocket is not connected");
  return stream;
}

// What arrived with a message, for calls that return it.
struct Arrival {
  sockaddr_storage from{};
  bool has_from = false;
  bool is_cut = false;
};

ssize_t receive_datagram(Rsocket& socket, std::span<const std::span<std::byte>> into, int flags,
                         Arrival* arrival) {
  Datagram datagram;
  const auto outcome = need_datagrams(socket)->receive(
      stream::detail::Scatter(into), socket.deadline(flags), (flags & MSG_PEEK) != 0, datagram);
  if (!outcome.ok()) return fail_with(errno_of(outcome));
  if (arrival) {
    *arrival = {named_by(socket, datagram.from.to_sockaddr()), true,
                datagram.bytes > outcome.bytes};
  }
  return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? datagram.bytes : outcome.bytes);
}

ssize_t receive(Rsocket& socket, std::span<const std::span<std::byte>> into, int flags,
                Arrival* arrival = nullptr) {
  // MSG_NOSIGNAL and MSG_CMSG_CLOEXEC change nothing: no call raises a signal or receives
  // descriptors. MSG_TRUNC would discard bytes of a stream (tcp(7)), so it is for datagrams only.
  constexpr int known = MSG_PEEK | MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;
  const bool is_datagram = socket.type == SOCK_DGRAM;
  if (flags & ~(known | (is_datagram ? MSG_TRUNC : 0))) return fail_with(EOPNOTSUPP);
  if (is_datagram) return receive_datagram(socket, into, flags, arrival);
  const auto stream = need_stream(socket);
  const auto outcome =
      stream->receive(into, socket.deadline(flags),
                      {.peek = (flags & MSG_PEEK) != 0, .wait_all = (flags & MSG_WAITALL) != 0});
  if (outcome.ok()) return static_cast<ssize_t>(outcome.bytes);
  // As with sockets, every call after the end returns 0.
  if (outcome.end()) return 0;
  return fail_with(errno_of(outcome));
}

// As send(2), a call without bytes needs no room, but a connection that can send.
ssize_t send_nothing(stream::Stream& stream, const weft::Deadline& deadline) {
  if (!stream.await_connected(deadline)) return fail_with(EAGAIN);
  const auto outcome = stream.peek_send();
  return outcome.ok() || outcome.would_block() ? 0 : fail_with(errno_of(outcome));
}

struct Destination {
  const void* address = nullptr;
  socklen_t bytes = 0;
};

// Sends a datagram or bytes of a stream, by the type of the socket. Unknown flags fail with
// EOPNOTSUPP.
ssize_t send(Rsocket& socket, std::span<const std::span<const std::byte>> from, int flags,
             const Destination& to = {}) {
  // A blocking call sends everything anyway, so MSG_WAITALL is allowed: rstream(1) uses it.
  constexpr int known = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_WAITALL;
  const bool is_datagram = socket.type == SOCK_DGRAM;
  if (flags & ~(known | (is_datagram ? 0 : MSG_MORE))) return fail_with(EOPNOTSUPP);
  if (is_datagram) {
    std::optional<DatagramAddress> address;
    if (to.address) {
      address = datagram_address(static_cast<const sockaddr*>(to.address), to.bytes);
    }
    const auto outcome =
        need_datagrams(socket)->send(stream::detail::Gather(from), address, socket.deadline(flags));
    return outcome.ok() ? static_cast<ssize_t>(outcome.bytes) : fail_with(errno_of(outcome));
  }
  // sendto(2) allows this error, and also to ignore the address of a connected stream.
  if (to.address || to.bytes) return fail_with(EISCONN);
  const auto stream = need_stream(socket);
  const auto has_bytes = [](const auto& piece) { return !piece.empty(); };
  if (!std::ranges::any_of(from, has_bytes)) return send_nothing(*stream, socket.deadline(flags));
  const auto outcome = stream->send(from, socket.deadline(flags));
  return outcome.ok() ? static_cast<ssize_t>(outcome.bytes) : fail_with(errno_of(outcome));
}

ssize_t receive_at(int descriptor, const iovec* pieces, size_t count, int flags,
                   Arrival* arrival = nullptr) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    return receive(socket, pieces_of<std::byte>(pieces, count), flags, arrival);
  });
}

ssize_t send_at(int descriptor, const iovec* pieces, size_t count, int flags,
                const Destination& to = {}) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    return send(socket, pieces_of<const std::byte>(pieces, count), flags, to);
  });
}

}  // namespace

WEFT_EXPORT ssize_t rrecv(int descriptor, void* buffer, size_t bytes, int flags) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    const auto into = bytes_at(buffer, bytes);
    return receive(socket, std::span(&into, 1), flags);
  });
}

// Unlike TCP sockets, a stream returns the address of its peer, as in librdmacm. Bytes that were
// received are returned even if that address cannot be found; its length is 0 then, as recvfrom(2)
// of a stream has it.
WEFT_EXPORT ssize_t rrecvfrom(int descriptor, void* buffer, size_t bytes, int flags,
                              sockaddr* address, socklen_t* address_bytes) {
  if (address && !address_bytes) return fail_with(EFAULT);  // before bytes are taken
  const iovec piece{buffer, bytes};
  Arrival arrival;
  const ssize_t got = receive_at(descriptor, &piece, 1, flags, &arrival);
  if (got >= 0 && arrival.has_from) {
    give_address(arrival.from, address, address_bytes);
    return got;
  }
  if (got > 0 && address && rgetpeername(descriptor, address, address_bytes) != 0) {
    *address_bytes = 0;
  }
  return got;
}

WEFT_EXPORT ssize_t rrecvmsg(int descriptor, msghdr* message, int flags) {
  if (!message) return fail_with(EFAULT);
  Arrival arrival;
  const ssize_t got =
      receive_at(descriptor, message->msg_iov, message->msg_iovlen, flags, &arrival);
  if (got < 0) return got;
  socklen_t name_bytes = message->msg_namelen;
  if (arrival.has_from) {
    give_address(arrival.from, static_cast<sockaddr*>(message->msg_name), &name_bytes);
  }
  // The length is 0 for a stream, which returns no address here.
  message->msg_namelen = arrival.has_from && message->msg_name ? name_bytes : 0;
  message->msg_controllen = 0;
  message->msg_flags = arrival.is_cut ? MSG_TRUNC : 0;
  return got;
}

WEFT_EXPORT ssize_t rread(int descriptor, void* buffer, size_t bytes) {
  return rrecv(descriptor, buffer, bytes, 0);
}

WEFT_EXPORT ssize_t rreadv(int descriptor, const iovec* pieces, int count) {
  if (count < 0) return fail_with(EINVAL);
  return receive_at(descriptor, pieces, static_cast<size_t>(count), 0);
}

WEFT_EXPORT ssize_t rsend(int descriptor, const void* buffer, size_t bytes, int flags) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    const auto from = bytes_at(buffer, bytes);
    return send(socket, std::span(&from, 1), flags);
  });
}

WEFT_EXPORT ssize_t rsendto(int descriptor, const void* buffer, size_t bytes, int flags,
                            const sockaddr* address, socklen_t address_bytes) {
  // There is no iovec of const bytes. send_at() does not write to them.
  const iovec piece{const_cast<void*>(buffer), bytes};
  return send_at(descriptor, &piece, 1, flags, {address, address_bytes});
}

// Control messages are not supported. A stream ignores the address, as TCP and librdmacm do.
WEFT_EXPORT ssize_t rsendmsg(int descriptor, const msghdr* message, int flags) {
  if (!message) return fail_with(EFAULT);
  if (message->msg_control && message->msg_controllen) return fail_with(ENOTSUP);
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    const auto pieces = pieces_of<const std::byte>(message->msg_iov, message->msg_iovlen);
    if (socket.type == SOCK_STREAM) return send(socket, pieces, flags);
    return send(socket, pieces, flags, {message->msg_name, message->msg_namelen});
  });
}

WEFT_EXPORT ssize_t rwrite(int descriptor, const void* buffer, size_t bytes) {
  return rsend(descriptor, buffer, bytes, 0);
}

WEFT_EXPORT ssize_t rwritev(int descriptor, const iovec* pieces, int count) {
  if (count < 0) return fail_with(EINVAL);
  return send_at(descriptor, pieces, static_cast<size_t>(count), 0);
}

// --- Buffers that the peer writes to -------------------------------------------------------------

// Forgets a buffer that was mapped for local use only. Returns whether it was.
bool forget_local_map(Rsocket& socket, std::span<const std::byte> memory) {
  const std::lock_guard lock(socket.mutex);
  const auto found = std::ranges::find_if(socket.local_maps, [&](const auto& mapped) {
    return mapped.data() == memory.data() && mapped.size() == memory.size();
  });
  if (found == socket.local_maps.end()) return false;
  socket.local_maps.erase(found);
  return true;
}

// rsocket(7): without PROT_WRITE a buffer is only registered for local use. Nothing needs that
// here, as riowrite() sends from any memory; it is kept for riounmap() only.
WEFT_EXPORT off_t riomap(int descriptor, void* buffer, size_t bytes, int protection, int flags,
                         off_t offset) {
  return with_rsocket(descriptor, [&](Rsocket& socket) -> off_t {
    if (flags != 0 || (protection & ~PROT_WRITE)) return fail_with(EINVAL);
    const auto stream = need_stream(socket);
    if (protection == PROT_NONE) {
      const std::lock_guard lock(socket.mutex);
      socket.local_maps.push_back(bytes_at(static_cast<const void*>(buffer), bytes));
      return offset < 0 ? 0 : offset;  // a negative one leaves the choice to this function
    }
    return static_cast<off_t>(stream->map_buffer(bytes_at(buffer, bytes), offset));
  });
}

WEFT_EXPORT int riounmap(int descriptor, void* buffer, size_t bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    const auto memory = bytes_at(static_cast<const void*>(buffer), bytes);
    const auto stream = need_stream(socket);
    if (!forget_local_map(socket, memory)) stream->unmap_buffer(memory);
    return 0;
  });
}

// Upstream declares the result without a sign, so that an error is the largest value of its type.
WEFT_EXPORT size_t riowrite(int descriptor, const void* buffer, size_t bytes, off_t offset,
                            int flags) {
  return with_rsocket(descriptor, [&](Rsocket& socket) -> size_t {
    if (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_WAITALL))
      return static_cast<size_t>(fail_with(EOPNOTSUPP));
    const auto outcome = need_stream(socket)->write_mapped(
        bytes_at(buffer, bytes), static_cast<std::uint64_t>(offset), socket.deadline(flags));
    return outcome.ok() ? outcome.bytes : static_cast<size_t>(fail_with(errno_of(outcome)));
  });
}
