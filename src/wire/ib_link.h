// InfiniBand below its transport: the Local Route Header and the Global Route Header (InfiniBand
// Architecture Specification, volume 1, §7.7 and §8.3). RoCE v1 begins with the latter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/field.h"
#include "wire/ip.h"

namespace weft::wire {

namespace field::local_route {
inline constexpr Field8 lane_and_version{0};
inline constexpr Field8 service_and_next{lane_and_version.end()};  // the lower two bits: Next
inline constexpr Field16 destination_lid{service_and_next.end()};
inline constexpr Field16 packet_words{destination_lid.end()};  // the lower eleven bits
inline constexpr Field16 source_lid{packet_words.end()};
}  // namespace field::local_route

struct LocalRouteHeader {
  static constexpr std::size_t header_bytes = 8;

  enum class Next : std::uint8_t { raw = 0, raw_ip = 1, transport = 2, global = 3 };

  Next next = Next::transport;
  std::uint16_t destination_lid = 0;
  std::uint16_t packet_words = 0;  // of four bytes: from this header to the end of the ICRC
  std::uint16_t source_lid = 0;

  [[nodiscard]] static Result<LocalRouteHeader, WireError> parse(Bytes bytes) {
    if (bytes.size() < header_bytes) return WireError::truncated;
    namespace at = field::local_route;
    const std::byte* header = bytes.data();
    return LocalRouteHeader{
        .next = Next(at::service_and_next.load(header) & 3),
        .destination_lid = at::destination_lid.load(header),
        .packet_words = static_cast<std::uint16_t>(at::packet_words.load(header) & 0x7FF),
        .source_lid = at::source_lid.load(header)};
  }
  void emit(MutableBytes out) const {
    namespace at = field::local_route;
    std::byte* header = out.data();
    at::lane_and_version.store(header, 0);
    at::service_and_next.store(header, static_cast<std::uint8_t>(next));
    at::destination_lid.store(header, destination_lid);
    at::packet_words.store(header, packet_words);
    at::source_lid.store(header, source_lid);
  }
  bool operator==(const LocalRouteHeader&) const = default;
};

static_assert(field::local_route::source_lid.end() == LocalRouteHeader::header_bytes);

// It has the layout of an IPv6 header; the addresses are GIDs.
struct GlobalRouteHeader {
  static constexpr std::size_t header_bytes = 40;
  static constexpr std::uint8_t next_transport = 0x1B;

  Ipv6Header header;

  [[nodiscard]] static Result<GlobalRouteHeader, WireError> parse(Bytes bytes) {
    const auto header = Ipv6Header::parse(bytes);
    if (!header) return header.error();
    return GlobalRouteHeader{*header};
  }
  [[nodiscard]] bool leads_to_transport() const {
    return static_cast<std::uint8_t>(header.next_header) == next_transport;
  }
  bool operator==(const GlobalRouteHeader&) const = default;
};

}  // namespace weft::wire
