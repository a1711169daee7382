// Fragments of IPv6.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"
#include "capture/analysed.h"

namespace weft::capture::test {
namespace {

// RFC 8200 §4.5: only the Next Header value of the first fragment counts, in whatever order the
// fragments come.
TEST(IpFragments, OnlyTheFirstOneNamesTheProtocol) {
  constexpr std::size_t headers_bytes = 14 + 40;
  constexpr std::size_t length_at = 14 + 4;
  constexpr std::size_t next_at = 14 + 6;
  constexpr std::size_t piece_bytes = 24;
  constexpr std::byte fragment{44};
  constexpr std::byte tcp{6};
  constexpr std::byte none{59};
  MadeCapture sent;
  IwarpTalk talk(sent, {.ipv6 = true}, {});
  talk.connect();
  Operator a(talk, Side::a);
  for (std::size_t i = 0; i < 10; ++i) a.send(100 + i);
  talk.close();
  for (const bool reversed : {false, true}) {
    MadeCapture capture;
    std::uint32_t id = 0;
    for (const MadePacket& packet : sent) {
      const Bytes payload = Bytes(packet.bytes).subspan(headers_bytes);
      const std::size_t first = capture.size();
      ++id;
      for (std::size_t at = 0; at < payload.size(); at += piece_bytes) {
        const Bytes piece = payload.subspan(at, std::min(piece_bytes, payload.size() - at));
        const bool more = at + piece.size() < payload.size();
        Content bytes(packet.bytes.begin(), packet.bytes.begin() + headers_bytes);
        store_be(&bytes[length_at], static_cast<std::uint16_t>(8 + piece.size()));
        bytes[next_at] = fragment;
        bytes.resize(headers_bytes + 8);
        bytes[headers_bytes] = at == 0 ? tcp : none;
        store_be(&bytes[headers_bytes + 2], static_cast<std::uint16_t>(at | (more ? 1U : 0U)));
        store_be(&bytes[headers_bytes + 4], id);
        bytes.insert(bytes.end(), piece.begin(), piece.end());
        capture.push_back({.time_ns = packet.time_ns, .bytes = bytes, .wire_bytes = bytes.size()});
      }
      if (reversed)
        std::reverse(capture.begin() + static_cast<std::ptrdiff_t>(first), capture.end());
    }
    const Analysed seen(capture);
    ASSERT_EQ(seen.connections(), 1U);
    EXPECT_EQ(seen.whole().size(), 10U);
    EXPECT_EQ(seen.traffic.lost_bytes, 0U);
  }
}

}  // namespace
}  // namespace weft::capture::test
