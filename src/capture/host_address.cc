#include "weft/capture/host_address.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"

namespace weft::capture {
namespace {

std::string ipv4_text(const std::byte* at) {
  return fmt::format("{}.{}.{}.{}", std::to_integer<int>(at[0]), std::to_integer<int>(at[1]),
                     std::to_integer<int>(at[2]), std::to_integer<int>(at[3]));
}

// RFC 5952: the longest run of zero words, or the first of several equal ones, becomes "::".
std::string ipv6_text(const std::byte* at) {
  constexpr int words = 8;
  std::array<std::uint16_t, words> word{};
  for (int i = 0; i < words; ++i) word[i] = load_be<std::uint16_t>(at + 2 * i);
  int best = -1;
  // RFC 5952 §4.2.2 forbids "::" for one word, so only runs longer than this count.
  int best_length = 1;  // a single zero word is not shortened
  for (int i = 0; i < words; ++i) {
    int length = 0;
    while (i + length < words && word[i + length] == 0) ++length;
    if (length > best_length) {
      best = i;
      best_length = length;
    }
  }
  std::string text;
  for (int i = 0; i < words; ++i) {
    if (i == best) {
      text += "::";
      i += best_length - 1;
      continue;
    }
    if (!text.empty() && text.back() != ':') text += ':';
    text += fmt::format("{:x}", word[i]);
  }
  return text;
}

// Returns whether a GID is an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2). RoCE v2 over IPv4 uses
// such GIDs.
bool maps_ipv4(const std::array<std::byte, 16>& bytes) {
  const auto zeros = std::all_of(bytes.begin(), bytes.begin() + 10,
                                 [](std::byte byte) { return byte == std::byte{0}; });
  return zeros && bytes[10] == std::byte{0xFF} && bytes[11] == std::byte{0xFF};
}

}  // namespace

std::string to_string(const HostAddress& address) {
  switch (address.kind) {
    case HostAddress::Kind::none:
      return "?";
    case HostAddress::Kind::ipv4:
      return ipv4_text(address.bytes.data());
    case HostAddress::Kind::lid:
      return fmt::format("LID {}", load_be<std::uint16_t>(address.bytes.data()));
    case HostAddress::Kind::gid:
      if (maps_ipv4(address.bytes)) return ipv4_text(&address.bytes[12]);
      [[fallthrough]];
    case HostAddress::Kind::ipv6:
      break;
  }
  return ipv6_text(address.bytes.data());
}

}  // namespace weft::capture
