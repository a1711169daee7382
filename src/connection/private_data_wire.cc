// Private data over InfiniBand arrives padded with zeros to the size of its message. A length and a
// mark in the last three bytes let a peer of this library take the padding off again.
#include "connection/private_data_wire.h"

#include <algorithm>

#include "base/byte_reader.h"
#include "base/byte_writer.h"

namespace weft::connection::detail {
namespace {

constexpr std::uint16_t magic = 0x5750;  // "WP"

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte value) { return value == std::byte{0}; });
}

}  // namespace

std::vector<std::byte> with_length(std::span<const std::byte> user, CarriedBy message) {
  std::vector<std::byte> bytes(user.begin(), user.end());
  const std::size_t room = static_cast<std::size_t>(message) - private_data_end_bytes;
  // Too long for the mark, or nothing to mark: sent as it is.
  if (user.empty() || user.size() > room) return bytes;
  bytes.resize(static_cast<std::size_t>(message));
  ByteWriter end(std::span<std::byte>(bytes).last(private_data_end_bytes));
  end.u8(static_cast<std::uint8_t>(user.size()));
  end.be16(magic);
  return bytes;
}

std::span<const std::byte> without_padding(std::span<const std::byte> bytes, CarriedBy message) {
  if (bytes.size() != static_cast<std::size_t>(message)) return bytes;
  // No private data at all looks like zeros only.
  if (all_zero(bytes)) return {};
  const auto padded = bytes.first(bytes.size() - private_data_end_bytes);
  ByteReader end(bytes.last(private_data_end_bytes));
  const std::size_t length = end.u8();
  const bool known = end.be16() == magic && length > 0 && length <= padded.size();
  return known && all_zero(padded.subspan(length)) ? padded.first(length) : bytes;
}

}  // namespace weft::connection::detail
