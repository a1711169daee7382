// rsocket(7): sets and gets options.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "dropin/export.h"
#include "dropin/rsocket.h"

namespace {

using namespace weft::dropin;
namespace stream = weft::stream;

// The greeting of a stream has one byte for this number.
constexpr int max_mapped_buffers = 255;
constexpr int segment_bytes = 2048;  // librdmacm's value where it knows no path MTU

// A value out of range is not an error: the nearest limit is set.
std::uint32_t clamped(int value, std::uint32_t least, std::uint32_t most) {
  return std::clamp(static_cast<std::uint32_t>(std::max(value, 0)), least, most);
}

// The member for an int option that is only stored; null for other options.
int* plain_setting(SocketSettings& settings, int level, int name) {
  switch (level) {
    case SOL_SOCKET:
      if (name == SO_REUSEADDR) return &settings.reuse_address;
      if (name == SO_OOBINLINE) return &settings.out_of_band_inline;
      if (name == SO_KEEPALIVE) return &settings.keepalive;
      return nullptr;
    case IPPROTO_TCP:
      if (name == TCP_NODELAY) return &settings.no_delay;
      if (name == TCP_KEEPIDLE) return &settings.keepalive_idle_s;
      if (name == TCP_KEEPINTVL) return &settings.keepalive_interval_s;
      if (name == TCP_KEEPCNT) return &settings.keepalive_probes;
      return nullptr;
    case IPPROTO_IPV6:
      return name == IPV6_V6ONLY ? &settings.v6_only : nullptr;
    case SOL_RDMA:
      return name == RDMA_INLINE ? &settings.inline_bytes : nullptr;
    default:
      return nullptr;
  }
}

// The size that an option sets, and its limits; null for other options.
struct Size {
  std::uint32_t* value = nullptr;
  std::uint32_t least = 0;
  std::uint32_t most = 0;
};
// Unlike Linux, which doubles SO_SNDBUF and SO_RCVBUF (socket(7)), a get returns the size that was
// set.
Size size_setting(stream::Options& options, int level, int name) {
  if (level == SOL_SOCKET && name == SO_SNDBUF) {
    return {&options.send_buffer_bytes, 1, stream::max_buffer_bytes};
  }
  if (level == SOL_SOCKET && name == SO_RCVBUF) {
    return {&options.receive_buffer_bytes, 1, stream::max_buffer_bytes};
  }
  if (level != SOL_RDMA) return {};
  if (name == RDMA_SQSIZE) return {&options.send_queue, stream::min_queue, stream::max_queue};
  if (name == RDMA_RQSIZE) return {&options.receive_queue, stream::min_queue, stream::max_queue};
  if (name == RDMA_IOMAPSIZE) return {&options.mapped_buffers, 0, max_mapped_buffers};
  return {};
}

// Options that also apply to a stream that exists already.
bool is_keepalive(int level, int name) {
  return (level == SOL_SOCKET && name == SO_KEEPALIVE) ||
         (level == IPPROTO_TCP &&
          (name == TCP_KEEPIDLE || name == TCP_KEEPINTVL || name == TCP_KEEPCNT));
}

// Linux has the same limits for TCP.
bool is_keepalive_value(int name, int value) {
  constexpr int longest_s = 32767;
  constexpr int most_probes = 127;
  return value >= 1 && value <= (name == TCP_KEEPCNT ? most_probes : longest_s);
}

// With the socket's mutex held.
void apply_keepalive(Rsocket& socket) {
  socket.options.keepalive = socket.keepalive();
  if (!socket.stream) return;
  auto options = socket.stream->options();
  options.keepalive = socket.options.keepalive;
  socket.stream->set_options(options);
}

int set_option(Rsocket& socket, int level, int name, const void* value, socklen_t bytes) {
  const std::lock_guard lock(socket.mutex);
  if (level == SOL_SOCKET && name == SO_LINGER) {
    if (bytes < sizeof(linger)) return fail_with(EINVAL);
    std::memcpy(&socket.settings.lingering, value, sizeof(linger));
    return 0;
  }
  // All other options are an int. It is copied, because the program's memory may not be aligned.
  int wanted = 0;
  if (bytes < sizeof wanted) return fail_with(EINVAL);
  std::memcpy(&wanted, value, sizeof wanted);
  if (const Size size = size_setting(socket.options, level, name); size.value) {
    // The rings or queues exist already, and the peer knows the rings.
    if (socket.stream || socket.datagrams) return fail_with(EISCONN);
    *size.value = clamped(wanted, size.least, size.most);
    if (level == SOL_SOCKET) socket.options.growth_bytes = 0;  // a size that was set is kept
    return 0;
  }
  int* const plain = plain_setting(socket.settings, level, name);
  if (!plain) return fail_with(ENOTSUP);
  const bool keepalive = is_keepalive(level, name);
  if (keepalive && level == IPPROTO_TCP && !is_keepalive_value(name, wanted)) {
    return fail_with(EINVAL);
  }
  *plain = wanted;
  if (keepalive) apply_keepalive(socket);
  // For a listener or a datagram socket that is made from now on.
  if (plain == &socket.settings.v6_only) {
    socket.options.ipv6_only = socket.family == AF_INET6 && wanted != 0;
  }
  return 0;
}

// A room that is too short is an error here, where getsockopt(2) would cut the value.
int give(const void* found, socklen_t size, void* value, socklen_t* bytes) {
  if (*bytes < size) return fail_with(EINVAL);
  std::memcpy(value, found, size);
  *bytes = size;
  return 0;
}

// The error of connecting or of the connection, if it was not reported yet; else 0.
int pending_error(Rsocket& socket) {
  if (const auto datagrams = socket.get_datagrams()) return datagrams->take_error();
  const auto stream = socket.get_stream();
  if (!stream || stream->state() != stream::State::failed) return 0;
  return socket.error_reported.exchange(true) ? 0 : stream->error_number();
}

int get_option(Rsocket& socket, int level, int name, void* value, socklen_t* bytes) {
  int found = 0;
  // pending_error() takes the lock itself. It also clears the error, as in socket(7).
  if (level == SOL_SOCKET && name == SO_ERROR) {
    found = pending_error(socket);
    return give(&found, sizeof found, value, bytes);
  }
  const std::lock_guard lock(socket.mutex);
  if (level == SOL_SOCKET && name == SO_LINGER) {
    return give(&socket.settings.lingering, sizeof(linger), value, bytes);
  }
  if (level == SOL_RDMA && name == RDMA_ROUTE)
    return fail_with(ENODATA);  // the device has no path records
  if (const Size size = size_setting(socket.options, level, name); size.value) {
    found = static_cast<int>(*size.value);
  } else if (const int* plain = plain_setting(socket.settings, level, name)) {
    found = *plain;
  } else if (level == SOL_SOCKET && name == SO_TYPE) {
    found = socket.type;
  } else if (level == SOL_SOCKET && name == SO_ACCEPTCONN) {
    found = socket.listener && socket.listener->is_listening();
  } else if (level == IPPROTO_TCP && name == TCP_MAXSEG) {
    found = segment_bytes;
  } else {
    return fail_with(ENOTSUP);
  }
  return give(&found, sizeof found, value, bytes);
}

}  // namespace

WEFT_EXPORT int rsetsockopt(int descriptor, int level, int name, const void* value,
                            socklen_t bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    if (!value) return fail_with(EFAULT);
    return set_option(socket, level, name, value, bytes);
  });
}

WEFT_EXPORT int rgetsockopt(int descriptor, int level, int name, void* value, socklen_t* bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    if (!value || !bytes) return fail_with(EFAULT);
    return get_option(socket, level, name, value, bytes);
  });
}
