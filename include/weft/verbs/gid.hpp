// GUIDs and GIDs: the identifiers of devices and the addresses of ports.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/export.hpp"

namespace weft::verbs {

// The 64-bit identifier of a device (EUI-64), in host byte order.
struct Guid {
  std::uint64_t value = 0;

  // Whether it identifies nothing.
  [[nodiscard]] bool is_reserved() const { return value == 0; }
  // The 24 bits that identify the manufacturer.
  [[nodiscard]] std::uint32_t oui() const { return static_cast<std::uint32_t>(value >> 40); }
  // "0002:c903:00a0:7c8e"
  [[nodiscard]] WEFT_API std::string to_string() const;
  friend bool operator==(const Guid&, const Guid&) = default;
};

// The address of a port: 16 bytes, written as an IPv6 address. IPv4 addresses are IPv4-mapped (RFC
// 4291 §2.5.5.2).
class Gid {
 public:
  using Bytes = std::array<std::uint8_t, 16>;

  // The zero GID.
  Gid() = default;
  // From bytes in network order.
  explicit Gid(const Bytes& bytes) : bytes_(bytes) {}
  // From a GID of verbs.
  WEFT_API explicit Gid(const ibv_gid& gid);
  // Parses a numeric IPv4 or IPv6 address; nothing if the text is neither.
  [[nodiscard]] WEFT_API static std::optional<Gid> parse(std::string_view text);

  // The bytes in network order.
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }
  // The first eight bytes as a number.
  [[nodiscard]] WEFT_API std::uint64_t subnet_prefix() const;
  // The last eight bytes as a number.
  [[nodiscard]] WEFT_API std::uint64_t interface_id() const;
  // Whether it stands for an IPv4 address (RFC 4291 §2.5.5.2).
  [[nodiscard]] WEFT_API bool is_ipv4_mapped() const;
  // Whether it is an empty row of a GID table.
  [[nodiscard]] WEFT_API bool is_zero() const;
  // The text form of inet_ntop(3): "::ffff:192.0.2.1", "fe80::1".
  [[nodiscard]] WEFT_API std::string to_string() const;
  // The same as a GID of verbs.
  [[nodiscard]] WEFT_API ibv_gid raw() const;
  friend bool operator==(const Gid&, const Gid&) = default;

 private:
  Bytes bytes_{};
};

// A row of a port's GID table, ibv_query_gid_table(3).
struct GidEntry {
  Gid gid;
  std::uint32_t index = 0;
  std::uint32_t port = 1;
  ibv_gid_type type = IBV_GID_TYPE_IB;
  unsigned interface_index = 0;  // index of the network interface; 0: none

  // The name of the network interface; empty: none.
  [[nodiscard]] WEFT_API std::string interface_name() const;
};

// The row of the GID table to use for a peer, and the reason in words.
struct GidChoice {
  GidEntry entry;
  std::string reason;
};

}  // namespace weft::verbs
