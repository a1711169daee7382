#include "interpose/kernel_connection.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "interpose/address.h"
#include "interpose/destinations.h"
#include "interpose/first_bytes.h"
#include "interpose/process.h"
#include "interpose/table.h"

namespace weft::interpose {
namespace {

// The handshake is over when connect(2) returns, unless the kernel has put it off to a thread of
// its own.
constexpr int handshake_ms = 5;

// Descriptors of connections by this file. Those above are not noted: no more is learnt from them.
constinit std::array<std::atomic<bool>, 65536> noted{};
// Those whose key waits. One above stays in the kernel until the program sends, or for 200 ms.
constinit std::array<std::atomic<bool>, noted.size()> keeps_key{};

// False if there was none.
bool take_kept_key(int fd) {
  const auto index = static_cast<std::size_t>(fd);
  if (index >= keeps_key.size() || !keeps_key[index].exchange(false)) return false;
  kept_keys.fetch_sub(1);
  return true;
}

// 0, or the errno value of connect(2): EINPROGRESS without waiting.
int start_connection(int kernel, const sockaddr_storage& address) {
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  return next::connect(kernel, name, size_of(address)) == 0 ? 0 : errno;
}

bool send_key(int kernel) {
  constexpr int flags = MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE;
  const auto send = [kernel] {
    return next::send(kernel, agreed_key.data(), agreed_key.size(), flags);
  };
  ssize_t sent = send();
  if (sent < 0 && errno == EAGAIN) {
    pollfd entry{kernel, POLLOUT, 0};
    if (next::poll(&entry, 1, handshake_ms) > 0) sent = send();
  }
  return sent == static_cast<ssize_t>(agreed_key.size());
}

}  // namespace

constinit std::atomic<int> kept_keys{0};

// To end TCP_CORK sends what waits (tcp(7)), whether or not the program has set it.
void send_kept_key(int fd) {
  if (!take_kept_key(fd)) return;
  constexpr int off = 0;
  int known = 0;
  socklen_t bytes = sizeof known;
  next::getsockopt(fd, IPPROTO_TCP, TCP_CORK, &known, &bytes);
  next::setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
  if (known != 0) next::setsockopt(fd, IPPROTO_TCP, TCP_CORK, &known, sizeof known);
}

void forget_kept_key(int fd) {
  (void)take_kept_key(fd);
}

// The program's descriptor is the kernel's socket already, and from now on the kernel's business.
std::optional<int> connect_by_kernel(const std::shared_ptr<Socket>& socket, int fd,
                                     const stream::Address& peer) {
  if (!socket->may_become_kernels()) return std::nullopt;
  Destinations& destinations = Destinations::instance();
  const bool plain = destinations.is_plain(peer);
  if (!plain && !destinations.prefers_kernel(peer)) return std::nullopt;
  const int error = start_connection(fd, address_of(peer, socket->family()));
  const bool failed = error != 0 && error != EINPROGRESS;
  // Whatever goes wrong here, the attempt by a stream finds out why, and says it.
  if (failed || (!plain && !(destinations.still_offered(peer) && send_key(fd)))) {
    socket->open_visible();
    socket->renew_kernel_socket();
    return std::nullopt;
  }
  forget(fd);
  const auto index = static_cast<std::size_t>(fd);
  if (index < noted.size()) {
    noted[index] = true;
    if (!plain && !keeps_key[index].exchange(true)) kept_keys.fetch_add(1);
  }
  if (plain) {
    print_plain(peer);
  } else if (is_verbose()) {
    print_notice("connection to " + peer.host + " port " + std::to_string(peer.port) +
                 ": left to the kernel's TCP, because " + destinations.reason(peer));
  }
  return error;
}

void note_end_of_kernel_connection(int fd) {
  note_key_goes(fd);
  const auto index = static_cast<std::size_t>(fd);
  if (index >= noted.size() || !noted[index].load(std::memory_order_relaxed)) return;
  if (!noted[index].exchange(false)) return;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  sockaddr_storage name{};
  socklen_t name_bytes = sizeof name;
  auto* address = reinterpret_cast<sockaddr*>(&name);
  if (next::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
  Destinations& destinations = Destinations::instance();
  if (info.tcpi_data_segs_in == 0) destinations.forget_plain();
  // One that the peer has reset has no name any more.
  if (next::getpeername(fd, address, &name_bytes) != 0) return;
  const std::size_t carried = info.tcpi_bytes_acked + info.tcpi_bytes_received;
  const Transfers transfers =
      info.tcpi_data_segs_in + info.tcpi_data_segs_out + carried / bytes_of_transfer;
  destinations.note_end(to_address(address, name_bytes, false), transfers);
}

}  // namespace weft::interpose
