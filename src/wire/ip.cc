#include "wire/ip.h"

#include <algorithm>
#include <cstring>

#include "base/byte_writer.h"

namespace weft::wire {

namespace field::ipv6_fragment {
constexpr Field8 next_header{0};
constexpr Field8 reserved{next_header.end()};
constexpr Field16 offset_and_more{reserved.end()};  // 13 bits, two reserved, "more fragments"
constexpr Field32 id{offset_and_more.end()};
static_assert(id.end() == Ipv6Fragment::header_bytes);
}  // namespace field::ipv6_fragment

namespace {

constexpr std::uint16_t flag_dont_fragment = 0x4000;
constexpr std::uint16_t flag_more_fragments = 0x2000;
constexpr std::uint16_t fragment_offset_mask = 0x1FFF;
constexpr std::uint32_t flow_label_mask = 0xFFFFF;

// Adds the carries to the lower 16 bits until there are none: the sum in one's complement.
std::uint16_t fold(std::uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// Sums four bytes at a time. After folding this is the sum of two at a time (RFC 1071 §2 (C)).
// The sum has room for 2^32 words, which is more than any packet has, so no carry is lost. The
// words are copied because packet data has no alignment.
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
  // IPv6 has a length of 32 bits and three zeros before the protocol. IPv4 has a zero, the
  // protocol, and a length of 16 bits: the sum is the same.
  std::array<std::byte, 8> tail;
  ByteWriter out(tail);
  out.be32(static_cast<std::uint32_t>(bytes));
  out.zeros(3);
  out.u8(static_cast<std::uint8_t>(protocol));
  InternetChecksum checksum;
  checksum.update(source);
  checksum.update(destination);
  checksum.update(tail);
  return checksum;
}

}  // namespace

// A piece that begins at an odd offset has its bytes in the other halves of the words: swapping the
// halves of its sum puts them right (RFC 1071 §2 (B)).
void InternetChecksum::update(Bytes bytes) {
  std::uint16_t piece = fold(native_sum(bytes));
  if (odd_) piece = static_cast<std::uint16_t>(piece << 8 | piece >> 8);
  sum_ += piece;
  odd_ = odd_ != (bytes.size() % 2 != 0);
}

std::uint16_t InternetChecksum::value() const {
  // The sum has the byte order of this machine. Its bytes in memory are right on any machine (RFC
  // 1071 §2 (B)), and are then read in network order.
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

// The checksum is not part of the check here; ipv4_checksum_ok() verifies it.
Result<Ipv4Header, WireError> Ipv4Header::parse(Bytes bytes) {
  if (bytes.size() < min_header_bytes) return WireError::truncated;
  namespace at = field::ipv4;
  const std::byte* from = bytes.data();
  const unsigned first = at::version_and_length.load(from);
  if (first >> 4 != 4) return WireError::bad_version;
  // RFC 791 §3.1: the length of the header counts words of four bytes, options included.
  const std::size_t header_bytes = (first & 0xF) * 4;
  if (header_bytes < min_header_bytes) return WireError::bad_length;
  if (bytes.size() < header_bytes) return WireError::truncated;

  Ipv4Header header;
  header.options_bytes = static_cast<std::uint8_t>(header_bytes - min_header_bytes);
  header.traffic_class = at::traffic_class.load(from);
  header.total_bytes = at::total_bytes.load(from);
  // 0 comes from captures on a sending host whose adapter does the segmentation: the length is not
  // known yet.
  if (header.total_bytes != 0 && header.total_bytes < header_bytes) return WireError::bad_length;
  header.id = at::id.load(from);
  const std::uint16_t fragment = at::fragment.load(from);
  header.dont_fragment = (fragment & flag_dont_fragment) != 0;
  header.more_fragments = (fragment & flag_more_fragments) != 0;
  // RFC 791 §3.1: the offset counts in units of eight bytes.
  header.fragment_offset_bytes = static_cast<std::uint16_t>((fragment & fragment_offset_mask) * 8);
  header.ttl = at::ttl.load(from);
  header.protocol = IpProtocol{at::protocol.load(from)};
  header.source = at::source.load(from);
  header.destination = at::destination.load(from);
  return header;
}

// The checksum is computed last, over a header whose checksum field is zero (RFC 791 §3.1).
void Ipv4Header::emit(MutableBytes out) const {
  namespace at = field::ipv4;
  const MutableBytes header = out.first(size());
  std::fill(header.begin(), header.end(), std::byte{0});
  std::byte* to = header.data();
  at::version_and_length.store(to, static_cast<std::uint8_t>(4 << 4 | header.size() / 4));
  at::traffic_class.store(to, traffic_class);
  at::total_bytes.store(to, total_bytes);
  at::id.store(to, id);
  unsigned fragment = fragment_offset_bytes / 8u & fragment_offset_mask;
  if (dont_fragment) fragment |= flag_dont_fragment;
  if (more_fragments) fragment |= flag_more_fragments;
  at::fragment.store(to, static_cast<std::uint16_t>(fragment));
  at::ttl.store(to, ttl);
  at::protocol.store(to, static_cast<std::uint8_t>(protocol));
  at::source.store(to, source);
  at::destination.store(to, destination);
  InternetChecksum checksum;
  checksum.update(header);
  at::checksum.store(to, checksum.value());
}

bool ipv4_checksum_ok(Bytes header) {
  InternetChecksum checksum;
  checksum.update(header);
  // The sum over a correct header, its checksum included, is all ones, so the complement is zero
  // (RFC 1071).
  return checksum.value() == 0;
}

Result<Ipv6Header, WireError> Ipv6Header::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::ipv6;
  const std::byte* from = bytes.data();
  const std::uint32_t first = at::version_class_flow.load(from);
  if (first >> 28 != 6) return WireError::bad_version;
  Ipv6Header header;
  header.traffic_class = static_cast<std::uint8_t>(first >> 20);
  header.flow_label = first & flow_label_mask;
  header.payload_bytes = at::payload_bytes.load(from);
  header.next_header = IpProtocol{at::next_header.load(from)};
  header.hop_limit = at::hop_limit.load(from);
  header.source = at::source.load(from);
  header.destination = at::destination.load(from);
  return header;
}

// IPv6 has no checksum of its header: that of the protocol above covers the addresses through the
// pseudo-header (RFC 8200 §8.1).
void Ipv6Header::emit(MutableBytes out) const {
  namespace at = field::ipv6;
  std::byte* to = out.data();
  at::version_class_flow.store(
      to, 6u << 28 | std::uint32_t{traffic_class} << 20 | (flow_label & flow_label_mask));
  at::payload_bytes.store(to, payload_bytes);
  at::next_header.store(to, static_cast<std::uint8_t>(next_header));
  at::hop_limit.store(to, hop_limit);
  at::source.store(to, source);
  at::destination.store(to, destination);
}

// RFC 8200 §4.5.
Result<Ipv6Fragment, WireError> Ipv6Fragment::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::ipv6_fragment;
  // The offset counts units of eight bytes and is in the upper 13 bits. The field without its lower
  // three bits is therefore the offset in bytes.
  const std::uint16_t place = at::offset_and_more.load(bytes.data());
  return Ipv6Fragment{.next_header = IpProtocol{at::next_header.load(bytes.data())},
                      .offset_bytes = static_cast<std::uint16_t>(place & ~7U),
                      .more_fragments = (place & 1) != 0,
                      .id = at::id.load(bytes.data())};
}

}  // namespace weft::wire
