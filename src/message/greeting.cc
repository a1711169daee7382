#include "message/greeting.h"

#include <algorithm>

namespace weft::message::detail {
namespace {

constexpr std::uint8_t joined_flag = 1;
constexpr std::uint32_t magic = 0x5745464D;  // "WEFM"

void append(std::vector<std::byte>& to, std::size_t at, const std::vector<std::byte>& data) {
  store_be(&to[at], static_cast<std::uint8_t>(data.size()));
  to.insert(to.end(), data.begin(), data.end());
}

// The bytes after the one at `at`, which says how many there are; nothing where there are less.
std::optional<std::vector<std::byte>> tail(Bytes bytes, std::size_t at) {
  const std::size_t count = load_be<std::uint8_t>(&bytes[at]);
  if (bytes.size() - at - 1 < count) return std::nullopt;
  const auto data = bytes.subspan(at + 1, count);
  return std::vector<std::byte>(data.begin(), data.end());
}

}  // namespace

std::vector<std::byte> Greeting::to_bytes() const {
  std::vector<std::byte> bytes(fixed_bytes);
  store_be(&bytes[0], magic);
  store_be(&bytes[4], protocol_version);
  store_be(&bytes[5], static_cast<std::uint8_t>(terms.joined ? joined_flag : 0));
  store_be(&bytes[6], terms.credits);
  store_be(&bytes[8], terms.eager_bytes);
  store_be(&bytes[12], terms.max_message_bytes);
  append(bytes, 20, private_data);
  return bytes;
}

Read read_greeting(Bytes bytes) {
  if (bytes.size() < 5 || load_be<std::uint32_t>(&bytes[0]) != magic) {
    return {std::nullopt, Reason::malformed};
  }
  if (load_be<std::uint8_t>(&bytes[4]) != protocol_version) return {std::nullopt, Reason::version};
  if (bytes.size() < Greeting::fixed_bytes) return {std::nullopt, Reason::malformed};
  Greeting greeting;
  greeting.terms = {load_be<std::uint16_t>(&bytes[6]), load_be<std::uint32_t>(&bytes[8]),
                    load_be<std::uint64_t>(&bytes[12]),
                    (load_be<std::uint8_t>(&bytes[5]) & joined_flag) != 0};
  auto data = tail(bytes, 20);
  if (!data || greeting.terms.credits == 0) return {std::nullopt, Reason::malformed};
  greeting.private_data = std::move(*data);
  return {std::move(greeting), Reason::none};
}

std::vector<std::byte> Rejection::to_bytes() const {
  std::vector<std::byte> bytes(fixed_bytes);
  store_be(&bytes[0], magic);
  store_be(&bytes[4], version);
  store_be(&bytes[5], static_cast<std::uint8_t>(reason));
  store_be(&bytes[6], limit);
  append(bytes, 10, private_data);
  return bytes;
}

Rejection Rejection::parse(Bytes bytes) {
  Rejection rejection;
  if (bytes.size() < fixed_bytes || load_be<std::uint32_t>(&bytes[0]) != magic) return rejection;
  const auto reason = load_be<std::uint8_t>(&bytes[5]);
  if (reason == 0 || reason > static_cast<std::uint8_t>(Reason::application)) return rejection;
  rejection.version = load_be<std::uint8_t>(&bytes[4]);
  rejection.reason = static_cast<Reason>(reason);
  rejection.limit = load_be<std::uint32_t>(&bytes[6]);
  if (auto data = tail(bytes, 10)) rejection.private_data = std::move(*data);
  return rejection;
}

}  // namespace weft::message::detail
