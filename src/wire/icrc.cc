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

// A header's bytes, some of them to be masked: `size` is the most that is needed of it.
template <std::size_t size>
class Masked {
 public:
  explicit Masked(Bytes bytes) : used_(std::min(size, bytes.size())) {
    std::copy_n(bytes.begin(), used_, bytes_.begin());
  }
  void mask(std::size_t at, std::byte bits = ones) { bytes_[at] |= bits; }
  [[nodiscard]] Bytes bytes() const { return Bytes(bytes_).first(used_); }

 private:
  std::array<std::byte, size> bytes_{};
  std::size_t used_;
};

// Traffic class, flow label and hop limit, of an IPv6 header and of a GRH alike.
Masked<Ipv6Header::header_bytes> masked_ipv6(Bytes header) {
  Masked<Ipv6Header::header_bytes> masked(header);
  masked.mask(0, std::byte{0x0F});
  for (const std::size_t at : {1, 2, 3, 7}) masked.mask(at);
  return masked;
}

// Type of service, time to live and checksum.
Masked<Ipv4Header::min_header_bytes> masked_ipv4(Bytes header) {
  Masked<Ipv4Header::min_header_bytes> masked(header);
  for (const std::size_t at : {1, 8, 10, 11}) masked.mask(at);
  return masked;
}

bool is_ipv4(Bytes network) {
  return !network.empty() && std::to_integer<unsigned>(network[0]) >> 4 == 4;
}

// RoCE has no LRH: eight bytes of ones stand for it.
constexpr std::array<std::byte, LocalRouteHeader::header_bytes> no_local_route{
    ones, ones, ones, ones, ones, ones, ones, ones};

}  // namespace

void Icrc::add_bth(Bytes bth) {
  Masked<Bth::header_bytes> masked(bth);
  masked.mask(4);  // FECN, BECN and the reserved bits beside them
  crc_.update(masked.bytes());
  if (bth.size() > Bth::header_bytes) crc_.update(bth.subspan(Bth::header_bytes));
}

void Icrc::add_grh(Bytes grh) {
  crc_.update(masked_ipv6(grh).bytes());
}

Icrc Icrc::roce_v2(Bytes network, Bytes bth) {
  Icrc icrc;
  icrc.update(no_local_route);
  const std::size_t udp_at = network.size() - std::min(network.size(), UdpHeader::header_bytes);
  const Bytes ip = network.first(udp_at);
  if (is_ipv4(ip)) {
    const auto masked = masked_ipv4(ip);
    icrc.update(masked.bytes());
    icrc.update(ip.subspan(masked.bytes().size()));
  } else {
    const auto masked = masked_ipv6(ip);
    icrc.update(masked.bytes());
    icrc.update(ip.subspan(masked.bytes().size()));
  }
  Masked<UdpHeader::header_bytes> udp(network.subspan(udp_at));
  for (const std::size_t at : {6, 7}) udp.mask(at);  // the checksum
  icrc.update(udp.bytes());
  icrc.add_bth(bth);
  return icrc;
}

Icrc Icrc::roce_v1(Bytes grh, Bytes bth) {
  Icrc icrc;
  icrc.update(no_local_route);
  icrc.add_grh(grh);
  icrc.add_bth(bth);
  return icrc;
}

Icrc Icrc::native(Bytes network, Bytes bth) {
  Icrc icrc;
  Masked<LocalRouteHeader::header_bytes> local(network);
  local.mask(0, std::byte{0xF0});  // the virtual lane
  icrc.update(local.bytes());
  const Bytes grh = network.subspan(local.bytes().size());
  if (!grh.empty()) icrc.add_grh(grh);
  icrc.add_bth(bth);
  return icrc;
}

}  // namespace weft::wire
