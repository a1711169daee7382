#include "wire/tcp.h"

#include <algorithm>

namespace weft::wire {

namespace {

constexpr std::size_t checksum_at = 16;
constexpr std::byte option_end{0};
constexpr std::byte option_nop{1};
constexpr std::byte option_mss{2};
constexpr std::byte option_window_scale{3};
// A window scale takes three bytes and, with everybody, a no-operation before it.
constexpr std::size_t padded_option_bytes = 4;

bool parse_option(Bytes option, TcpHeader& header) {
  const std::byte* value = option.data() + 2;
  if (option[0] == option_mss) {
    if (option.size() != 4) return false;
    header.mss_bytes = load_be<std::uint16_t>(value);
  } else if (option[0] == option_window_scale) {
    if (option.size() != 3) return false;
    header.window_scale = load_be<std::uint8_t>(value);
  }
  return true;
}

bool parse_options(Bytes options, TcpHeader& header) {
  while (!options.empty() && options[0] != option_end) {
    if (options[0] == option_nop) {
      options = options.subspan(1);
      continue;
    }
    if (options.size() < 2) return false;
    const auto bytes = std::to_integer<std::size_t>(options[1]);
    if (bytes < 2 || bytes > options.size()) return false;
    if (!parse_option(options.first(bytes), header)) return false;
    options = options.subspan(bytes);
  }
  return true;
}

std::size_t known_options_bytes(const TcpHeader& header) {
  return (header.mss_bytes ? padded_option_bytes : 0) +
         (header.window_scale ? padded_option_bytes : 0);
}

}  // namespace

std::size_t TcpHeader::size() const {
  return min_header_bytes + known_options_bytes(*this) + other_options_bytes;
}

Result<TcpHeader, WireError> TcpHeader::parse(Bytes bytes) {
  if (bytes.size() < min_header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  const std::size_t header_bytes = (std::to_integer<std::size_t>(at[12]) >> 4) * 4;
  if (header_bytes < min_header_bytes) return WireError::bad_length;
  if (bytes.size() < header_bytes) return WireError::truncated;

  TcpHeader header;
  header.source_port = load_be<std::uint16_t>(at);
  header.destination_port = load_be<std::uint16_t>(at + 2);
  header.sequence = load_be<std::uint32_t>(at + 4);
  header.acknowledgement = load_be<std::uint32_t>(at + 8);
  header.flags = load_be<std::uint8_t>(at + 13);
  header.window = load_be<std::uint16_t>(at + 14);
  header.checksum = load_be<std::uint16_t>(at + checksum_at);
  header.urgent = load_be<std::uint16_t>(at + 18);
  const Bytes options = bytes.subspan(min_header_bytes, header_bytes - min_header_bytes);
  if (!parse_options(options, header)) return WireError::bad_length;
  // Never negative: four and three bytes of known options do not fit into less than two words.
  header.other_options_bytes =
      static_cast<std::uint8_t>(options.size() - known_options_bytes(header));
  return header;
}

void TcpHeader::emit(MutableBytes out) const {
  const MutableBytes header = out.first(size());
  std::byte* at = header.data();
  store_be(at, source_port);
  store_be(at + 2, destination_port);
  store_be(at + 4, sequence);
  store_be(at + 8, acknowledgement);
  at[12] = static_cast<std::byte>(header.size() / 4 << 4);
  at[13] = std::byte{flags};
  store_be(at + 14, window);
  store_be(at + checksum_at, checksum);
  store_be(at + 18, urgent);
  at += min_header_bytes;
  if (mss_bytes) {
    at[0] = option_mss;
    at[1] = std::byte{4};
    store_be(at + 2, *mss_bytes);
    at += padded_option_bytes;
  }
  if (window_scale) {
    at[0] = option_nop;
    at[1] = option_window_scale;
    at[2] = std::byte{3};
    at[3] = std::byte{*window_scale};
    at += padded_option_bytes;
  }
  std::fill_n(at, other_options_bytes, option_nop);
}

void store_tcp_checksum(MutableBytes header, std::uint16_t checksum) {
  store_be(header.data() + checksum_at, checksum);
}

}  // namespace weft::wire
