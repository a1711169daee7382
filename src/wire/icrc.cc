// The invariant CRC covers what no router changes, so fields that may change are taken as ones
// (InfiniBand Architecture Specification, volume 1, §7.8; Annex A17 for RoCE v2).
#include "wire/icrc.h"

#include <algorithm>
#include <array>

#include "wire/ib_link.h"
#include "wire/ib_transport.h"
#include "wire/ip.h"
#include "wire/udp.h"

namespace weft::wire {
namespace {

constexpr std::byte ones{0xFF};

// A copy of the first `size` bytes of a header, or of what there is of them, in which fields can be
// masked: set to ones.
template <std::size_t size>
class Masked {
 public:
  explicit Masked(Bytes bytes) : used_(std::min(size, bytes.size())) {
    std::copy_n(bytes.begin(), used_, bytes_.begin());
  }
  void mask_bits(std::size_t at, std::byte bits) { bytes_[at] |= bits; }
  template <typename T>
  void mask(Field<T> field) {
    for (std::size_t at = field.at; at < field.end(); ++at) bytes_[at] = ones;
  }
  [[nodiscard]] Bytes bytes() const { return Bytes(bytes_).first(used_); }

 private:
  std::array<std::byte, size> bytes_{};
  std::size_t used_;
};

// Passes pieces on together: the CRC folds 16 bytes and more at a time, and takes shorter pieces
// byte by byte.
class Gathered {
 public:
  explicit Gathered(Icrc& icrc) : icrc_(icrc) {}

  void add(Bytes piece) {
    if (piece.size() > bytes_.size() - used_) pass_on();
    if (piece.size() > bytes_.size()) return icrc_.update(piece);
    std::ranges::copy(piece, bytes_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += piece.size();
  }

  // Call it after the last piece.
  void pass_on() {
    icrc_.update(Bytes(bytes_).first(used_));
    used_ = 0;
  }

 private:
  Icrc& icrc_;
  std::array<std::byte, 128> bytes_;  // headers have 76 bytes at most, without options
  std::size_t used_ = 0;
};

// Masks traffic class, flow label and hop limit, in an IPv6 header and in a GRH alike.
Masked<Ipv6Header::header_bytes> masked_ipv6(Bytes header) {
  Masked<Ipv6Header::header_bytes> masked(header);
  constexpr Field32 first = field::ipv6::version_class_flow;
  masked.mask_bits(first.at, std::byte{0x0F});  // all but the version
  for (std::size_t at = first.at + 1; at < first.end(); ++at) masked.mask_bits(at, ones);
  masked.mask(field::ipv6::hop_limit);
  return masked;
}

// Masks type of service, time to live and checksum.
Masked<Ipv4Header::min_header_bytes> masked_ipv4(Bytes header) {
  Masked<Ipv4Header::min_header_bytes> masked(header);
  masked.mask(field::ipv4::traffic_class);
  masked.mask(field::ipv4::ttl);
  masked.mask(field::ipv4::checksum);
  return masked;
}

Masked<Bth::header_bytes> masked_bth(Bytes bth) {
  Masked<Bth::header_bytes> masked(bth);
  masked.mask_bits(field::bth::congestion_and_qp.at, ones);  // FECN, BECN and six reserved bits
  return masked;
}

// The version of IP is in the first four bits of either header.
bool is_ipv4(Bytes network) {
  return !network.empty() && std::to_integer<unsigned>(network[0]) >> 4 == 4;
}

// RoCE has no Local Route Header. Eight bytes of ones are in its place (Annex A16, A17).
constexpr std::array<std::byte, LocalRouteHeader::header_bytes> no_local_route{
    ones, ones, ones, ones, ones, ones, ones, ones};

}  // namespace

void Icrc::add_bth(Bytes bth) {
  crc_.update(masked_bth(bth).bytes());
  // Whatever follows the BTH in the same piece is covered unchanged.
  if (bth.size() > Bth::header_bytes) crc_.update(bth.subspan(Bth::header_bytes));
}

void Icrc::add_grh(Bytes grh) {
  crc_.update(masked_ipv6(grh).bytes());
}

// `network` is the IP header with its options, followed by the UDP header.
Icrc Icrc::roce_v2(Bytes network, Bytes bth) {
  Icrc icrc;
  Gathered headers(icrc);
  headers.add(no_local_route);
  const std::size_t udp_at = network.size() - std::min(network.size(), UdpHeader::header_bytes);
  const Bytes ip = network.first(udp_at);
  const auto add_masked = [&](const auto& masked) {
    headers.add(masked.bytes());
    headers.add(ip.subspan(masked.bytes().size()));
  };
  if (is_ipv4(ip))
    add_masked(masked_ipv4(ip));
  else
    add_masked(masked_ipv6(ip));
  Masked<UdpHeader::header_bytes> udp(network.subspan(udp_at));
  // A device that translates addresses changes it.
  udp.mask(field::udp::checksum);
  headers.add(udp.bytes());
  headers.add(masked_bth(bth).bytes());
  // Whatever follows the BTH in the same piece is covered unchanged.
  if (bth.size() > Bth::header_bytes) headers.add(bth.subspan(Bth::header_bytes));
  headers.pass_on();
  return icrc;
}

Icrc Icrc::roce_v1(Bytes grh, Bytes bth) {
  Icrc icrc;
  icrc.update(no_local_route);
  icrc.add_grh(grh);
  icrc.add_bth(bth);
  return icrc;
}

// §7.8.1: a router replaces the whole Local Route Header, so with a Global Route Header all of it
// counts as ones. Without one a packet stays in its subnet, and only the virtual lane may change.
Icrc Icrc::native(Bytes network, Bytes bth) {
  const Bytes local = network.first(std::min(network.size(), LocalRouteHeader::header_bytes));
  const Bytes grh = network.subspan(local.size());
  if (!grh.empty()) return roce_v1(grh, bth);
  Icrc icrc;
  Masked<LocalRouteHeader::header_bytes> masked(local);
  constexpr std::byte virtual_lane{0xF0};
  masked.mask_bits(field::local_route::lane_and_version.at, virtual_lane);
  icrc.update(masked.bytes());
  icrc.add_bth(bth);
  return icrc;
}

}  // namespace weft::wire
