#include "device/route.h"

#include <cstdint>

#include "device/addresses.h"
#include "device/system.h"

namespace weft::device {
namespace {

const sockaddr* generic(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace

// Connects a datagram socket, which sends nothing but consults the routing table.
int choose_source(const sockaddr_storage& destination, sockaddr_storage& source) {
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

}  // namespace weft::device
