#include "device/gid_table.h"

#include <algorithm>

#include "device/datagram/datagram_packet.h"
#include "device/device.h"

namespace weft::device {
namespace {

constexpr std::array<unsigned char, 2> subnet_prefix{0xFE, 0x80};  // and six bytes of 0
constexpr std::size_t prefix_bytes = 8;
constexpr std::size_t ipv4_offset = 12;

// What precedes the IPv4 address in a GID of ib.
ibv_gid subnet_gid() {
  ibv_gid gid{};
  std::copy(subnet_prefix.begin(), subnet_prefix.end(), gid.raw);
  std::copy(guid_begin.begin(), guid_begin.end(), gid.raw + prefix_bytes);
  return gid;
}

// WEFT_GIDS=one is for programs that fail where there are several rows.
std::size_t rows_per_address(const Device& device) {
  return device.is_roce() && !device.has_lids() && device.settings().gids != GidTable::one ? 2 : 1;
}

}  // namespace

std::size_t gid_table_size(const Device& device) {
  return device.addresses().size() * rows_per_address(device);
}

const LocalAddress* address_of_row(const Device& device, std::size_t index) {
  if (index >= gid_table_size(device)) return nullptr;
  return &device.addresses()[index / rows_per_address(device)];
}

// A single row on Ethernet is v2, because GIDs are IP addresses. The kernel has one constant for
// RoCE v1 and InfiniBand; the link layer distinguishes them.
ibv_gid_type type_of_row(const Device& device, std::size_t index) {
  if (device.has_lids()) return IBV_GID_TYPE_IB;
  const std::size_t rows = rows_per_address(device);
  return index % rows == rows - 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
}

// The v2 row, because that is what an IP packet means.
std::size_t row_of_address(const Device& device, std::size_t position) {
  const std::size_t rows = rows_per_address(device);
  return position * rows + rows - 1;
}

ibv_gid shown_gid(const Device& device, const sockaddr_storage& address) {
  const ibv_gid plain = gid_of(address);
  const bool unicast = address_of(plain).ss_family == AF_INET && !is_multicast(plain);
  if (!device.has_lids() || !unicast) return plain;
  ibv_gid shown = subnet_gid();
  std::copy(plain.raw + ipv4_offset, std::end(plain.raw), shown.raw + ipv4_offset);
  return shown;
}

// The mapped form of RFC 4291 §2.5.5.2, as gid_of() makes it.
ibv_gid plain_gid(const Device& device, const ibv_gid& gid) {
  const ibv_gid begin = subnet_gid();
  if (!device.has_lids() || !std::equal(gid.raw, gid.raw + ipv4_offset, begin.raw)) return gid;
  ibv_gid plain{};
  plain.raw[10] = plain.raw[11] = 0xFF;
  std::copy(gid.raw + ipv4_offset, std::end(gid.raw), plain.raw + ipv4_offset);
  return plain;
}

}  // namespace weft::device
