// LIDs of the personality ib. The LID of a port is the low 16 bits of its IPv4 address. LIDs from
// 0xC000 on belong to multicast groups, so bit 15 is cleared there: 192.168.200.5 has 0x4805.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/addresses.h"

namespace weft::device {

class Device;

// 0 for an address that has none: IPv6, and IPv4 addresses that end in 0.0.
[[nodiscard]] std::uint16_t lid_of(const sockaddr_storage& address);
// A sentence if the address has no LID; otherwise empty.
[[nodiscard]] std::string check_lid(const LocalAddress& local);
// The LID of the port; 0 in the personalities without LIDs.
[[nodiscard]] std::uint16_t lid_of_port(const Device& device);

// Finds the peer of `local` that has the LID: its own address, or the one whose other bits are
// those of `local`. Where the subnet is so large that several of its addresses may have the LID,
// `known` is asked for the addresses that this host has or has talked to; if exactly one of them
// has the LID, it is the peer. Nothing for a LID that no unicast address can have.
using KnownAddresses = std::vector<sockaddr_storage> (*)(const LocalAddress& local);
[[nodiscard]] std::optional<sockaddr_storage> find_by_lid(const LocalAddress& local,
                                                          std::uint16_t lid, KnownAddresses known);
// The addresses of this host, and those in its ARP table (proc_net(5)).
[[nodiscard]] std::vector<sockaddr_storage> known_addresses(const LocalAddress& local);

// Where a path begins and ends.
struct PathEnds {
  const LocalAddress* local = nullptr;
  ibv_gid destination{};  // as gid_of() makes it, in all personalities
};

// Reads an address vector, with a GID or with a LID only. 0 or EINVAL. Where the lack of a LID is
// at fault, a line on stderr names the remedy, once for each process.
int path_ends(const Device& device, const ibv_ah_attr& vector, PathEnds& ends);

}  // namespace weft::device
