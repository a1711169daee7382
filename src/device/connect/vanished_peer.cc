// TCP notices a host that vanished only after about 15 minutes of retransmissions, or never while
// nothing is sent.
#include "device/connect/vanished_peer.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "device/system.h"

namespace weft::device {

bool peer_is_silent(int fd, std::uint64_t timeout_ns, std::uint64_t waited_ns) {
  if (waited_ns < timeout_ns) return false;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (sys::get_option(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0) return false;
  // One probe may be under way at any time; a second one means that the first found no answer.
  // Silence alone means nothing: the peer may have nothing to send. It counts while TCP waits for
  // an answer.
  const bool asks = info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
  constexpr std::uint64_t ns_per_ms = 1'000'000;
  return asks && info.tcpi_last_ack_recv * ns_per_ms >= timeout_ns;
}

namespace {

// tcp(7): idle time and interval are in seconds.
void set_keepalive(int fd, int idle_s, int interval_s, int probes) {
  sys::set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  sys::set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  sys::set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, probes);
  sys::set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

}  // namespace

void keep_alive(int fd, bool on, std::uint64_t timeout_ns) {
  constexpr std::uint64_t ns_per_s = 1'000'000'000;
  // The kernel's unit is a second. Three probes at least: one may be lost.
  const auto probes = static_cast<int>(std::clamp<std::uint64_t>(timeout_ns / ns_per_s, 3, 100));
  if (on) return set_keepalive(fd, 1, 1, probes);
  sys::set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 0);
}

// Two minutes until a vanished peer is noticed.
void keep_alive_while_idle(int fd) {
  set_keepalive(fd, 60, 10, 6);
}

}  // namespace weft::device
