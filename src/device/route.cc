#include "device/route.h"

#include <netinet/in.h>

#include <atomic>
#include <cstdint>

#include "base/simulated_kernel.h"
#include "device/addresses.h"
#include "device/system.h"

namespace weft::device {
namespace {

const sockaddr* generic(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Connects a datagram socket, which sends nothing but consults the routing table.
int ask_for_source(const sockaddr_storage& destination, sockaddr_storage& source) {
  sys::Descriptor probe(sys::socket(destination.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return -probe.release();
  // Checks at the same time that the address belongs to this host: EADDRNOTAVAIL otherwise.
  if (source.ss_family != AF_UNSPEC) {
    sockaddr_storage from = source;
    set_port(from, 0);
    const int bound = sys::bind(probe.get(), generic(from), length_of(from));
    if (bound < 0) return -bound;
  }
  sockaddr_storage to = destination;
  constexpr std::uint16_t any_port = 9;  // discard: any port will do, except 0, which is refused
  set_port(to, any_port);
  const int connected = sys::connect(probe.get(), generic(to), length_of(to));
  if (connected < 0) return -connected;
  sys::local_address(probe.get(), &source);
  set_port(source, 0);
  return 0;
}

// 127.0.0.1 and ::1.
bool is_the_loopback_address(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return ipv4.sin_addr.s_addr == htonl(INADDR_LOOPBACK);
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&ipv6.sin6_addr);
}

// Whether the kernel has named each of them as its own source, which it does while the interface is
// up. It is asked once, because that hardly ever changes. Where it does, as in a new network
// namespace, the next connection fails instead of the look-up of its address.
struct OwnSources {
  std::atomic<bool> ipv4{false};
  std::atomic<bool> ipv6{false};
};
constinit OwnSources own_sources;

}  // namespace

int choose_source(const sockaddr_storage& destination, sockaddr_storage& source) {
  if (source.ss_family != AF_UNSPEC || !is_the_loopback_address(destination)) {
    return ask_for_source(destination, source);
  }
  auto& known = destination.ss_family == AF_INET ? own_sources.ipv4 : own_sources.ipv6;
  if (!SimulatedKernel::current() && known.load(std::memory_order_relaxed)) {
    source = destination;
    set_port(source, 0);
    return 0;
  }
  const int failed = ask_for_source(destination, source);
  if (failed == 0 && !SimulatedKernel::current() && same_host_address(source, destination)) {
    known = true;
  }
  return failed;
}

}  // namespace weft::device
