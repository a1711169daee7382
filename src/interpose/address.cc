#include "interpose/address.h"

#include <arpa/inet.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "interpose/next.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(family, address, text.data(), text.size());
}

// Linux takes a connect(2) to the unspecified address as one to the loopback address.
stream::Address from_ipv4(const sockaddr_in& address, bool connecting) {
  std::string host = text_of(AF_INET, &address.sin_addr);
  if (connecting && address.sin_addr.s_addr == htonl(INADDR_ANY)) host = "127.0.0.1";
  return {host, ntohs(address.sin_port)};
}

stream::Address from_ipv6(const sockaddr_in6& address, bool connecting) {
  const std::uint16_t port = ntohs(address.sin6_port);
  // An IPv4-mapped address means IPv4 (RFC 4291 §2.5.5.2), so the stream gets its IPv4 form.
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    return {text_of(AF_INET, &address.sin6_addr.s6_addr[12]), port};
  }
  if (connecting && IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr)) return {"::1", port};
  std::string host = text_of(AF_INET6, &address.sin6_addr);
  std::array<char, IF_NAMESIZE> name{};
  // A link-local address is complete only with its interface (RFC 4007 §11).
  if (address.sin6_scope_id != 0 && if_indextoname(address.sin6_scope_id, name.data())) {
    host += std::string("%") + name.data();
  }
  return {host, port};
}

// A socket of AF_INET6 shows IPv4 addresses in their mapped form, as the kernel does (ipv6(7)).
sockaddr_storage ipv4(const in_addr& host, std::uint16_t port, int family) {
  sockaddr_storage made = empty_address(family);
  if (family == AF_INET) {
    auto& address = reinterpret_cast<sockaddr_in&>(made);
    address.sin_addr = host;
    address.sin_port = htons(port);
    return made;
  }
  auto& address = reinterpret_cast<sockaddr_in6&>(made);
  address.sin6_addr.s6_addr[10] = address.sin6_addr.s6_addr[11] = 0xFF;
  std::memcpy(&address.sin6_addr.s6_addr[12], &host, sizeof host);
  address.sin6_port = htons(port);
  return made;
}

// Port 0 stays, because it means any port.
void move_port(sockaddr_storage& address, int by) {
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return;
  auto& port = reinterpret_cast<sockaddr_in&>(address).sin_port;
  if (port != 0) port = htons(static_cast<std::uint16_t>(ntohs(port) + by));
}

}  // namespace

// The order of the checks is that of the kernel.
void check_name(const sockaddr* address, socklen_t bytes) {
  if (bytes > sizeof(sockaddr_storage)) throw Error(EINVAL, "the address is too long");
  if (!address && bytes > 0) throw Error(EFAULT, "no address");
}

stream::Address to_address(const sockaddr* address, socklen_t bytes, bool connecting) {
  check_name(address, bytes);
  if (bytes < sizeof(sa_family_t)) throw Error(EINVAL, "no address");
  if (address->sa_family == AF_INET && bytes >= sizeof(sockaddr_in)) {
    sockaddr_in known{};
    std::memcpy(&known, address, sizeof known);
    return from_ipv4(known, connecting);
  }
  if (address->sa_family == AF_INET6 && bytes >= sizeof(sockaddr_in6)) {
    sockaddr_in6 known{};
    std::memcpy(&known, address, sizeof known);
    return from_ipv6(known, connecting);
  }
  const bool is_known = address->sa_family == AF_INET || address->sa_family == AF_INET6;
  throw Error(is_known ? EINVAL : EAFNOSUPPORT, "the address is neither IPv4 nor IPv6");
}

sockaddr_storage empty_address(int family) {
  sockaddr_storage none{};
  none.ss_family = static_cast<sa_family_t>(family);
  return none;
}

sockaddr_storage parse_address(const std::string& text, int family) {
  // The last colon is that of the port; those of an IPv6 address are inside brackets.
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return empty_address(family);
  const auto port = static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1));
  std::string host = text.substr(0, colon);
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ipv4(four, port, family);
  sockaddr_storage made = empty_address(AF_INET6);
  auto& address = reinterpret_cast<sockaddr_in6&>(made);
  const auto percent = host.find('%');
  if (percent != std::string::npos) {
    address.sin6_scope_id = if_nametoindex(host.c_str() + percent + 1);
    host.resize(percent);
  }
  address.sin6_port = htons(port);
  if (inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) != 1) return empty_address(family);
  return made;
}

std::string to_text(const stream::Address& address) {
  const bool six = address.host.find(':') != std::string::npos;
  return (six ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

sockaddr_storage address_of(const stream::Address& peer, int family) {
  return parse_address(to_text(peer), family);
}

std::uint16_t port_offset() {
  const char* offset = secure_getenv("WEFT_PORT_OFFSET");
  return offset ? static_cast<std::uint16_t>(std::atoi(offset)) : 0;
}

// The port has the same place in both families.
std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

KernelName to_kernel_name(const sockaddr* address, socklen_t bytes) {
  KernelName name{.bytes = std::min<socklen_t>(bytes, sizeof(sockaddr_storage))};
  if (address) std::memcpy(&name.address, address, name.bytes);
  move_port(name.address, port_offset());
  return name;
}

sockaddr_storage local_name_of(int kernel) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  next::getsockname(kernel, reinterpret_cast<sockaddr*>(&name), &bytes);
  move_port(name, -port_offset());
  return name;
}

socklen_t size_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

// As getsockname(2) requires: a short buffer cuts the address, and the full size is returned.
void copy_out(const sockaddr_storage& from, sockaddr* address, socklen_t* bytes) {
  if (!address || !bytes) return;
  // The length is an int to the kernel.
  if (*bytes > INT_MAX) throw Error(EINVAL, "a negative length of an address");
  std::memcpy(address, &from, std::min(size_of(from), *bytes));
  *bytes = size_of(from);
}

}  // namespace weft::interpose
