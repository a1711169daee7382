#include "wire/service_query.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace weft::wire {
namespace {

// The last byte is the version.
constexpr std::string_view key{"WeftUD\0\1", 8};

// Where each field stands.
constexpr std::size_t kind_at = 8;
constexpr std::size_t status_at = 9;
constexpr std::size_t private_bytes_at = 10;  // and one that is zero and not looked at
constexpr std::size_t identification_at = 12;
constexpr std::size_t queue_pair_at = 16;
constexpr std::size_t queue_key_at = 20;

}  // namespace

Result<ServiceQuery, WireError> ServiceQuery::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  if (std::memcmp(bytes.data(), key.data(), key.size()) != 0) return WireError::bad_key;
  const auto word = [&](std::size_t at) { return load_be<std::uint32_t>(bytes.data() + at); };
  const auto private_bytes = std::to_integer<std::size_t>(bytes[private_bytes_at]);
  if (private_bytes > max_private_data_bytes || bytes.size() < header_bytes + private_bytes) {
    return WireError::truncated;
  }
  return ServiceQuery{.kind = static_cast<Kind>(bytes[kind_at]),
                      .status = static_cast<Status>(bytes[status_at]),
                      .identification = word(identification_at),
                      .queue_pair = word(queue_pair_at),
                      .queue_key = word(queue_key_at),
                      .private_data = bytes.subspan(header_bytes, private_bytes)};
}

void ServiceQuery::emit(MutableBytes out) const {
  std::memcpy(out.data(), key.data(), key.size());
  out[kind_at] = static_cast<std::byte>(kind);
  out[status_at] = static_cast<std::byte>(status);
  out[private_bytes_at] = static_cast<std::byte>(private_data.size());
  out[private_bytes_at + 1] = std::byte{0};
  store_be(&out[identification_at], identification);
  store_be(&out[queue_pair_at], queue_pair);
  store_be(&out[queue_key_at], queue_key);
  std::copy(private_data.begin(), private_data.end(), out.begin() + header_bytes);
}

}  // namespace weft::wire
