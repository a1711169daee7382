// The source or destination of a packet: an IP address, a GID or a LID, as one comparable value.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "weft/export.hpp"

namespace weft::capture {

struct HostAddress {
  enum class Kind : std::uint8_t { none, ipv4, ipv6, gid, lid };

  Kind kind = Kind::none;
  // IPv4 uses the first 4 bytes and a LID the first 2, both in network order; the rest is zero.
  std::array<std::byte, 16> bytes{};

  // Copies an IPv4 address: the 4 bytes at `at`, in network order.
  [[nodiscard]] static HostAddress ipv4(const std::byte* at) { return make(Kind::ipv4, at, 4); }
  // Copies an IPv6 address: the 16 bytes at `at`, in network order.
  [[nodiscard]] static HostAddress ipv6(const std::byte* at) { return make(Kind::ipv6, at, 16); }
  // Copies a GID: the 16 bytes at `at`, in network order.
  [[nodiscard]] static HostAddress gid(const std::byte* at) { return make(Kind::gid, at, 16); }
  // Makes an address of a LID, which is given as a number in host order.
  [[nodiscard]] static HostAddress lid(std::uint16_t lid) {
    HostAddress address{.kind = Kind::lid};
    address.bytes[0] = static_cast<std::byte>(lid >> 8);
    address.bytes[1] = static_cast<std::byte>(lid);
    return address;
  }

  // Orders addresses by kind, and those of one kind by their bytes in network order.
  auto operator<=>(const HostAddress&) const = default;

  // Returns a hash of the kind and all bytes. It depends on the byte order of the machine, so it is
  // of no use outside of the program.
  [[nodiscard]] std::size_t hash() const {
    std::uint64_t high;
    std::uint64_t low;
    std::memcpy(&high, bytes.data(), sizeof high);
    std::memcpy(&low, bytes.data() + sizeof high, sizeof low);
    std::uint64_t mixed = (high ^ static_cast<std::uint64_t>(kind)) * 0x9E3779B97F4A7C15U;
    mixed = (mixed ^ (mixed >> 32) ^ low) * 0xD6E8FEB86659FD93U;
    return static_cast<std::size_t>(mixed ^ (mixed >> 32));
  }

 private:
  [[nodiscard]] static HostAddress make(Kind kind, const std::byte* at, std::size_t size) {
    HostAddress address{.kind = kind};
    std::memcpy(address.bytes.data(), at, size);
    return address;
  }
};

// Returns "10.0.0.1", "fe80::1" or "LID 7". A GID that maps an IPv4 address is printed as that
// address.
[[nodiscard]] WEFT_API std::string to_string(const HostAddress& address);

}  // namespace weft::capture

namespace std {
template <>
struct hash<weft::capture::HostAddress> {
  // Returns HostAddress::hash().
  size_t operator()(const weft::capture::HostAddress& address) const { return address.hash(); }
};
}  // namespace std
