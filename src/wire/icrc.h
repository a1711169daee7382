// The invariant CRC of the InfiniBand transport: over everything that no hop may change, with the
// fields that a hop may change read as ones (InfiniBand Architecture Specification, volume 1,
// §7.8.1; Annex A16 for RoCE v1, Annex A17 for RoCE v2). On the wire it goes out least significant
// byte first: store_le(out, icrc.value()).
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/crc32.h"

namespace weft::wire {

// Begins with a packet's headers; the rest may come in pieces. A value type.
class Icrc {
 public:
  // `network`: the IPv4 header with its options, or the IPv6 header with its extension headers, and
  // the UDP header; what is no such thing gives some CRC. `bth`: the Base Transport Header, 12
  // bytes or more.
  [[nodiscard]] static Icrc roce_v2(Bytes network, Bytes bth);
  // `grh`: the Global Route Header.
  [[nodiscard]] static Icrc roce_v1(Bytes grh, Bytes bth);
  // `network`: the Local Route Header and, where there is one, the Global Route Header.
  [[nodiscard]] static Icrc native(Bytes network, Bytes bth);

  // What follows, up to and with the pad.
  void update(Bytes bytes) { crc_.update(bytes); }
  [[nodiscard]] std::uint32_t value() const { return crc_.value(); }

 private:
  void add_bth(Bytes bth);
  void add_grh(Bytes grh);

  Crc32 crc_;
};

}  // namespace weft::wire
