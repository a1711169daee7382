#include "device/datagram/address_handle.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "device/addresses.h"
#include "device/connect/slots.h"
#include "device/device.h"
#include "device/gid_table.h"
#include "device/lid.h"

namespace weft::device {
namespace {

// Defaults for attributes with hop limit 0.
constexpr std::uint8_t usual_hop_limit = 64;
constexpr std::uint8_t usual_group_hop_limit = 1;  // RFC 1112 §6.1

// GIDs of IPv4 addresses are IPv6 addresses in mapped form (RFC 4291 §2.5.5.2).
ibv_gid mapped(const wire::Ipv4Address& address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xFF;
  std::memcpy(gid.raw + 12, address.data(), address.size());
  return gid;
}

ibv_gid gid_from(const wire::Ipv6Address& address) {
  ibv_gid gid{};
  std::memcpy(gid.raw, address.data(), address.size());
  return gid;
}

// The addresses in the 40 header bytes of a receive.
struct Ends {
  ibv_gid source{};
  ibv_gid destination{};
  std::uint8_t traffic_class = 0;
};

// Reads the header that DatagramHeaders::emit_grh() writes: an IPv6 header in 40 bytes, or an IPv4
// header in the last 20. The IPv4 checksum distinguishes it from arbitrary bytes.
bool read_ends(Bytes grh, Ends& ends) {
  const Bytes behind = grh.last(wire::Ipv4Header::min_header_bytes);
  const auto ipv6 = wire::Ipv6Header::parse(grh);
  const auto ipv4 = wire::Ipv4Header::parse(behind);
  if (ipv6) {
    ends = {gid_from(ipv6->source), gid_from(ipv6->destination), ipv6->traffic_class};
  } else if (ipv4 && wire::ipv4_checksum_ok(behind)) {
    ends = {mapped(ipv4->source), mapped(ipv4->destination), ipv4->traffic_class};
  } else {
    return false;
  }
  return true;
}

// Finds the GID index of the packet's destination address; for a group, the first address of its
// family.
bool find_gid(const Device& device, const ibv_gid& destination, std::uint8_t& index) {
  const auto& addresses = device.addresses();
  const sockaddr_storage wanted = address_of(plain_gid(device, destination));
  auto found = std::find_if(addresses.begin(), addresses.end(), [&](const LocalAddress& local) {
    return same_host_address(local.address, wanted);
  });
  if (found == addresses.end()) {
    found = std::find_if(addresses.begin(), addresses.end(), [&](const LocalAddress& local) {
      return local.address.ss_family == wanted.ss_family;
    });
  }
  if (found == addresses.end()) return false;
  const auto position = static_cast<std::size_t>(found - addresses.begin());
  index = static_cast<std::uint8_t>(row_of_address(device, position));
  return true;
}

}  // namespace

// The source address comes from the GID index; source and destination must be of the same family.
// Resolved once, so that a post copies a finished route and asks no table.
AddressHandle* AddressHandle::create(ProtectionDomain& domain, const ibv_ah_attr& attributes) {
  Device& device = Context::of(domain.pd.context)->device();
  // iWARP has no datagrams.
  if (!device.is_roce()) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  errno = EINVAL;
  PathEnds ends;
  if (attributes.port_num != 1 || path_ends(device, attributes, ends) != 0) return nullptr;
  // Without a GID the fields of the global route mean nothing.
  const ibv_global_route grh = attributes.is_global ? attributes.grh : ibv_global_route{};
  const LocalAddress& local = *ends.local;
  const int family = local.address.ss_family;
  std::unique_ptr<AddressHandle> made(new AddressHandle(domain));
  made->group_ = is_multicast(ends.destination);
  DatagramRoute& route = made->route_;
  route.source = local.address;
  route.destination =
      made->group_ ? multicast_address(ends.destination, family) : address_of(ends.destination);
  if (route.destination.ss_family != family || is_any_address(route.destination)) return nullptr;
  const std::uint8_t usual = made->group_ ? usual_group_hop_limit : usual_hop_limit;
  route.hop_limit = grh.hop_limit != 0 ? grh.hop_limit : usual;
  route.traffic_class = grh.traffic_class;
  made->counted_ = Counted::unless_full(device.adapter(), Capability::address_handles);
  if (!made->counted_) {
    errno = ENOMEM;
    return nullptr;
  }
  made->interface_index_ = local.interface_index;
  made->handle_ = {.context = domain.pd.context, .pd = &domain.pd, .handle = 0};
  return made.release();
}

AddressHandle::~AddressHandle() {
  --domain_.users;
}

DatagramRoute AddressHandle::route_to(std::uint32_t number) const {
  DatagramRoute route = route_;
  // The number of the destination names its slot, and the slot its UDP port.
  set_port(route.destination, group_ ? multicast_port : slot::port_of(number));
  return route;
}

std::uint16_t lid_of_sender(const Device& device, Bytes grh) {
  Ends ends;
  if (!device.has_lids() || !read_ends(grh, ends)) return 0;
  return lid_of(address_of(plain_gid(device, ends.source)));
}

int address_of_sender(Context& context, std::uint8_t port, const ibv_wc& completion,
                      const ibv_grh* grh, ibv_ah_attr& attributes) {
  attributes = {};
  attributes.port_num = port;
  attributes.sl = completion.sl;
  attributes.dlid = completion.slid;
  if (port != 1) return EINVAL;
  if ((completion.wc_flags & IBV_WC_GRH) == 0 && context.device().has_lids()) return 0;
  // Without LIDs only the header bytes identify the sender.
  if (!grh || (completion.wc_flags & IBV_WC_GRH) == 0) return EINVAL;
  Ends ends;
  const auto* bytes = reinterpret_cast<const std::byte*>(grh);
  if (!read_ends(Bytes(bytes, grh_bytes), ends)) return EINVAL;
  std::uint8_t index = 0;
  if (!find_gid(context.device(), ends.destination, index)) return EINVAL;
  attributes.is_global = 1;
  attributes.grh.dgid = ends.source;
  attributes.grh.sgid_index = index;
  // As libibverbs sets it: the way back may be longer than the way here.
  attributes.grh.hop_limit = 0xFF;
  attributes.grh.traffic_class = ends.traffic_class;
  return 0;
}

}  // namespace weft::device
