#include "wire/terminate.h"

#include <gtest/gtest.h>

#include <set>

#include "wire/ddp.h"
#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

constexpr auto write_header = "8140 1f8fa700 00005586ebc78000"_hex;
constexpr auto read_header = "4141 00000000 00000001 00000001 00000000"_hex;
constexpr auto send_header = "0143 00000000 00000000 00000001 00000000"_hex;
constexpr auto atomic_header = "414a 00000000 00000001 00000001 00000000"_hex;
constexpr auto read_request = "24526700 00007fe825f43000 00000bb8 b38e4200 00005586ebc8b000"_hex;

constexpr auto for_write = joined("11 00 c000 0594"_hex, write_header);
constexpr auto for_read = joined("01 00 e000 002e"_hex, read_header, read_request);
constexpr auto for_send = joined("12 02 c000 0590"_hex, send_header);

auto parse(Bytes bytes) {
  return Terminate::parse(bytes);
}

std::vector<std::byte> emitted_whole(const Terminate& terminate) {
  return emitted(terminate, terminate.size());
}

Bytes ddp_header(const Terminate& terminate) {
  return Bytes(terminate.ddp_header).first(terminate.ddp_header_bytes);
}

// RFC 5040 §4.8
TEST(Terminate, DeconstructsTheTaggedHeaderAtFault) {
  const auto terminate = Terminate::parse(for_write);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->code, terminate::tagged_invalid_stag);
  EXPECT_EQ(terminate->ddp_segment_bytes, 0x594);
  EXPECT_EQ(copy_of(ddp_header(*terminate)), copy_of(write_header));
  EXPECT_FALSE(terminate->has_read_request);
  EXPECT_EQ(DdpTagged::parse(ddp_header(*terminate))->stag, 0x1F8FA700U);
}

TEST(Terminate, DeconstructsTheUntaggedHeaderAtFault) {
  const auto terminate = Terminate::parse(for_send);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->code, terminate::untagged_no_buffer);
  EXPECT_EQ(copy_of(ddp_header(*terminate)), copy_of(send_header));
}

TEST(Terminate, DeconstructsTheReadRequestAtFault) {
  const auto terminate = Terminate::parse(for_read);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->code, terminate::rdma_invalid_stag);
  EXPECT_EQ(copy_of(ddp_header(*terminate)), copy_of(read_header));
  ASSERT_TRUE(terminate->has_read_request);
  EXPECT_EQ(terminate->read_request.source_stag, 0xB38E4200U);
}

TEST(Terminate, ConstructsWhatItDeconstructs) {
  EXPECT_EQ(emitted_whole(*Terminate::parse(for_write)), copy_of(for_write));
  EXPECT_EQ(emitted_whole(*Terminate::parse(for_send)), copy_of(for_send));
  EXPECT_EQ(emitted_whole(*Terminate::parse(for_read)), copy_of(for_read));
  EXPECT_EQ(for_read.size(), Terminate::max_bytes);
}

TEST(Terminate, MayCarryNoHeaderAtAll) {
  const Terminate terminate{.code = terminate::mpa_crc};
  EXPECT_EQ(emitted_whole(terminate), copy_of("20 02 0000"_hex));
  EXPECT_EQ(*Terminate::parse("20 02 0000"_hex), terminate);
}

TEST(Terminate, KeepsUnknownCodesAndIgnoresReservedBits) {
  // Of the reserved bits the first byte's low three mean something where M, D and R are clear:
  // below.
  EXPECT_EQ(Terminate::parse("fe dc 18ff"_hex)->code, (TerminateCode{15, 14, 0xDC}));
  EXPECT_EQ(Terminate::parse("fe dc dfff"_hex)->code, (TerminateCode{15, 14, 0xDC}));
}

TEST(Terminate, IsTruncatedBelowItsControlWord) {
  expect_truncated_below(Terminate::fixed_bytes, for_read, parse);
}

// Some peers leave out headers that they announce. A header in part is a damaged message.
TEST(Terminate, ToleratesACutBehindAWholePartOnly) {
  const std::set<std::size_t> whole_parts{4, 6, 6 + 18, for_read.size()};
  for (std::size_t count = Terminate::fixed_bytes; count <= for_read.size(); ++count) {
    const auto cut = copy_of(Bytes(for_read).first(count));
    const auto terminate = Terminate::parse(cut);
    ASSERT_EQ(terminate.ok(), whole_parts.contains(count)) << "cut to " << count << " bytes";
    if (!terminate.ok()) {
      EXPECT_EQ(terminate.error(), WireError::truncated);
    }
  }
  EXPECT_EQ(Terminate::parse(Bytes(for_read).first(6))->ddp_header_bytes, 0);
  EXPECT_FALSE(Terminate::parse(Bytes(for_read).first(24))->has_read_request);
}

// RFC 7306 §8: the RDMAP header at fault of an Atomic Request is not a Read Request's.
TEST(Terminate, TakesNoOtherHeaderForAReadRequest) {
  const auto bytes = joined("01 00 e000 0046"_hex, atomic_header, read_request);
  const auto terminate = Terminate::parse(bytes);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(copy_of(ddp_header(*terminate)), copy_of(atomic_header));
  EXPECT_FALSE(terminate->has_read_request);
}

// Linux 6.1 siw, a Write with a wrong STag: its control word has layer and type swapped, and M, D,
// R at the bottom of the third byte.
TEST(Terminate, ReadsTheOneOfSiwForAWrite) {
  const auto bytes = joined("11 00 0300 0594"_hex, write_header);
  const auto terminate = Terminate::parse(bytes);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(*terminate, *Terminate::parse(for_write));
}

// Linux 6.1 siw, a Read with a wrong STag. It also spoils segment length and MSN.
TEST(Terminate, ReadsTheOneOfSiwForARead) {
  const auto spoiled = "4141 00000000 00000001 00000bb8 00000000"_hex;
  const auto terminate = Terminate::parse(joined("10 00 0700 0000"_hex, spoiled, read_request));
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->code, terminate::rdma_invalid_stag);
  EXPECT_EQ(copy_of(ddp_header(*terminate)), copy_of(spoiled));
  EXPECT_EQ(terminate->read_request, *ReadRequest::parse(read_request));
}

// Linux 6.1 siw, a Send for which no receive was posted.
TEST(Terminate, ReadsTheOneOfSiwForASend) {
  const auto bytes = joined("21 02 0300 0590"_hex, send_header);
  EXPECT_EQ(*Terminate::parse(bytes), *Terminate::parse(for_send));
}

TEST(TerminateCode, IsDescribedByLayerErrorAndNumbers) {
  EXPECT_EQ(describe(terminate::rdma_access),
            "RDMAP, remote protection: access rights violation (0/1/2)");
  EXPECT_EQ(describe(terminate::untagged_no_buffer),
            "DDP, untagged buffer: no buffer available (1/2/2)");
  EXPECT_EQ(describe(terminate::mpa_crc), "MPA, CRC error (2/0/2)");
  EXPECT_EQ(describe(TerminateCode{1, 9, 200}), "DDP, unknown error (1/9/200)");
  EXPECT_EQ(describe(TerminateCode{7, 0, 0}), "unknown layer, unknown error (7/0/0)");
}

}  // namespace
}  // namespace weft::wire
