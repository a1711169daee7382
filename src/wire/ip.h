// IPv4 (RFC 791), IPv6 (RFC 8200) and the checksum that they share with TCP and UDP (RFC 1071).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

using Ipv4Address = std::array<std::byte, 4>;
using Ipv6Address = std::array<std::byte, 16>;

// Values outside this list survive as values.
enum class IpProtocol : std::uint8_t { tcp = 6, udp = 17 };

// A running Internet checksum over several pieces, which may have odd lengths. A value type:
// copying it forks the computation.
class InternetChecksum {
 public:
  void update(Bytes bytes);
  // What the checksum field holds; 0 where the bytes include a correct checksum field.
  [[nodiscard]] std::uint16_t value() const;

 private:
  std::uint64_t sum_ = 0;  // of 16-bit words in native order (RFC 1071 §2 (B))
  bool odd_ = false;
};

// The pseudo header of a TCP segment or UDP datagram of `bytes` bytes, its own header included
// (RFC 9293 §3.1, RFC 8200 §8.1). Continue with that segment.
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
  std::uint16_t total_bytes = 0;  // header included; 0: offload wrote it, up to the frame's end
  std::uint16_t id = 0;
  bool dont_fragment = false;
  bool more_fragments = false;
  std::uint16_t fragment_offset_bytes = 0;  // a multiple of 8
  std::uint8_t ttl = 64;
  IpProtocol protocol = IpProtocol::tcp;
  Ipv4Address source{};
  Ipv4Address destination{};

  [[nodiscard]] std::size_t size() const { return min_header_bytes + options_bytes; }
  // Does not judge the checksum: with offload, a capture holds none. See ipv4_checksum_ok().
  [[nodiscard]] static Result<Ipv4Header, WireError> parse(Bytes bytes);
  // Writes size() bytes with the right checksum; options are written as "end of list".
  void emit(MutableBytes out) const;
  bool operator==(const Ipv4Header&) const = default;
};

// `header`: the size() bytes of a header that parses.
[[nodiscard]] bool ipv4_checksum_ok(Bytes header);

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

}  // namespace weft::wire
