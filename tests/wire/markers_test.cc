#include "wire/markers.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

// RFC 5044 §4.4, Figure 5: the first FPDU of a stream, behind the first marker. It carries a Send
// of 24 zero bytes.
constexpr auto figure_5 =
    "00000000"
    "002a 4143 00000000 00000000 00000001 00000000"
    "000000000000000000000000000000000000000000000000 52239983"_hex;

// RFC 5044 §4.4, Figure 6: the second FPDU, at stream position 492, with a marker inside.
constexpr auto figure_6 =
    "002a 4143 00000000 00000000 00000002 00000000"
    "00000014"
    "000000000000000000000000000000000000000000000000 84925898"_hex;
constexpr std::uint64_t figure_6_position = 492;

// What an FPDU is before markers and CRC: that of the figures, by its MSN.
std::vector<std::byte> figure_fpdu(std::uint32_t msn) {
  std::vector<std::byte> fpdu(fpdu_bytes(42));
  std::ranges::copy("002a 4143"_hex, fpdu.begin());
  store_be(&fpdu[12], msn);
  return fpdu;
}

std::vector<std::byte> random_fpdu(std::mt19937& random, std::size_t ulpdu_bytes) {
  std::vector<std::byte> fpdu(fpdu_bytes(ulpdu_bytes));
  for (std::byte& byte : fpdu) byte = static_cast<std::byte>(random());
  store_be(fpdu.data(), static_cast<std::uint16_t>(ulpdu_bytes));
  return fpdu;
}

std::vector<std::byte> inserted(std::uint64_t position, Bytes fpdu) {
  std::vector<std::byte> out(marked_bytes(position, fpdu.size()));
  const auto written = insert_markers(position, fpdu, out);
  EXPECT_TRUE(written.ok());
  EXPECT_EQ(*written, out.size());
  return out;
}

Bytes without_crc(Bytes fpdu) {
  return fpdu.first(fpdu.size() - fpdu_crc_bytes);
}

TEST(Markers, PrecedeTheFirstFpduAsInFigure5) {
  EXPECT_EQ(inserted(0, figure_fpdu(1)), copy_of(figure_5));
}

TEST(Markers, PointBackFromWithinAnFpduAsInFigure6) {
  EXPECT_EQ(inserted(figure_6_position, figure_fpdu(2)), copy_of(figure_6));
}

TEST(Markers, AreStrippedFromTheFigures) {
  std::vector<std::byte> out(fpdu_bytes(42));
  const StrippedFpdu expected{
      .stream_bytes = figure_5.size(), .plain_bytes = out.size(), .crc_good = true};
  EXPECT_EQ(*strip_markers(0, figure_5, out), expected);
  EXPECT_EQ(copy_of(without_crc(out)), copy_of(without_crc(figure_fpdu(1))));
  EXPECT_EQ(*strip_markers(figure_6_position, figure_6, out), expected);
  EXPECT_EQ(copy_of(without_crc(out)), copy_of(without_crc(figure_fpdu(2))));
}

// RFC 5044 §4.3: a marker between two FPDUs points at the one behind it, with zero.
TEST(Markers, BetweenFpdusBelongToTheFollowingOne) {
  const auto fpdu = figure_fpdu(1);
  EXPECT_EQ(marked_bytes(512 - fpdu.size(), fpdu.size()), fpdu.size());
  const auto following = inserted(512, fpdu);
  EXPECT_EQ(following, copy_of(figure_5));
}

// RFC 5044 §4.3, §4.4: a marker just before the CRC is inside its FPDU and covered.
TEST(Markers, MayStandRightBeforeTheCrc) {
  const auto fpdu = figure_fpdu(1);
  const auto marked = inserted(512 - 44, fpdu);
  ASSERT_EQ(marked.size(), fpdu.size() + marker_bytes);
  EXPECT_EQ(*Marker::parse(Bytes(marked).subspan(44)), Marker{.fpdu_pointer = 44});
  EXPECT_TRUE(fpdu_crc_good(marked));
}

// RFC 5044 §4.3: the distance counts the markers between, though not one in front.
TEST(Markers, CountEarlierMarkersInTheirDistance) {
  const auto pointers = [](std::uint64_t position, std::size_t plain_bytes) {
    std::vector<std::uint16_t> found;
    MarkedPieces pieces(position, plain_bytes);
    while (const auto piece = pieces.next()) {
      if (piece->has_marker) found.push_back(piece->marker.fpdu_pointer);
    }
    return found;
  };
  EXPECT_EQ(pointers(0, 1600), (std::vector<std::uint16_t>{0, 508, 1020, 1532}));
  EXPECT_EQ(pointers(4, 1600), (std::vector<std::uint16_t>{508, 1020, 1532}));
  EXPECT_EQ(pointers(500, 1600), (std::vector<std::uint16_t>{12, 524, 1036, 1548}));
  EXPECT_EQ(pointers(4, 508), std::vector<std::uint16_t>{});
}

TEST(Markers, CoverAnFpduInPiecesWithoutGap) {
  for (std::uint64_t position = 0; position < 1024; position += 4) {
    for (const std::size_t plain_bytes : {8U, 508U, 512U, 1016U, 1452U}) {
      std::size_t offset = 0;
      std::size_t on_stream = 0;
      MarkedPieces pieces(position, plain_bytes);
      while (const auto piece = pieces.next()) {
        ASSERT_EQ(piece->plain_offset, offset);
        ASSERT_EQ(piece->has_marker, bytes_to_marker(position + on_stream) == 0);
        ASSERT_GT(piece->plain_bytes, 0U);
        offset += piece->plain_bytes;
        on_stream += piece->plain_bytes + (piece->has_marker ? marker_bytes : 0);
      }
      ASSERT_EQ(offset, plain_bytes);
      ASSERT_EQ(on_stream, marked_bytes(position, plain_bytes));
    }
  }
}

TEST(Markers, ComeOutOfAStreamAsTheyWentIn) {
  std::mt19937 random(5044);
  std::uint64_t position = 0;
  for (int count = 0; count < 300; ++count) {
    const auto fpdu = random_fpdu(random, random() % 3000);
    const auto marked = inserted(position, fpdu);
    std::vector<std::byte> plain(fpdu.size());
    const auto stripped = strip_markers(position, marked, plain);
    ASSERT_TRUE(stripped.ok());
    EXPECT_EQ(*stripped, (StrippedFpdu{marked.size(), fpdu.size(), true}));
    EXPECT_EQ(copy_of(without_crc(plain)), copy_of(without_crc(fpdu)));
    position += marked.size();
  }
}

// With the largest MULPDU every pointer fits its 16 bits.
TEST(Markers, FitTheLargestMulpdu) {
  std::mt19937 random(5044);
  const auto fpdu = random_fpdu(random, mulpdu_bytes(1 << 20, true));
  for (const std::uint64_t position : {0U, 4U, 256U, 508U}) {
    EXPECT_TRUE(fpdu_crc_good(inserted(position, fpdu)));
  }
}

TEST(Markers, AreNotInsertedWhereAPointerCannotReach) {
  std::mt19937 random(5044);
  const auto fpdu = random_fpdu(random, fpdu_max_ulpdu_bytes);
  std::vector<std::byte> out(marked_bytes(4, fpdu.size()));
  const auto written = insert_markers(4, fpdu, out);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error(), WireError::bad_length);
}

TEST(Markers, AreInsertedIntoWholeFpdusOnly) {
  const auto fpdu = figure_fpdu(1);
  std::vector<std::byte> out(100);
  for (std::size_t count = 0; count < fpdu.size(); ++count) {
    const auto cut = copy_of(Bytes(fpdu).first(count));
    ASSERT_FALSE(insert_markers(0, cut, out));
    EXPECT_EQ(insert_markers(0, cut, out).error(), WireError::bad_length);
  }
  const auto tight = MutableBytes(out).first(figure_5.size() - 1);
  ASSERT_FALSE(insert_markers(0, fpdu, tight));
  EXPECT_EQ(insert_markers(0, fpdu, tight).error(), WireError::truncated);
}

TEST(Markers, AreTruncatedUntilTheFpduIsWhole) {
  std::vector<std::byte> out(fpdu_bytes(42));
  const auto at = [&out](std::uint64_t position) {
    return [&out, position](Bytes stream) { return strip_markers(position, stream, out); };
  };
  expect_truncated_below(figure_5.size(), figure_5, at(0));
  expect_truncated_below(figure_6.size(), figure_6, at(figure_6_position));
}

TEST(Markers, ThatPointElsewhereAreRefused) {
  std::vector<std::byte> out(fpdu_bytes(42));
  auto stream = figure_6;
  stream[0x17] = std::byte{0x10};
  ASSERT_FALSE(strip_markers(figure_6_position, stream, out));
  EXPECT_EQ(strip_markers(figure_6_position, stream, out).error(), WireError::bad_marker);
}

// RFC 5044 §4.3: what is reserved in a marker is ignored, yet covered by the CRC.
TEST(Markers, MayHaveReservedBitsSet) {
  std::vector<std::byte> out(fpdu_bytes(42));
  auto stream = figure_6;
  stream[0x14] = std::byte{0x10};
  const auto stripped = strip_markers(figure_6_position, stream, out);
  ASSERT_TRUE(stripped);
  EXPECT_FALSE(stripped->crc_good);
}

TEST(Markers, AreNotStrippedIntoTooLittleSpace) {
  std::vector<std::byte> out(fpdu_bytes(42) - 1);
  ASSERT_FALSE(strip_markers(0, figure_5, out));
  EXPECT_EQ(strip_markers(0, figure_5, out).error(), WireError::bad_length);
}

}  // namespace
}  // namespace weft::wire
