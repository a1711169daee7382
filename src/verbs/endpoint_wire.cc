// Endpoint as 32 bytes, in network order:
//
//   0  2  "WE"
//   2  1  version, 1
//   3  1  MTU, as ibv_mtu counts it: 1 for 256 bytes to 5 for 4096
//   4  4  QPN
//   8  4  PSN
//  12  2  LID
//  14  2  flags: bit 0, there is a GID
//  16 16  GID, or zeros
#include "verbs/endpoint_wire.h"

#include <algorithm>

#include "base/byte_reader.h"
#include "base/byte_writer.h"
#include "weft/verbs/endpoint.hpp"

namespace weft::verbs {
namespace {

constexpr std::uint16_t magic = 0x5745;  // "WE"
constexpr std::uint8_t version = 1;
constexpr std::uint16_t has_gid = 1;

}  // namespace

std::array<std::byte, Endpoint::encoded_bytes> Endpoint::to_bytes() const {
  std::array<std::byte, encoded_bytes> bytes{};
  ByteWriter out(bytes);
  out.be16(magic);
  out.u8(version);
  out.u8(static_cast<std::uint8_t>(mtu));
  out.be32(number);
  out.be32(psn);
  out.be16(lid);
  out.be16(gid ? has_gid : 0);
  if (gid) out.bytes(std::as_bytes(std::span(gid->bytes())));
  return bytes;
}

// Flags other than bit 0 are ignored, so that a later version may define some.
std::optional<Endpoint> Endpoint::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() != encoded_bytes) return std::nullopt;
  ByteReader in(bytes);
  if (in.be16() != magic || in.u8() != version) return std::nullopt;
  Endpoint endpoint;
  const std::uint8_t mtu_code = in.u8();
  endpoint.mtu = static_cast<ibv_mtu>(mtu_code);
  endpoint.number = in.be32();
  endpoint.psn = in.be32();
  endpoint.lid = in.be16();
  // Checked here because the values go into ibv_modify_qp(3), whose EINVAL would not name the
  // peer's bytes as the cause.
  if (mtu_code < IBV_MTU_256 || mtu_code > IBV_MTU_4096 ||
      endpoint.number >= endpoint_number_limit || endpoint.psn >= endpoint_number_limit) {
    return std::nullopt;
  }
  if ((in.be16() & has_gid) != 0) {
    Gid::Bytes gid;
    std::ranges::copy(in.rest(), std::as_writable_bytes(std::span(gid)).begin());
    endpoint.gid = Gid(gid);
  }
  return endpoint;
}

}  // namespace weft::verbs
