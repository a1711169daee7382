// The sender's address, which each datagram carries in front of its bytes so that the receiver can
// reply.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

#include "weft/stream.hpp"

namespace weft::dropin {

struct DatagramAddress {
  // One byte each for version 1 and the family (4 or 6), then the port and the host in network
  // order, as in sockaddr_in and sockaddr_in6. The last twelve bytes of an IPv4 host are zero.
  static constexpr std::size_t wire_bytes = 20;

  std::uint8_t family = 0;
  std::array<std::uint8_t, 2> port{};
  std::array<std::uint8_t, 16> host{};

  [[nodiscard]] static DatagramAddress of(const sockaddr_storage& address);
  // Returns nothing for another version or family.
  [[nodiscard]] static std::optional<DatagramAddress> read(std::span<const std::byte> from);
  void write(std::span<std::byte> to) const;

  [[nodiscard]] sockaddr_storage to_sockaddr() const;
  [[nodiscard]] stream::Address to_text() const;
  [[nodiscard]] bool is_any_host() const { return host == decltype(host){}; }
  bool operator==(const DatagramAddress&) const = default;
  bool operator<(const DatagramAddress& other) const {
    return std::tie(family, port, host) < std::tie(other.family, other.port, other.host);
  }
};

}  // namespace weft::dropin
