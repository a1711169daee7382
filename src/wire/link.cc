#include "wire/link.h"

#include "wire/field.h"
#include "wire/ip.h"

namespace weft::wire {

// IEEE 802.1Q: control information, then the type of what follows.
namespace field::vlan_tag {
constexpr Field16 control{0};
constexpr Field16 type{control.end()};
constexpr std::size_t tag_bytes = type.end();
}  // namespace field::vlan_tag

// https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html
namespace field::linux_cooked {
constexpr Field16 packet_type{0};
constexpr Field16 hardware_type{packet_type.end()};
constexpr Field16 address_bytes{hardware_type.end()};
constexpr FieldBytes<8> address{address_bytes.end()};
constexpr Field16 protocol{address.end()};
constexpr std::size_t header_bytes = protocol.end();
static_assert(header_bytes == 16);
}  // namespace field::linux_cooked

// https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL2.html
namespace field::linux_cooked_v2 {
constexpr Field16 protocol{0};
constexpr Field16 reserved{protocol.end()};
constexpr Field32 interface { reserved.end() };
constexpr Field16 hardware_type{interface.end()};
constexpr Field8 packet_type{hardware_type.end()};
constexpr Field8 address_bytes{packet_type.end()};
constexpr FieldBytes<8> address{address_bytes.end()};
constexpr std::size_t header_bytes = address.end();
static_assert(header_bytes == 20);
}  // namespace field::linux_cooked_v2

// The record header of the Extensible Record Format. Its timestamp, which is not used here, is the
// only field in little-endian order.
namespace field::erf {
constexpr Field64 timestamp{0};
constexpr Field8 type{timestamp.end()};
constexpr Field8 flags{type.end()};
constexpr Field16 record_bytes{flags.end()};
constexpr Field16 lost{record_bytes.end()};
constexpr Field16 wire_bytes{lost.end()};
static_assert(wire_bytes.end() == ErfHeader::min_header_bytes);
}  // namespace field::erf

namespace {

constexpr std::uint16_t vlan_tag = 0x8100;     // IEEE 802.1Q
constexpr std::uint16_t service_tag = 0x88A8;  // IEEE 802.1ad
// Switches used this type for service tags before IEEE 802.1ad.
constexpr std::uint16_t old_service_tag = 0x9100;

// The link header of LINKTYPE_NULL and LINKTYPE_LOOP is an address family and nothing else.
constexpr std::size_t loopback_bytes = 4;
constexpr std::size_t erf_extension_bytes = 8;
constexpr std::size_t erf_ethernet_pad_bytes = 2;
constexpr std::byte erf_extension_bit{0x80};

bool is_tag(std::uint16_t type) {
  return type == vlan_tag || type == service_tag || type == old_service_tag;
}

// Skips VLAN tags. The header has `size_bytes` so far and is followed by `type`.
// There may be any number of tags; each costs four bytes, so the loop ends with the packet.
Result<LinkHeader, WireError> behind_tags(Bytes bytes, std::size_t size_bytes, std::uint16_t type) {
  while (is_tag(type)) {
    namespace at = field::vlan_tag;
    if (bytes.size() < size_bytes + at::tag_bytes) return WireError::truncated;
    type = at::type.load(&bytes[size_bytes]);
    size_bytes += at::tag_bytes;
  }
  return LinkHeader{size_bytes, EtherType{type}};
}

// By the number of the address family on the system that captured: 2 is IPv4 everywhere, IPv6 is 10
// on Linux and 24, 28 or 30 on the BSDs.
Result<LinkHeader, WireError> of_family(std::uint32_t family) {
  switch (family) {
    case 2:
      return LinkHeader{loopback_bytes, EtherType::ipv4};
    case 10:
    case 24:
    case 28:
    case 30:
      return LinkHeader{loopback_bytes, EtherType::ipv6};
    default:
      return WireError::bad_key;
  }
}

}  // namespace

Result<LinkHeader, WireError> parse_ethernet_link(Bytes bytes) {
  if (bytes.size() < EthernetHeader::header_bytes) return WireError::truncated;
  return behind_tags(bytes, EthernetHeader::header_bytes, field::ethernet::type.load(bytes.data()));
}

Result<LinkHeader, WireError> parse_linux_cooked(Bytes bytes) {
  namespace at = field::linux_cooked;
  if (bytes.size() < at::header_bytes) return WireError::truncated;
  return behind_tags(bytes, at::header_bytes, at::protocol.load(bytes.data()));
}

Result<LinkHeader, WireError> parse_linux_cooked_v2(Bytes bytes) {
  namespace at = field::linux_cooked_v2;
  if (bytes.size() < at::header_bytes) return WireError::truncated;
  return behind_tags(bytes, at::header_bytes, at::protocol.load(bytes.data()));
}

// NULL has the byte order of the system that captured, which is not known here. A family that is
// valid in one order is not valid in the other.
// LOOP always has network order, which is therefore tried first.
Result<LinkHeader, WireError> parse_loopback(Bytes bytes) {
  if (bytes.size() < loopback_bytes) return WireError::truncated;
  const auto header = of_family(load_be<std::uint32_t>(bytes.data()));
  return header ? header : of_family(load_le<std::uint32_t>(bytes.data()));
}

// No link header at all: the version of IP is in the first four bits of both.
Result<LinkHeader, WireError> parse_raw_ip(Bytes bytes) {
  if (bytes.empty()) return WireError::truncated;
  const auto version = std::to_integer<unsigned>(bytes[0]) >> 4;
  if (version == 4) return LinkHeader{0, EtherType::ipv4};
  if (version == 6) return LinkHeader{0, EtherType::ipv6};
  return WireError::bad_version;
}

bool ErfHeader::is_ethernet() const {
  return type == Type::ethernet || type == Type::color_ethernet || type == Type::dsm_ethernet ||
         type == Type::color_hash_ethernet;
}

Result<ErfHeader, WireError> ErfHeader::parse(Bytes bytes) {
  if (bytes.size() < min_header_bytes) return WireError::truncated;
  namespace at = field::erf;
  const std::byte type = bytes[at::type.at];
  ErfHeader header;
  header.type = static_cast<Type>(type & ~erf_extension_bit);
  header.wire_bytes = at::wire_bytes.load(bytes.data());
  // If the upper bit of the type is set, an extension header follows, and so on: each extension
  // header has the same bit.
  bool more = (type & erf_extension_bit) != std::byte{0};
  while (more) {
    if (bytes.size() < header.size_bytes + erf_extension_bytes) return WireError::truncated;
    more = (bytes[header.size_bytes] & erf_extension_bit) != std::byte{0};
    header.size_bytes += erf_extension_bytes;
  }
  // Ethernet frames have an offset and a pad byte in front of them, which other types do not have.
  if (header.is_ethernet()) header.size_bytes += erf_ethernet_pad_bytes;
  if (bytes.size() < header.size_bytes) return WireError::truncated;
  return header;
}

}  // namespace weft::wire
