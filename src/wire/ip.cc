#include "wire/ip.h"

#include <algorithm>
#include <cstring>

namespace weft::wire {

namespace {

constexpr std::uint16_t flag_dont_fragment = 0x4000;
constexpr std::uint16_t flag_more_fragments = 0x2000;
constexpr std::uint16_t fragment_offset_mask = 0x1FFF;

std::uint16_t fold(std::uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// Four bytes at a time: folding makes it the same as two at a time (RFC 1071 §2 (C)).
std::uint64_t native_sum(Bytes bytes) {
  std::uint64_t sum = 0;
  std::uint32_t word = 0;
  for (; bytes.size() >= sizeof word; bytes = bytes.subspan(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    sum += word;
  }
  word = 0;  // a missing last byte counts as zero
  if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size());
  return sum + word;
}

template <typename Address>
InternetChecksum pseudo(const Address& source, const Address& destination, IpProtocol protocol,
                        std::size_t bytes) {
  // IPv4 has a 16-bit length where IPv6 has 32 bits: the sum is the same.
  std::array<std::byte, 8> tail{};
  store_be(tail.data(), static_cast<std::uint32_t>(bytes));
  tail[7] = static_cast<std::byte>(protocol);
  InternetChecksum checksum;
  checksum.update(source);
  checksum.update(destination);
  checksum.update(tail);
  return checksum;
}

}  // namespace

void InternetChecksum::update(Bytes bytes) {
  std::uint16_t piece = fold(native_sum(bytes));
  if (odd_) piece = static_cast<std::uint16_t>(piece << 8 | piece >> 8);
  sum_ += piece;
  odd_ = odd_ != (bytes.size() % 2 != 0);
}

std::uint16_t InternetChecksum::value() const {
  const std::uint16_t native = fold(sum_);
  std::array<std::byte, 2> wire;
  std::memcpy(wire.data(), &native, wire.size());
  return static_cast<std::uint16_t>(~load_be<std::uint16_t>(wire.data()));
}

InternetChecksum pseudo_header(const Ipv4Address& source, const Ipv4Address& destination,
                               IpProtocol protocol, std::size_t bytes) {
  return pseudo(source, destination, protocol, bytes);
}

InternetChecksum pseudo_header(const Ipv6Address& source, const Ipv6Address& destination,
                               IpProtocol protocol, std::size_t bytes) {
  return pseudo(source, destination, protocol, bytes);
}

Result<Ipv4Header, WireError> Ipv4Header::parse(Bytes bytes) {
  if (bytes.size() < min_header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  const auto first = std::to_integer<unsigned>(at[0]);
  if (first >> 4 != 4) return WireError::bad_version;
  const std::size_t header_bytes = (first & 0xF) * 4;
  if (header_bytes < min_header_bytes) return WireError::bad_length;
  if (bytes.size() < header_bytes) return WireError::truncated;

  Ipv4Header header;
  header.options_bytes = static_cast<std::uint8_t>(header_bytes - min_header_bytes);
  header.traffic_class = load_be<std::uint8_t>(at + 1);
  header.total_bytes = load_be<std::uint16_t>(at + 2);
  if (header.total_bytes != 0 && header.total_bytes < header_bytes) return WireError::bad_length;
  header.id = load_be<std::uint16_t>(at + 4);
  const auto fragment = load_be<std::uint16_t>(at + 6);
  header.dont_fragment = (fragment & flag_dont_fragment) != 0;
  header.more_fragments = (fragment & flag_more_fragments) != 0;
  header.fragment_offset_bytes = static_cast<std::uint16_t>((fragment & fragment_offset_mask) * 8);
  header.ttl = load_be<std::uint8_t>(at + 8);
  header.protocol = IpProtocol{load_be<std::uint8_t>(at + 9)};
  std::memcpy(header.source.data(), at + 12, 4);
  std::memcpy(header.destination.data(), at + 16, 4);
  return header;
}

void Ipv4Header::emit(MutableBytes out) const {
  const MutableBytes header = out.first(size());
  std::fill(header.begin(), header.end(), std::byte{0});
  std::byte* at = header.data();
  at[0] = static_cast<std::byte>(0x40 | header.size() / 4);
  at[1] = std::byte{traffic_class};
  store_be(at + 2, total_bytes);
  store_be(at + 4, id);
  unsigned fragment = fragment_offset_bytes / 8u & fragment_offset_mask;
  if (dont_fragment) fragment |= flag_dont_fragment;
  if (more_fragments) fragment |= flag_more_fragments;
  store_be(at + 6, static_cast<std::uint16_t>(fragment));
  at[8] = std::byte{ttl};
  at[9] = static_cast<std::byte>(protocol);
  std::memcpy(at + 12, source.data(), 4);
  std::memcpy(at + 16, destination.data(), 4);
  InternetChecksum checksum;
  checksum.update(header);
  store_be(at + 10, checksum.value());
}

bool ipv4_checksum_ok(Bytes header) {
  InternetChecksum checksum;
  checksum.update(header);
  return checksum.value() == 0;
}

Result<Ipv6Header, WireError> Ipv6Header::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  const auto first = load_be<std::uint32_t>(at);
  if (first >> 28 != 6) return WireError::bad_version;
  Ipv6Header header;
  header.traffic_class = static_cast<std::uint8_t>(first >> 20);
  header.flow_label = first & 0xFFFFF;
  header.payload_bytes = load_be<std::uint16_t>(at + 4);
  header.next_header = IpProtocol{load_be<std::uint8_t>(at + 6)};
  header.hop_limit = load_be<std::uint8_t>(at + 7);
  std::memcpy(header.source.data(), at + 8, 16);
  std::memcpy(header.destination.data(), at + 24, 16);
  return header;
}

void Ipv6Header::emit(MutableBytes out) const {
  std::byte* at = out.data();
  store_be(at, 6u << 28 | std::uint32_t{traffic_class} << 20 | (flow_label & 0xFFFFF));
  store_be(at + 4, payload_bytes);
  at[6] = static_cast<std::byte>(next_header);
  at[7] = std::byte{hop_limit};
  std::memcpy(at + 8, source.data(), 16);
  std::memcpy(at + 24, destination.data(), 16);
}

}  // namespace weft::wire
