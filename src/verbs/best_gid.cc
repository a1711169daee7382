// Which row of the GID table to use towards a peer, and of which device.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "verbs/device_search.h"
#include "verbs/failure.h"
#include "verbs/waiting.h"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"

namespace weft::verbs {
namespace {

sockaddr_storage socket_address(const Gid& gid) {
  sockaddr_storage storage{};
  constexpr std::uint16_t any_port = 9;
  if (gid.is_ipv4_mapped()) {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(any_port);
    std::memcpy(&address.sin_addr, gid.bytes().data() + 12, sizeof address.sin_addr);
  } else {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(any_port);
    std::memcpy(&address.sin6_addr, gid.bytes().data(), sizeof address.sin6_addr);
  }
  return storage;
}

Gid gid_of(const sockaddr_storage& storage) {
  Gid::Bytes bytes{};
  if (storage.ss_family == AF_INET) {
    bytes[10] = bytes[11] = 0xFF;
    std::memcpy(bytes.data() + 12, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
  } else {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, 16);
  }
  return Gid(bytes);
}

// The address that the host's routing would send from. No packet leaves for that.
std::optional<Gid> routed_source(const Gid& peer) {
  const sockaddr_storage target = socket_address(peer);
  const int fd = socket(target.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  const socklen_t bytes = target.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  sockaddr_storage local{};
  socklen_t local_bytes = sizeof local;
  const bool known = connect(fd, reinterpret_cast<const sockaddr*>(&target), bytes) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_bytes) == 0;
  close(fd);
  return known ? std::optional(gid_of(local)) : std::nullopt;
}

bool same_family(const Gid& a, const Gid& b) {
  return a.is_ipv4_mapped() == b.is_ipv4_mapped();
}

bool is_link_local(const Gid& gid) {
  return gid.subnet_prefix() == 0xFE80'0000'0000'0000;
}

}  // namespace

namespace {

Gid parse_peer(std::string_view peer) {
  const auto parsed = Gid::parse(peer);
  if (!parsed) detail::fail(EINVAL, fmt::format("\"{}\" is no IP address and no GID", peer));
  return *parsed;
}

struct Candidates {
  std::optional<GidEntry> source;   // where packets to the peer leave from
  std::optional<GidEntry> similar;  // of the same kind as the peer's address
};

Candidates candidates(std::vector<GidEntry> rows, const Gid& peer) {
  // RoCE v2 before v1 where both are there.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const GidEntry& a, const GidEntry& b) { return a.type > b.type; });
  const auto source = routed_source(peer);
  Candidates found;
  for (const GidEntry& row : rows) {
    if (!found.source && source && row.gid == *source) found.source = row;
    const bool alike = same_family(row.gid, peer) && is_link_local(row.gid) == is_link_local(peer);
    if (!found.similar && alike) found.similar = row;
  }
  return found;
}

// Of the ports that work.
std::vector<GidEntry> usable_rows(const Context& context) {
  std::vector<GidEntry> rows = context.gids();
  std::erase_if(rows, [&](const GidEntry& row) {
    return !context.query_port(static_cast<std::uint8_t>(row.port)).is_usable();
  });
  return rows;
}

}  // namespace

GidChoice Context::best_gid(std::string_view peer) const {
  const std::vector<GidEntry> rows = gids();
  const auto [source, similar] = candidates(rows, parse_peer(peer));
  if (source) {
    const std::string gid = source->gid.to_string();
    return {*source, fmt::format("{} is where packets to {} leave from", gid, peer)};
  }
  if (similar) {
    const std::string gid = similar->gid.to_string();
    return {*similar, fmt::format("{} is of the same kind as {}", gid, peer)};
  }
  if (rows.empty()) detail::fail(ENETUNREACH, "the device has no GID");
  detail::fail(ENETUNREACH, fmt::format("none of the {} GIDs of {} can reach {}", rows.size(),
                                        device_name(), peer));
}

Context open_device_towards(std::string_view peer, Backend backend) {
  const Gid target = parse_peer(peer);
  detail::DeviceSearch search;
  std::optional<Context> second_best;
  for (const Device& device : devices(backend)) {
    std::optional<Context> context = search.open(device);
    if (!context) continue;
    const auto [source, similar] = candidates(usable_rows(*context), target);
    if (source) return *std::move(context);
    if (similar && !second_best) second_best = std::move(context);
  }
  if (second_best) return *std::move(second_best);
  search.fail(ENETUNREACH, fmt::format("none of the devices can reach {}", peer));
}

}  // namespace weft::verbs
