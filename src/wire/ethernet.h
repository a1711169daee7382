// Ethernet II, the link layer of the captures that Weft writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/field.h"

namespace weft::wire {

using MacAddress = std::array<std::byte, 6>;

// Values outside this list survive as values.
enum class EtherType : std::uint16_t { ipv4 = 0x0800, vlan = 0x8100, ipv6 = 0x86DD };

struct EthernetHeader {
  static constexpr std::size_t header_bytes = 14;

  MacAddress destination{};
  MacAddress source{};
  EtherType type = EtherType::ipv4;

  [[nodiscard]] static Result<EthernetHeader, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const EthernetHeader&) const = default;
};

namespace field::ethernet {
inline constexpr FieldBytes<sizeof(MacAddress)> destination{0};
inline constexpr FieldBytes<sizeof(MacAddress)> source{destination.end()};
inline constexpr Field16 type{source.end()};
static_assert(type.end() == EthernetHeader::header_bytes);
}  // namespace field::ethernet

}  // namespace weft::wire
