#include <gtest/gtest.h>

#include "wire/hex_bytes.h"
#include "wire/mpa.h"

namespace weft::wire {
namespace {

// Linux 6.1 siw with CRC, rping: a Send of 16 bytes, and an RDMA Write of 64.
constexpr auto siw_send =
    "0022 4143 00000000 00000000 00000001 00000000"
    "0000558cb9e0643065c16d0000000040 fe5839d6"_hex;
constexpr auto siw_write =
    "004e c140 0cd14d00 0000558cb9e023f0"
    "72646d612d70696e672d303a204142434445464748494a4b4c4d4e4f50515253"
    "5455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f70717200 30bb44b3"_hex;

TEST(Fpdu, IsPaddedToFourBytesCountingTheLengthField) {
  EXPECT_EQ(fpdu_pad_bytes(0), 2U);
  EXPECT_EQ(fpdu_pad_bytes(1), 1U);
  EXPECT_EQ(fpdu_pad_bytes(2), 0U);
  EXPECT_EQ(fpdu_pad_bytes(3), 3U);
  for (std::size_t ulpdu = 0; ulpdu <= fpdu_max_ulpdu_bytes; ++ulpdu) {
    ASSERT_EQ(fpdu_bytes(ulpdu) % 4, 0U);
    ASSERT_LT(fpdu_pad_bytes(ulpdu), 4U);
  }
  EXPECT_EQ(fpdu_bytes(0), 8U);
  EXPECT_EQ(fpdu_bytes(0x22), siw_send.size());
}

// RFC 5044 §4.4, Figure 5: the CRC 0x83992352 travels as 52 23 99 83.
TEST(Fpdu, CarriesItsCrcLeastSignificantByteFirst) {
  const auto on_the_wire = "52239983"_hex;
  EXPECT_EQ(load_fpdu_crc(on_the_wire.data()), 0x83992352U);
  std::array<std::byte, fpdu_crc_bytes> out{};
  store_fpdu_crc(out.data(), 0x83992352U);
  EXPECT_EQ(out, on_the_wire);
}

TEST(FpduView, DeconstructsFpdusOfSiw) {
  const auto view = FpduView::check(siw_send);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->size(), siw_send.size());
  EXPECT_EQ(copy_of(view->ulpdu()), copy_of(Bytes(siw_send).subspan(2, 0x22)));
  EXPECT_EQ(view->crc(), 0xD63958FEU);
  EXPECT_TRUE(view->crc_good());
  EXPECT_TRUE(FpduView::check(siw_write)->crc_good());
}

// RFC 5044 §4.4: length, ULPDU and pad are covered.
TEST(FpduView, NoticesEveryChangedByte) {
  for (std::size_t at = 2; at < siw_send.size(); ++at) {
    auto changed = siw_send;
    changed[at] ^= std::byte{0x10};
    EXPECT_FALSE(FpduView::check(changed)->crc_good()) << "byte " << at;
  }
}

TEST(FpduView, IsTruncatedUntilItIsWhole) {
  expect_truncated_below(siw_send.size(), siw_send,
                         [](Bytes bytes) { return FpduView::check(bytes); });
}

TEST(FpduView, TakesOneFpduOfAStream) {
  const auto stream = joined(siw_send, siw_write);
  const auto first = FpduView::check(stream);
  EXPECT_EQ(first->size(), siw_send.size());
  const auto second = FpduView::check(Bytes(stream).subspan(first->size()));
  EXPECT_EQ(second->size(), siw_write.size());
}

TEST(FpduView, MayBeEmptyOrAsLongAsTheLengthFieldAllows) {
  EXPECT_TRUE(FpduView::check("0000 0000 00000000"_hex)->ulpdu().empty());
  std::vector<std::byte> longest(fpdu_bytes(fpdu_max_ulpdu_bytes));
  longest[0] = longest[1] = std::byte{0xFF};
  EXPECT_EQ(FpduView::check(longest)->ulpdu().size(), fpdu_max_ulpdu_bytes);
}

// RFC 5044 §3
TEST(Mulpdu, LeavesRoomForLengthFieldAndCrc) {
  EXPECT_EQ(mulpdu_bytes(1448, false), 1442U);
  EXPECT_EQ(mulpdu_bytes(1460, false), 1454U);
  EXPECT_EQ(mulpdu_bytes(1461, false), 1454U);
  EXPECT_EQ(mulpdu_bytes(1463, false), 1454U);
}

TEST(Mulpdu, LeavesRoomForAMarkerInEveryStarted512Bytes) {
  EXPECT_EQ(mulpdu_bytes(1024, true), 1024U - 6 - 8);
  EXPECT_EQ(mulpdu_bytes(1025, true), 1025U - 7 - 12);
  EXPECT_EQ(mulpdu_bytes(1460, true), 1460U - 6 - 12);
}

TEST(Mulpdu, StaysWithinItsLimits) {
  for (const bool markers : {false, true}) {
    for (std::size_t emss = 0; emss < 134; ++emss) EXPECT_EQ(mulpdu_bytes(emss, markers), 128U);
    EXPECT_EQ(mulpdu_bytes(65483, markers), 64768U);
    EXPECT_EQ(mulpdu_bytes(1 << 20, markers), 64768U);
  }
}

TEST(Mulpdu, MakesFpdusThatFitTheSegment) {
  for (std::size_t emss = 256; emss < 65536; ++emss) {
    ASSERT_LE(fpdu_bytes(mulpdu_bytes(emss, false)), emss);
  }
}

// RFC 5044 §4.3
TEST(Marker, DeconstructsAndConstructs) {
  EXPECT_EQ(*Marker::parse("00000014"_hex), Marker{.fpdu_pointer = 0x14});
  EXPECT_EQ(emitted(Marker{.fpdu_pointer = 0x1234}, marker_bytes), copy_of("00001234"_hex));
  expect_truncated_below(marker_bytes, "00000014"_hex,
                         [](Bytes bytes) { return Marker::parse(bytes); });
}

// RFC 5044 §4.3: reserved bits and the two low bits of FPDUPTR count as zero.
TEST(Marker, IgnoresWhatIsReserved) {
  EXPECT_EQ(*Marker::parse("ffff0017"_hex), Marker{.fpdu_pointer = 0x14});
  EXPECT_EQ(emitted(Marker{.fpdu_pointer = 0x17}, marker_bytes), copy_of("00000014"_hex));
}

TEST(Marker, StandsAtEvery512thByte) {
  EXPECT_EQ(bytes_to_marker(0), 0U);
  EXPECT_EQ(bytes_to_marker(4), 508U);
  EXPECT_EQ(bytes_to_marker(508), 4U);
  EXPECT_EQ(bytes_to_marker(512), 0U);
  EXPECT_EQ(bytes_to_marker((std::uint64_t{1} << 40) - 4), 4U);
}

}  // namespace
}  // namespace weft::wire
