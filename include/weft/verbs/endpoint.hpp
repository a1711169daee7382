// The connection data of a queue pair, which two programs exchange out of band before they connect.
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

// What the peer needs to connect its queue pair to this one.
struct Endpoint {
  static constexpr std::size_t encoded_bytes = 32;

  std::uint32_t number = 0;  // QPN
  std::uint32_t psn = 0;     // of the first packet that this side sends
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;  // the largest path MTU of this side
  std::optional<Gid> gid{};

  // Wire format, version 1, all in network byte order: magic "WE", version, MTU code, QPN, PSN,
  // LID, flags (bit 0: a GID is present), GID.
  [[nodiscard]] WEFT_API std::array<std::byte, encoded_bytes> to_bytes() const;
  // Nothing if the bytes are not an endpoint of version 1.
  [[nodiscard]] WEFT_API static std::optional<Endpoint> from_bytes(
      std::span<const std::byte> bytes);
  // The same as one line of text without blanks: "weft1:NUMBER:PSN:LID:MTU:GID"; numbers in
  // hexadecimal digits, the MTU in bytes, the GID as an IPv6 address or "-".
  [[nodiscard]] WEFT_API std::string to_string() const;
  // Reads what to_string() writes; nothing for any other text.
  [[nodiscard]] WEFT_API static std::optional<Endpoint> parse(std::string_view text);
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace weft::verbs
