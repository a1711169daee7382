// Chooses the row of the GID table, and the device, to use for a peer.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "verbs/device_search.h"
#include "verbs/failure.h"
#include "verbs/waiting.h"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"
#include "weft/verbs/rdma_cm.hpp"

namespace weft::verbs {
namespace {

// The port number (9: discard) is irrelevant, because nothing is sent.
// The scope is the index of an interface, for link-local addresses (RFC 4007 §11.2).
sockaddr_storage socket_address(const Gid& gid, unsigned scope) {
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
    address.sin6_scope_id = scope;
    std::memcpy(&address.sin6_addr, gid.bytes().data(), sizeof address.sin6_addr);
  }
  return storage;
}

// The form of an IPv4 address in a GID is the IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2).
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

// The source address that the host's routing table selects for the peer. connect(2) on a UDP socket
// looks up the route without sending a packet.
std::optional<Gid> routed_source(const Gid& peer, unsigned scope = 0) {
  const sockaddr_storage target = socket_address(peer, scope);
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

// fe80::/64, the prefix of link-local unicast addresses (RFC 4291 §2.5.6).
bool is_link_local(const Gid& gid) {
  return gid.subnet_prefix() == 0xFE80'0000'0000'0000;
}

// A link-local address has a route only together with an interface, which a GID cannot name. Tries
// the interfaces of the device's link-local rows in their order: the first one with a route is as
// good as any other.
std::optional<Gid> routed_source(const Gid& peer, const std::vector<GidEntry>& rows) {
  if (!is_link_local(peer)) return routed_source(peer);
  for (const GidEntry& row : rows) {
    if (!is_link_local(row.gid) || row.interface_index == 0) continue;
    if (const auto source = routed_source(peer, row.interface_index)) return source;
  }
  return std::nullopt;
}

Gid parse_peer(std::string_view peer) {
  const auto parsed = Gid::parse(peer);
  if (!parsed) detail::fail(EINVAL, fmt::format("\"{}\" is neither an IP address nor a GID", peer));
  return *parsed;
}

struct Candidates {
  std::optional<GidEntry> source;   // the source address of the host's route to the peer
  std::optional<GidEntry> similar;  // of the address family and scope of the peer
};

// Finds the rows that are suitable for the peer; the exact source address is preferred to a similar
// one.
Candidates candidates(std::vector<GidEntry> rows, const Gid& peer) {
  // Prefer RoCE v2 rows to v1 rows of the same address: they can be routed.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const GidEntry& a, const GidEntry& b) { return a.type > b.type; });
  const auto source = routed_source(peer, rows);
  Candidates found;
  for (const GidEntry& row : rows) {
    if (!found.source && source && row.gid == *source) found.source = row;
    const bool alike = same_family(row.gid, peer) && is_link_local(row.gid) == is_link_local(peer);
    if (!found.similar && alike) found.similar = row;
  }
  return found;
}

// The GID rows of ports that are active or armed.
// A port without a link cannot reach any peer, so its rows do not count.
std::vector<GidEntry> usable_rows(const Context& context) {
  std::vector<GidEntry> rows = context.gids();
  std::erase_if(rows, [&](const GidEntry& row) {
    return !context.query_port(static_cast<std::uint8_t>(row.port)).is_usable();
  });
  return rows;
}

// As rdma_cm takes it, with the interface of a link-local address.
std::string host_of(std::string_view peer) {
  const Gid gid = parse_peer(peer);
  if (!gid.is_ipv4_mapped()) return std::string(peer);
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, gid.bytes().data() + 12, text, sizeof text);
}

// What rdma_cm selects for a peer.
struct CmChoice {
  std::string device;  // its name; empty if rdma_cm finds none
  Gid source{Gid::Bytes{}};
};

// The GIDs of an iWARP adapter are made of its MAC address, those of an InfiniBand port of its
// GUID, so only rdma_cm knows which IP addresses they have.
CmChoice choice_of_rdma_cm(std::string_view peer, Backend backend) {
  constexpr std::chrono::milliseconds timeout{2000};
  constexpr std::uint16_t any_port = 9;
  try {
    const EventChannel events(backend);
    const Id id(events);
    id.resolve_address({host_of(peer), any_port}, timeout);
    const auto event = events.next(timeout);
    if (!event || event->type() != RDMA_CM_EVENT_ADDR_RESOLVED) return {};
    Gid::Bytes source{};
    std::memcpy(source.data(), id.raw()->route.addr.addr.ibaddr.sgid.raw, source.size());
    return {id.context().device_name(), Gid(source)};
  } catch (const Error&) {
    // A failure names no device: the caller then looks at the next one.
    return {};
  }
}

std::string device_by_rdma_cm(std::string_view peer, Backend backend) {
  return choice_of_rdma_cm(peer, backend).device;
}

// The row that rdma_cm uses as the source, of a port that has no IP addresses as GIDs. Where that
// is in no row, as towards this host itself, the first row leads to the peer as well: such a port
// has one for each subnet prefix.
std::optional<GidEntry> row_by_rdma_cm(const Context& context, std::string_view peer,
                                       const std::vector<GidEntry>& rows) {
  const CmChoice choice = choice_of_rdma_cm(peer, context.backend());
  if (choice.device != context.device_name()) return std::nullopt;
  const auto row = std::ranges::find(rows, choice.source, &GidEntry::gid);
  return row == rows.end() ? rows.front() : *row;
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
  if (!query_port(1).is_ethernet()) {
    if (const auto row = row_by_rdma_cm(*this, peer, rows)) {
      return {*row,
              fmt::format("rdma_cm leads to {} from the port of {}", peer, row->gid.to_string())};
    }
  }
  const bool iwarp = raw()->device->transport_type == IBV_TRANSPORT_IWARP;
  detail::fail(ENETUNREACH,
               fmt::format("none of the {} GIDs of {} can reach {}{}", rows.size(), device_name(),
                           peer, iwarp ? "; an iWARP device is connected by rdma_cm" : ""));
}

// Devices that cannot be opened are skipped. The first device with a merely similar address is kept
// open as the second choice until a device with the routed source address is found.
Context open_device_towards(std::string_view peer, Backend backend) {
  const Gid target = parse_peer(peer);
  detail::DeviceSearch search;
  std::optional<Context> second_best;
  std::optional<std::string> by_rdma_cm;
  for (const Device& device : devices(backend)) {
    std::optional<Context> context = search.open(device);
    if (!context) continue;
    const bool iwarp = device.transport() == IBV_TRANSPORT_IWARP;
    if (iwarp || !context->query_port(1).is_ethernet()) {
      if (!by_rdma_cm) by_rdma_cm = device_by_rdma_cm(peer, backend);
      if (*by_rdma_cm == device.name()) return *std::move(context);
      // The rows of a real iWARP adapter hold its MAC address, so they cannot be compared with the
      // peer. The rows of the embedded device are addresses of the host. Those of an InfiniBand
      // port match a peer that is given as a GID.
      if (iwarp && device.backend() == Backend::system) continue;
    }
    const auto [source, similar] = candidates(usable_rows(*context), target);
    // The route of the host is certain, so the search ends; a similar address is only a guess.
    if (source) return *std::move(context);
    if (similar && !second_best) second_best = std::move(context);
  }
  if (second_best) return *std::move(second_best);
  search.fail(ENETUNREACH, fmt::format("none of the devices can reach {}", peer));
}

}  // namespace weft::verbs
