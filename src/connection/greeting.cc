#include "connection/greeting.h"

#include <algorithm>

#include "base/bytes.h"
#include "connection/control.h"

namespace weft::connection {

Rejected::Rejected(const std::string& what, std::vector<std::byte> private_data)
    : Error(ECONNREFUSED, what), private_data_(std::move(private_data)) {}

std::size_t max_private_data_bytes(const Options& options, bool with_buffer) {
  // rdma_connect(3) over InfiniBand has the least room; MPA has more (RFC 6581 §4).
  constexpr std::size_t infiniband = 56;
  constexpr std::size_t embedded = 252;
  const std::size_t room = options.backend == verbs::Backend::embedded ? embedded : infiniband;
  if (!options.advertisements) return room;
  const std::size_t buffer = with_buffer ? verbs::RemoteSlice::encoded_bytes : 0;
  return room - detail::ControlGreeting::fixed_bytes - buffer;
}

namespace detail {
namespace {

constexpr std::uint32_t magic = 0x57454643;  // "WEFC"
constexpr std::uint8_t version = 1;
constexpr std::uint8_t has_buffer = 1;

}  // namespace

std::vector<std::byte> ControlGreeting::to_bytes() const {
  std::vector<std::byte> bytes(fixed_bytes);
  store_be(&bytes[0], magic);
  store_be(&bytes[4], version);
  store_be(&bytes[5], buffer ? has_buffer : std::uint8_t{0});
  store_be(&bytes[6], slots);
  store_be(&bytes[8], control.address());
  store_be(&bytes[16], control.rkey());
  store_be(&bytes[20], static_cast<std::uint8_t>(private_data.size()));
  if (buffer) std::ranges::copy(buffer->to_bytes(), std::back_inserter(bytes));
  std::ranges::copy(private_data, std::back_inserter(bytes));
  return bytes;
}

std::optional<ControlGreeting> ControlGreeting::parse(std::span<const std::byte> bytes) {
  if (bytes.size() < fixed_bytes || load_be<std::uint32_t>(&bytes[0]) != magic ||
      load_be<std::uint8_t>(&bytes[4]) != version) {
    return std::nullopt;
  }
  ControlGreeting greeting;
  greeting.slots = load_be<std::uint16_t>(&bytes[6]);
  const std::size_t user_bytes = load_be<std::uint8_t>(&bytes[20]);
  const bool with_buffer = load_be<std::uint8_t>(&bytes[5]) & has_buffer;
  const std::size_t buffer_bytes = with_buffer ? verbs::RemoteSlice::encoded_bytes : 0;
  if (greeting.slots == 0 || bytes.size() < fixed_bytes + buffer_bytes + user_bytes) {
    return std::nullopt;
  }
  greeting.control = {load_be<std::uint64_t>(&bytes[8]), Control::peer_bytes(greeting.slots),
                      load_be<std::uint32_t>(&bytes[16])};
  auto rest = bytes.subspan(fixed_bytes);
  if (with_buffer) greeting.buffer = verbs::RemoteSlice::from_bytes(rest.first(buffer_bytes));
  rest = rest.subspan(buffer_bytes, user_bytes);
  greeting.private_data.assign(rest.begin(), rest.end());
  return greeting;
}

}  // namespace detail
}  // namespace weft::connection
