// The rows of the GID table. As adapters for RoCE show it, each address has two rows in roce: first
// as RoCE v1, then as RoCE v2. So programs that search for a usable row find one, and those that
// take index 0 or 1 without looking reach the same address. In iwarp and ib each address
// has one row.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>

#include "device/addresses.h"

namespace weft::device {

class Device;

// The first half of GUIDs: locally administered. The other half is that of an IPv4 address, or the
// end of an IPv6 one.
inline constexpr std::array<unsigned char, 4> guid_begin{0x02, 'w', 'e', 0xFF};

[[nodiscard]] std::size_t gid_table_size(const Device& device);
// Null for an index beyond the table.
[[nodiscard]] const LocalAddress* address_of_row(const Device& device, std::size_t index);
// What the row claims to be. All rows of an address work alike, because packets have one format.
[[nodiscard]] ibv_gid_type type_of_row(const Device& device, std::size_t index);
// The RoCE v2 row of the address at this position of Device::addresses().
[[nodiscard]] std::size_t row_of_address(const Device& device, std::size_t position);

// The GID by which programs see the address. In ib an IPv4 address is fe80::/64, InfiniBand's
// default subnet prefix, and a GUID that ends in the address: fe80::277:65ff:7f00:1 for 127.0.0.1.
// Of groups, and in the other personalities, it is gid_of().
[[nodiscard]] ibv_gid shown_gid(const Device& device, const sockaddr_storage& address);
// The reverse: what gid_of() makes of the address. GIDs of other forms stay as they are.
[[nodiscard]] ibv_gid plain_gid(const Device& device, const ibv_gid& gid);

}  // namespace weft::device
