#include "weft/verbs/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.h"

namespace weft::verbs {
namespace {

constexpr std::string_view text_prefix = "weft1:";
constexpr std::uint16_t magic = 0x5745;  // "WE"
constexpr std::uint8_t version = 1;
constexpr std::uint16_t has_gid = 1;
constexpr std::uint32_t number_limit = 1 << 24;

constexpr int smallest_mtu_bytes = 256;

std::optional<ibv_mtu> mtu_of_code(std::uint32_t code) {
  if (code < IBV_MTU_256 || code > IBV_MTU_4096) return std::nullopt;
  return static_cast<ibv_mtu>(code);
}

std::optional<ibv_mtu> mtu_of_bytes(std::uint32_t bytes) {
  for (std::uint32_t code = IBV_MTU_256; code <= IBV_MTU_4096; ++code) {
    if (bytes == static_cast<std::uint32_t>(smallest_mtu_bytes) << (code - 1)) {
      return mtu_of_code(code);
    }
  }
  return std::nullopt;
}

// The next field, up to ':', as a number of that base.
std::optional<std::uint32_t> take(std::string_view& text, int base) {
  const std::size_t end = text.find(':');
  if (end == std::string_view::npos) return std::nullopt;
  std::uint32_t value = 0;
  const auto [stop, failed] = std::from_chars(text.data(), text.data() + end, value, base);
  if (failed != std::errc() || stop != text.data() + end || end == 0) return std::nullopt;
  text.remove_prefix(end + 1);
  return value;
}

}  // namespace

std::array<std::byte, Endpoint::encoded_bytes> Endpoint::to_bytes() const {
  std::array<std::byte, encoded_bytes> bytes{};
  store_be(bytes.data(), magic);
  store_be(bytes.data() + 2, version);
  store_be(bytes.data() + 3, static_cast<std::uint8_t>(mtu));
  store_be(bytes.data() + 4, number);
  store_be(bytes.data() + 8, psn);
  store_be(bytes.data() + 12, lid);
  store_be(bytes.data() + 14, gid ? has_gid : std::uint16_t{0});
  if (gid) std::ranges::copy(std::as_bytes(std::span(gid->bytes())), bytes.begin() + 16);
  return bytes;
}

std::optional<Endpoint> Endpoint::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() != encoded_bytes || load_be<std::uint16_t>(bytes.data()) != magic ||
      load_be<std::uint8_t>(bytes.data() + 2) != version) {
    return std::nullopt;
  }
  const auto mtu = mtu_of_code(load_be<std::uint8_t>(bytes.data() + 3));
  Endpoint endpoint;
  endpoint.number = load_be<std::uint32_t>(bytes.data() + 4);
  endpoint.psn = load_be<std::uint32_t>(bytes.data() + 8);
  endpoint.lid = load_be<std::uint16_t>(bytes.data() + 12);
  if (!mtu || endpoint.number >= number_limit || endpoint.psn >= number_limit) return std::nullopt;
  endpoint.mtu = *mtu;
  if (load_be<std::uint16_t>(bytes.data() + 14) & has_gid) {
    Gid::Bytes gid;
    std::ranges::copy(bytes.subspan(16), std::as_writable_bytes(std::span(gid)).begin());
    endpoint.gid = Gid(gid);
  }
  return endpoint;
}

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
  if (!number || !psn || !lid || !mtu || *number >= number_limit || *psn >= number_limit ||
      *lid > 0xFFFF) {
    return std::nullopt;
  }
  Endpoint endpoint{*number, *psn, static_cast<std::uint16_t>(*lid), *mtu, std::nullopt};
  if (text == "-") return endpoint;
  endpoint.gid = Gid::parse(text);
  return endpoint.gid ? std::optional(endpoint) : std::nullopt;
}

}  // namespace weft::verbs
