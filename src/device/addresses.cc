#include "device/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <tuple>

#include "base/simulated_kernel.h"
#include "device/system.h"

namespace weft::device {
namespace {

const sockaddr_in& as_ipv4(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in&>(address);
}

const sockaddr_in6& as_ipv6(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in6&>(address);
}

// A link-local address means nothing without its interface, so it needs a scope.
bool link_local(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&as_ipv6(address).sin6_addr);
}

// The MTU stays at Ethernet's 1500 bytes if the interface does not report one.
LocalAddress describe(const ifaddrs& entry) {
  LocalAddress local;
  const bool ipv4 = entry.ifa_addr->sa_family == AF_INET;
  std::memcpy(&local.address, entry.ifa_addr, ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  local.interface = entry.ifa_name;
  local.interface_index = if_nametoindex(entry.ifa_name);
  if (const int mtu_bytes = sys::interface_mtu(entry.ifa_name); mtu_bytes > 0) {
    local.mtu_bytes = static_cast<std::uint32_t>(mtu_bytes);
  }
  if (ipv4 && entry.ifa_netmask) {
    const auto& mask = reinterpret_cast<const sockaddr_in&>(*entry.ifa_netmask);
    local.prefix_bits = static_cast<unsigned>(std::popcount(mask.sin_addr.s_addr));
  }
  local.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  return local;
}

}  // namespace

// The order decides the GID indices, so it must not depend on the kernel's order: a stable sort by
// rank.
Result<std::vector<LocalAddress>, std::string> local_addresses() {
  std::vector<LocalAddress> found;
  if (SimulatedKernel* kernel = SimulatedKernel::current()) {
    constexpr unsigned prefix_bits = 24;
    for (const sockaddr_storage& address : kernel->addresses()) {
      found.push_back({.address = address,
                       .interface_index = 1,
                       .interface = "simulated",
                       .prefix_bits = prefix_bits});
    }
    return found;
  }
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return "cannot list the network interfaces: " + std::generic_category().message(errno);
  }
  for (const ifaddrs* entry = all; entry; entry = entry->ifa_next) {
    // getifaddrs(3): interfaces without an address have a null pointer here.
    if (!entry->ifa_addr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) found.push_back(describe(*entry));
  }
  freeifaddrs(all);
  std::stable_sort(found.begin(), found.end(), [](const LocalAddress& a, const LocalAddress& b) {
    const auto rank = [](const LocalAddress& local) {
      // IPv4 addresses that other hosts can reach first: programs take the first GID. Loopback
      // last.
      return std::tuple(local.loopback, local.address.ss_family != AF_INET,
                        link_local(local.address));
    };
    return rank(a) < rank(b);
  });
  return found;
}

// RFC 4291 §2.5.5.2: IPv4 addresses are mapped into ::ffff:0:0/96.
ibv_gid gid_of(const sockaddr_storage& address) {
  ibv_gid gid{};
  if (address.ss_family == AF_INET6) {
    std::memcpy(gid.raw, &as_ipv6(address).sin6_addr, sizeof gid.raw);
  } else {
    gid.raw[10] = gid.raw[11] = 0xFF;
    std::memcpy(gid.raw + 12, &as_ipv4(address).sin_addr, 4);
  }
  return gid;
}

sockaddr_storage address_of(const ibv_gid& gid) {
  sockaddr_storage address{};
  in6_addr raw{};
  std::memcpy(&raw, gid.raw, sizeof raw);
  if (IN6_IS_ADDR_V4MAPPED(&raw)) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
    ipv4.sin_family = AF_INET;
    std::memcpy(&ipv4.sin_addr, gid.raw + 12, sizeof ipv4.sin_addr);
  } else {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_addr = raw;
  }
  return address;
}

void set_scope(sockaddr_storage& address, unsigned interface_index) {
  if (link_local(address)) reinterpret_cast<sockaddr_in6&>(address).sin6_scope_id = interface_index;
}

// Compares as GIDs, so a mapped IPv4 address equals the plain one.
bool same_host_address(const sockaddr_storage& a, const sockaddr_storage& b) {
  const ibv_gid left = gid_of(a);
  const ibv_gid right = gid_of(b);
  return std::memcmp(left.raw, right.raw, sizeof left.raw) == 0;
}

bool is_any_address(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return as_ipv4(address).sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&as_ipv6(address).sin6_addr);
}

// 127.0.0.0/8, also mapped, and ::1.
bool is_loopback_address(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohl(as_ipv4(address).sin_addr.s_addr) >> 24 == 127;
  const in6_addr& ipv6 = as_ipv6(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return ipv6.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&ipv6);
}

bool stays_on_host(const sockaddr_storage& source, const sockaddr_storage& destination) {
  return is_loopback_address(destination) || same_host_address(source, destination);
}

std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET ? as_ipv4(address).sin_port
                                            : as_ipv6(address).sin6_port);
}

void set_port(sockaddr_storage& address, std::uint16_t port) {
  if (address.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  }
}

AddressKey key_of(const sockaddr_storage& address) {
  AddressKey key{};
  const ibv_gid gid = gid_of(address);
  std::copy_n(gid.raw, sizeof gid.raw, key.begin());
  const std::uint16_t port = port_of(address);
  key[16] = static_cast<std::uint8_t>(port >> 8);
  key[17] = static_cast<std::uint8_t>(port & 0xFF);
  return key;
}

socklen_t length_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::string to_string(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &as_ipv4(address).sin_addr, text.data(), text.size());
    return std::string(text.data()) + ":" + std::to_string(port_of(address));
  }
  inet_ntop(AF_INET6, &as_ipv6(address).sin6_addr, text.data(), text.size());
  return "[" + std::string(text.data()) + "]:" + std::to_string(port_of(address));
}

// Numeric only: a name would need a resolver, which may block and gives several answers.
bool parse_address(const std::string& text, sockaddr_storage& address) {
  address = {};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
  if (inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    return true;
  }
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
  if (inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr) != 1) return false;
  ipv6.sin6_family = AF_INET6;
  return true;
}

}  // namespace weft::device
