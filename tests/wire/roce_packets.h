// Packets of other implementations: of Linux 6.1's software RoCE (rxe), from the IP header to the
// ICRC, and of native InfiniBand.
#pragma once

#include "wire/hex_bytes.h"
#include "wire/ip.h"
#include "wire/udp.h"

namespace weft::wire {

inline constexpr std::size_t roce_network_bytes =
    Ipv4Header::min_header_bytes + UdpHeader::header_bytes;

inline constexpr auto rxe_send_only =
    "4500004c4d7440004011d8900a4d00020a4d0001 eaa112b700380000 0400ffff0000001580a00e7e"
    "20272e353c434a51585f666d747b828990979ea5acb3bac1c8cfd6dde4ebf2f9 d51fd762"_hex;
inline constexpr auto rxe_send_immediate =
    "45000030504940004011d5d70a4d00020a4d0001 c3d012b7001c0000 0500ffff00000017805072c2"
    "11223344 3b483d10"_hex;
// One byte, three of pad.
inline constexpr auto rxe_write_last =
    "45000030495b40004011dcc50a4d00020a4d0001 d06d12b7001c0000 0830ffff0000001280767ddb"
    "d1000000 8ff7465c"_hex;
inline constexpr auto rxe_write_only =
    "45000044494940004011dcc30a4d00020a4d0001 d06d12b700300000 0a30ffff0000001280767dc9"
    "0000563e5d5290050000040a00000005 464d545b62000000 c3e0515c"_hex;
inline constexpr auto rxe_write_immediate =
    "45000040528840004011d3880a4d00020a4d0001 ccdb12b7002c0000 0b00ffff000000188064e184"
    "0000563e5d595000000010ce00000000 55667788 902cef84"_hex;
inline constexpr auto rxe_read_request =
    "4500003c4a8940004011db8b0a4d00020a4d0001 ed5312b700280000 0c00ffff000000138030cfe5"
    "0000563e5d53b013000006230000ffff 2fafe932"_hex;
inline constexpr auto rxe_read_only =
    "45000038172b400040110eee0a4d00010a4d0002 ed5312b700240000 1030ffff000000130030cfc4"
    "1f000006 101316191c000000 150a50cd"_hex;
inline constexpr auto rxe_acknowledge =
    "450000309da540004011887b0a4d00020a4d0001 c14412b7001c0000 1100ffff0000001200b1041f"
    "1f00000d 2b147b7c"_hex;
inline constexpr auto rxe_atomic_acknowledge =
    "4500003823364000401102e30a4d00010a4d0002 ec3312b700240000 1200ffff0000001a00878c3c"
    "1f000005 a0a1a2a3a4a5a603 1187dd85"_hex;
inline constexpr auto rxe_compare_swap =
    "4500004854f140004011d1170a4d00020a4d0001 ec3312b700340000 1300ffff0000001a80878c3c"
    "0000563e5d5b900000001429a0a1a2a3a4a5a604a0a1a2a3a4a5a601 92a095c7"_hex;
inline constexpr auto rxe_fetch_add =
    "45000048546940004011d19f0a4d00020a4d0001 f13f12b700340000 1400ffff000000198089feeb"
    "0000563e5d5a700000001290010203040506070c0000000000000000 8abd8bbb"_hex;

// A multicast packet of native InfiniBand, from the Local Route Header to the ICRC.
inline constexpr auto infiniband_multicast =
    "0003c00000210004 6000000000541b00fe800000000000000002c9020024f636"
    "ff12401bffff000000000000ffffffff"
    "6440ffff00ffffff000020af00000b1b0000040508060000002008001404000180000405fe800000"
    "000000000002c9020024f6360a00012200000000000000000000000000000000000000000a00003a bd6bd6a8"_hex;

[[nodiscard]] constexpr Bytes network_of(Bytes packet) {
  return packet.first(roce_network_bytes);
}
[[nodiscard]] constexpr Bytes transport_of(Bytes packet) {
  return packet.subspan(roce_network_bytes);
}

}  // namespace weft::wire
