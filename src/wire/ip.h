// IPv4 (RFC 791), IPv6 (RFC 8200) and the checksum that they share with TCP and UDP (RFC 1071).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/field.h"

namespace weft::wire {

using Ipv4Address = std::array<std::byte, 4>;
using Ipv6Address = std::array<std::byte, 16>;

// Values outside this list survive as values.
enum class IpProtocol : std::uint8_t { tcp = 6, udp = 17 };

// A running Internet checksum over several pieces, which may have odd lengths. It is a value: a
// copy continues on its own.
class InternetChecksum {
 public:
  void update(Bytes bytes);
  // The value for the checksum field; 0 if the bytes include a correct checksum field.
  [[nodiscard]] std::uint16_t value() const;

 private:
  std::uint64_t sum_ = 0;  // of 16-bit words in native order (RFC 1071 §2 (B))
  bool odd_ = false;
};

// Returns the checksum of the pseudo header of a TCP segment or UDP datagram of `bytes` bytes, its
// own header included (RFC 9293 §3.1, RFC 8200 §8.1). The caller continues with the segment.
[[nodiscard]] InternetChecksum pseudo_header(const Ipv4Address& source,
                                             const Ipv4Address& destination, IpProtocol protocol,
                                             std::size_t bytes);
[[nodiscard]] InternetChecksum pseudo_header(const Ipv6Address& source,
                                             const Ipv6Address& destination, IpProtocol protocol,
                                             std::size_t bytes);

struct Ipv4Header {
  static constexpr std::size_t min_header_bytes = 20;

  std::uint8_t options_bytes = 0;  // a multiple of 4, at most 40; their content is not kept
  std::uint8_t traffic_class = 0;
  std::uint16_t total_bytes = 0;  // header included; 0: offload left it out, to the frame's end
  std::uint16_t id = 0;
  bool dont_fragment = false;
  bool more_fragments = false;
  std::uint16_t fragment_offset_bytes = 0;  // a multiple of 8
  std::uint8_t ttl = 64;
  IpProtocol protocol = IpProtocol::tcp;
  Ipv4Address source{};
  Ipv4Address destination{};

  [[nodiscard]] std::size_t size() const { return min_header_bytes + options_bytes; }
  // Does not check the checksum: with offload, a capture has none. See ipv4_checksum_ok().
  [[nodiscard]] static Result<Ipv4Header, WireError> parse(Bytes bytes);
  // Writes size() bytes with the right checksum; options are written as "end of list".
  void emit(MutableBytes out) const;
  bool operator==(const Ipv4Header&) const = default;
};

// `header`: the size() bytes of a header that parses.
[[nodiscard]] bool ipv4_checksum_ok(Bytes header);

namespace field::ipv4 {
inline constexpr Field8 version_and_length{0};  // the length in words of four bytes
inline constexpr Field8 traffic_class{version_and_length.end()};
inline constexpr Field16 total_bytes{traffic_class.end()};
inline constexpr Field16 id{total_bytes.end()};
inline constexpr Field16 fragment{id.end()};  // two flags, and the offset in units of eight bytes
inline constexpr Field8 ttl{fragment.end()};
inline constexpr Field8 protocol{ttl.end()};
inline constexpr Field16 checksum{protocol.end()};
inline constexpr FieldBytes<sizeof(Ipv4Address)> source{checksum.end()};
inline constexpr FieldBytes<sizeof(Ipv4Address)> destination{source.end()};
static_assert(destination.end() == Ipv4Header::min_header_bytes);
}  // namespace field::ipv4

struct Ipv6Header {
  static constexpr std::size_t header_bytes = 40;

  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint16_t payload_bytes = 0;
  IpProtocol next_header = IpProtocol::tcp;
  std::uint8_t hop_limit = 64;
  Ipv6Address source{};
  Ipv6Address destination{};

  [[nodiscard]] static Result<Ipv6Header, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const Ipv6Header&) const = default;
};

namespace field::ipv6 {
inline constexpr Field32 version_class_flow{0};  // 4, 8 and 20 bits
inline constexpr Field16 payload_bytes{version_class_flow.end()};
inline constexpr Field8 next_header{payload_bytes.end()};
inline constexpr Field8 hop_limit{next_header.end()};
inline constexpr FieldBytes<sizeof(Ipv6Address)> source{hop_limit.end()};
inline constexpr FieldBytes<sizeof(Ipv6Address)> destination{source.end()};
static_assert(destination.end() == Ipv6Header::header_bytes);
}  // namespace field::ipv6

// The fragment extension header of IPv6 (RFC 8200 §4.5).
struct Ipv6Fragment {
  static constexpr std::size_t header_bytes = 8;

  IpProtocol next_header = IpProtocol::tcp;
  std::uint16_t offset_bytes = 0;  // a multiple of 8
  bool more_fragments = false;
  std::uint32_t id = 0;

  [[nodiscard]] static Result<Ipv6Fragment, WireError> parse(Bytes bytes);
  bool operator==(const Ipv6Fragment&) const = default;
};

}  // namespace weft::wire
