// The invariant CRC of the InfiniBand transport covers everything that no hop may change; the
// fields that a hop may change count as ones (InfiniBand Architecture Specification, volume 1,
// §7.8.1; Annex A16 for RoCE v1, Annex A17 for RoCE v2).
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/crc32.h"

namespace weft::wire {

// A running ICRC. It begins with the headers of a packet; the rest may come in pieces. It is a
// value: a copy continues on its own.
class Icrc {
 public:
  // `network` is the IPv4 header with its options, or the IPv6 header with its extension headers,
  // and the UDP header; other bytes give a meaningless CRC and do no harm. `bth` is the Base
  // Transport Header, 12 bytes or more.
  [[nodiscard]] static Icrc roce_v2(Bytes network, Bytes bth);
  // `grh` is the Global Route Header.
  [[nodiscard]] static Icrc roce_v1(Bytes grh, Bytes bth);
  // `network` is the Local Route Header and, if there is one, the Global Route Header. With the
  // latter nothing of the former is covered.
  [[nodiscard]] static Icrc native(Bytes network, Bytes bth);

  // Adds the bytes that follow, up to and with the pad.
  void update(Bytes bytes) { crc_.update(bytes); }
  [[nodiscard]] std::uint32_t value() const { return crc_.value(); }

 private:
  void add_bth(Bytes bth);
  void add_grh(Bytes grh);

  Crc32 crc_;
};

// Writes an ICRC behind the pad of a packet. It goes out least significant byte first.
inline void store_icrc(std::byte* at, std::uint32_t icrc) {
  store_le(at, icrc);
}

}  // namespace weft::wire
