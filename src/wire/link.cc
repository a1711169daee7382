#include "wire/link.h"

#include "wire/ip.h"

namespace weft::wire {

namespace {

constexpr std::uint16_t vlan_tag = 0x8100;     // IEEE 802.1Q
constexpr std::uint16_t service_tag = 0x88A8;  // IEEE 802.1ad
constexpr std::uint16_t old_service_tag = 0x9100;
constexpr std::size_t tag_bytes = 4;

constexpr std::size_t cooked_bytes = 16;
constexpr std::size_t cooked_v2_bytes = 20;
constexpr std::size_t loopback_bytes = 4;
constexpr std::size_t erf_extension_bytes = 8;
constexpr std::size_t erf_ethernet_pad_bytes = 2;
constexpr std::byte erf_extension_bit{0x80};

bool is_tag(std::uint16_t type) {
  return type == vlan_tag || type == service_tag || type == old_service_tag;
}

// `size_bytes` bytes end with a type; goes on while that announces a tag.
Result<LinkHeader, WireError> behind_tags(Bytes bytes, std::size_t size_bytes, std::uint16_t type) {
  while (is_tag(type)) {
    if (bytes.size() < size_bytes + tag_bytes) return WireError::truncated;
    type = load_be<std::uint16_t>(&bytes[size_bytes + 2]);
    size_bytes += tag_bytes;
  }
  return LinkHeader{size_bytes, EtherType{type}};
}

// Linux has 10; BSDs have 24, 28 and 30.
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
  return behind_tags(bytes, EthernetHeader::header_bytes, load_be<std::uint16_t>(&bytes[12]));
}

Result<LinkHeader, WireError> parse_linux_cooked(Bytes bytes) {
  if (bytes.size() < cooked_bytes) return WireError::truncated;
  return behind_tags(bytes, cooked_bytes, load_be<std::uint16_t>(&bytes[14]));
}

Result<LinkHeader, WireError> parse_linux_cooked_v2(Bytes bytes) {
  if (bytes.size() < cooked_v2_bytes) return WireError::truncated;
  return behind_tags(bytes, cooked_v2_bytes, load_be<std::uint16_t>(&bytes[0]));
}

Result<LinkHeader, WireError> parse_loopback(Bytes bytes) {
  if (bytes.size() < loopback_bytes) return WireError::truncated;
  const auto header = of_family(load_be<std::uint32_t>(bytes.data()));
  return header ? header : of_family(load_le<std::uint32_t>(bytes.data()));
}

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
  ErfHeader header;
  header.type = static_cast<Type>(bytes[8] & ~erf_extension_bit);
  header.wire_bytes = load_be<std::uint16_t>(&bytes[14]);
  bool more = (bytes[8] & erf_extension_bit) != std::byte{0};
  while (more) {
    if (bytes.size() < header.size_bytes + erf_extension_bytes) return WireError::truncated;
    more = (bytes[header.size_bytes] & erf_extension_bit) != std::byte{0};
    header.size_bytes += erf_extension_bytes;
  }
  if (header.is_ethernet()) header.size_bytes += erf_ethernet_pad_bytes;
  if (bytes.size() < header.size_bytes) return WireError::truncated;
  return header;
}

}  // namespace weft::wire
