// What two queue pairs tell each other, by whatever way their programs have, to get connected.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weft/export.hpp"
#include "weft/verbs/gid.hpp"

namespace weft::verbs {

// What the other side needs to know of a queue pair, to connect its own to it.
struct Endpoint {
  static constexpr std::size_t encoded_bytes = 32;

  std::uint32_t number = 0;  // QPN
  std::uint32_t psn = 0;     // of the first packet that this side sends
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;  // the largest that this side takes
  std::optional<Gid> gid;

  // Version 1: magic "WE", version, MTU code, QPN, PSN, LID, flags (bit 0: there is a GID), GID;
  // all in network order.
  [[nodiscard]] WEFT_API std::array<std::byte, encoded_bytes> to_bytes() const;
  // Nothing where the bytes are not an endpoint of this version.
  [[nodiscard]] WEFT_API static std::optional<Endpoint> from_bytes(
      std::span<const std::byte> bytes);
  // The same in one line without blanks: "weft1:NUMBER:PSN:LID:MTU:GID", numbers in hexadecimal
  // digits, the MTU in bytes, the GID as an IPv6 address or "-".
  [[nodiscard]] WEFT_API std::string to_string() const;
  [[nodiscard]] WEFT_API static std::optional<Endpoint> parse(std::string_view text);
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace weft::verbs
