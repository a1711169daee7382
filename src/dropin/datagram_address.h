// An address as datagrams carry it in front of their bytes, for the receiver to answer to.
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
  // Version 1, 4 or 6 for the family, the port, the host: in the network's order, as sockaddr_in
  // and sockaddr_in6 have them. Of an IPv4 host the last twelve bytes are zero.
  static constexpr std::size_t wire_bytes = 20;

  std::uint8_t family = 0;
  std::array<std::uint8_t, 2> port{};
  std::array<std::uint8_t, 16> host{};

  [[nodiscard]] static DatagramAddress of(const sockaddr_storage& address);
  // Nothing for another version or family.
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
