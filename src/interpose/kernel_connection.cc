#include "interpose/kernel_connection.h"

#include <fcntl.h>
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

// A server on this host accepts at once, unless its queue is full.
constexpr int patience_ms = 1000;

// Descriptors of connections by this file. Those above are not noted: no more is learnt from them.
constinit std::array<std::atomic<bool>, 65536> noted{};

// Connects without blocking. Returns 0 or the errno value that connect(2) gave; another one if the
// server does not accept in time.
int start_connection(int kernel, const sockaddr_storage& address, int timeout_ms) {
  set_blocking(kernel, false);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  if (next::connect(kernel, name, size_of(address)) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd entry{kernel, POLLOUT, 0};
  if (next::poll(&entry, 1, timeout_ms) <= 0) return EAGAIN;
  return entry.revents == POLLOUT ? EINPROGRESS : ECONNREFUSED;
}

bool send_key(int kernel) {
  return next::send(kernel, agreed_key.data(), agreed_key.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(agreed_key.size());
}

// Puts the file `kernel` in the place of the program's descriptor, which keeps its close-on-exec
// flag.
bool replace_file(int fd, int kernel) {
  const int flags = next::fcntl(fd, F_GETFD, nullptr);
  if (flags < 0) return false;
  forget(fd);  // its number is the kernel's business from now on
  return next::dup3(kernel, fd, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) == fd;
}

}  // namespace

std::optional<int> connect_by_kernel(const std::shared_ptr<Socket>& socket, int fd,
                                     const stream::Address& peer) {
  if (!socket->may_become_kernels()) return std::nullopt;
  Destinations& destinations = Destinations::instance();
  if (!destinations.prefers_kernel(peer)) return std::nullopt;
  const int kernel = socket->kernel_fd();
  const auto address = address_of(peer, socket->family());
  const int error =
      kernel < 0 ? EBADF
                 : start_connection(kernel, address, socket->nonblocking() ? 0 : patience_ms);
  // Whatever goes wrong here, the attempt by a stream finds out why, and says it.
  if ((error != 0 && error != EINPROGRESS) || !destinations.still_offered(peer) ||
      !send_key(kernel)) {
    socket->renew_kernel_socket();
    return std::nullopt;
  }
  if (!socket->nonblocking()) set_blocking(kernel, true);
  if (!replace_file(fd, kernel)) return EBADF;
  const auto index = static_cast<std::size_t>(fd);
  if (index < noted.size()) noted[index] = true;
  if (is_verbose()) {
    print_notice("connection to " + peer.host + " port " + std::to_string(peer.port) +
                 ": left to the kernel's TCP, because " + destinations.reason(peer));
  }
  return socket->nonblocking() ? error : 0;
}

void note_end_of_kernel_connection(int fd) {
  const auto index = static_cast<std::size_t>(fd);
  if (index >= noted.size() || !noted[index].load(std::memory_order_relaxed)) return;
  if (!noted[index].exchange(false)) return;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  sockaddr_storage name{};
  socklen_t name_bytes = sizeof name;
  auto* address = reinterpret_cast<sockaddr*>(&name);
  if (next::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
      next::getpeername(fd, address, &name_bytes) != 0) {
    return;
  }
  const std::size_t carried = info.tcpi_bytes_acked + info.tcpi_bytes_received;
  const Transfers transfers =
      info.tcpi_data_segs_in + info.tcpi_data_segs_out + carried / bytes_of_transfer;
  Destinations::instance().note_end(to_address(address, name_bytes, false), transfers);
}

}  // namespace weft::interpose
