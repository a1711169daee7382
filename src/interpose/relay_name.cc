#include "interpose/relay_name.h"

#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/kernel_random.h"
#include "interpose/next.h"

namespace weft::interpose {
namespace {

constexpr std::array<char, 12> name_prefix{0,   'w', 'e', 'f', 't', '-',
                                           'r', 'e', 'l', 'a', 'y', '/'};
// Of either family: sockaddr_in is shorter.
constexpr std::size_t address_bytes = sizeof(sockaddr_in6);

struct Name {
  std::array<char, name_prefix.size()> prefix{};
  std::array<std::byte, address_bytes> local{};
  std::array<std::byte, address_bytes> peer{};
  std::uint64_t unique = 0;  // two connections may have the same addresses, one after the other
};
static_assert(sizeof(Name) <= sizeof(sockaddr_un::sun_path));
constexpr socklen_t name_bytes = offsetof(sockaddr_un, sun_path) + sizeof(Name);

sockaddr_storage unpacked(const std::array<std::byte, address_bytes>& bytes) {
  sockaddr_storage address{};
  std::memcpy(&address, bytes.data(), bytes.size());
  return address;
}

bool is_internet(const sockaddr_storage& address) {
  return address.ss_family == AF_INET || address.ss_family == AF_INET6;
}

// Any program may give its sockets such a name, so it counts who has made the pair.
bool is_ours(int fd) {
  ucred owner{};
  socklen_t bytes = sizeof owner;
  return next::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &bytes) == 0 &&
         (owner.uid == 0 || owner.uid == geteuid());
}

}  // namespace

void name_relay(int relay_end, const RelayNames& names) {
  Name name{.prefix = name_prefix};
  std::memcpy(name.local.data(), &names.local, name.local.size());
  std::memcpy(name.peer.data(), &names.peer, name.peer.size());
  fill_random(std::as_writable_bytes(std::span(&name.unique, 1)));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path, &name, sizeof name);
  next::bind(relay_end, reinterpret_cast<const sockaddr*>(&address), name_bytes);
}

std::optional<RelayNames> relay_names(int fd) {
  sockaddr_un address{};
  socklen_t bytes = sizeof address;
  if (next::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return {};
  Name name;
  if (address.sun_family != AF_UNIX || bytes != name_bytes) return {};
  std::memcpy(&name, address.sun_path, sizeof name);
  if (name.prefix != name_prefix || !is_ours(fd)) return {};
  const RelayNames names{unpacked(name.local), unpacked(name.peer)};
  if (!is_internet(names.local) || !is_internet(names.peer)) return {};
  return names;
}

}  // namespace weft::interpose
