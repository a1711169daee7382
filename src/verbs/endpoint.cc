#include "weft/verbs/endpoint.hpp"

#include <fmt/format.h>

#include <charconv>

#include "verbs/endpoint_wire.h"

namespace weft::verbs {
namespace {

// The number is the version of the text, so that a later form is refused instead of misread.
constexpr std::string_view text_prefix = "weft1:";
constexpr int smallest_mtu_bytes = 256;

// Only the sizes that ibv_mtu has a code for: 256 to 4096, each double the one before.
std::optional<ibv_mtu> mtu_of_bytes(std::uint32_t bytes) {
  for (std::uint32_t code = IBV_MTU_256; code <= IBV_MTU_4096; ++code) {
    if (bytes == static_cast<std::uint32_t>(smallest_mtu_bytes) << (code - 1)) {
      return static_cast<ibv_mtu>(code);
    }
  }
  return std::nullopt;
}

// Takes the next field, up to ':', from `text` and returns it as a number of that base.
std::optional<std::uint32_t> take(std::string_view& text, int base) {
  const std::size_t end = text.find(':');
  if (end == std::string_view::npos) return std::nullopt;
  std::uint32_t value = 0;
  const auto [stop, failed] = std::from_chars(text.data(), text.data() + end, value, base);
  // from_chars() stops at the first other character, so the end shows whether all of the field was
  // read.
  if (failed != std::errc() || stop != text.data() + end || end == 0) return std::nullopt;
  text.remove_prefix(end + 1);
  return value;
}

}  // namespace

std::string Endpoint::to_string() const {
  return fmt::format("{}{:x}:{:x}:{:x}:{}:{}", text_prefix, number, psn, lid,
                     smallest_mtu_bytes << (mtu - IBV_MTU_256), gid ? gid->to_string() : "-");
}

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
  if (!text.starts_with(text_prefix)) return std::nullopt;
  text.remove_prefix(text_prefix.size());
  const auto number = take(text, 16);
  const auto psn = take(text, 16);
  const auto lid = take(text, 16);
  const auto bytes = take(text, 10);
  const auto mtu = bytes ? mtu_of_bytes(*bytes) : std::nullopt;
  // QPNs and PSNs have 24 bits, LIDs 16. The text came from elsewhere: a number that is too large
  // would otherwise lose its upper bits in a packet.
  if (!number || !psn || !lid || !mtu || *number >= endpoint_number_limit ||
      *psn >= endpoint_number_limit || *lid > 0xFFFF) {
    return std::nullopt;
  }
  Endpoint endpoint{*number, *psn, static_cast<std::uint16_t>(*lid), *mtu, std::nullopt};
  if (text == "-") return endpoint;
  endpoint.gid = Gid::parse(text);
  return endpoint.gid ? std::optional(endpoint) : std::nullopt;
}

}  // namespace weft::verbs
