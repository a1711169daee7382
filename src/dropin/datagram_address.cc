#include "dropin/datagram_address.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "dropin/rsocket.h"

namespace weft::dropin {
namespace {

// A receiver drops a datagram with another version, so that the format can change later.
constexpr std::uint8_t version = 1;
// Not AF_INET and AF_INET6, whose numbers differ between systems: these are sent to the peer.
constexpr std::uint8_t ipv4 = 4;
constexpr std::uint8_t ipv6 = 6;

}  // namespace

// Callers pass addresses of these two families only. The bytes are copied, because reading a
// sockaddr_storage through another type breaks the aliasing rules.
DatagramAddress DatagramAddress::of(const sockaddr_storage& address) {
  DatagramAddress made;
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    made.family = ipv6;
    std::memcpy(made.port.data(), &in.sin6_port, made.port.size());
    std::memcpy(made.host.data(), &in.sin6_addr, sizeof in.sin6_addr);
  } else {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    made.family = ipv4;
    std::memcpy(made.port.data(), &in.sin_port, made.port.size());
    std::memcpy(made.host.data(), &in.sin_addr, sizeof in.sin_addr);
  }
  return made;
}

// The bytes come from the network, and nothing about them is assumed. The message follows the
// address, so that `from` may be longer.
std::optional<DatagramAddress> DatagramAddress::read(std::span<const std::byte> from) {
  if (from.size() < wire_bytes || from[0] != std::byte{version}) return std::nullopt;
  DatagramAddress made;
  made.family = static_cast<std::uint8_t>(from[1]);
  if (made.family != ipv4 && made.family != ipv6) return std::nullopt;
  std::memcpy(made.port.data(), from.data() + 2, made.port.size());
  std::memcpy(made.host.data(), from.data() + 4, made.host.size());
  return made;
}

// The length is the same for both families, so that the message begins at a fixed place.
void DatagramAddress::write(std::span<std::byte> to) const {
  to[0] = std::byte{version};
  to[1] = std::byte{family};
  std::memcpy(to.data() + 2, port.data(), port.size());
  std::memcpy(to.data() + 4, host.data(), host.size());
}

// The scope and the flow label of an IPv6 address are zero: they are not sent, since a scope has a
// meaning on one host only.
sockaddr_storage DatagramAddress::to_sockaddr() const {
  sockaddr_storage made{};
  if (family == ipv6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    std::memcpy(&in.sin6_port, port.data(), port.size());
    std::memcpy(&in.sin6_addr, host.data(), sizeof in.sin6_addr);
    std::memcpy(&made, &in, sizeof in);
  } else {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    std::memcpy(&in.sin_port, port.data(), port.size());
    std::memcpy(&in.sin_addr, host.data(), sizeof in.sin_addr);
    std::memcpy(&made, &in, sizeof in);
  }
  return made;
}

stream::Address DatagramAddress::to_text() const {
  const sockaddr_storage address = to_sockaddr();
  return to_address(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

}  // namespace weft::dropin
