#include "wire/ddp.h"

#include <gtest/gtest.h>

#include "wire/hex_bytes.h"
#include "wire/rdmap.h"

namespace weft::wire {
namespace {

// Linux 6.1 siw, rping: the headers of an RDMA Write and of a Send, the latter with its payload.
constexpr auto siw_write = "c1 40 0cd14d00 0000558cb9e023f0"_hex;
constexpr auto siw_send =
    "41 43 00000000 00000000 00000001 00000000 0000558cb9e0643065c16d0000000040"_hex;
// Linux 6.1 siw: a Send with Invalidate.
constexpr auto siw_send_invalidate = "41 44 3e8d4700 00000000 00000001 00000000"_hex;
// Linux 6.1 siw: the second of three segments of a Send.
constexpr auto siw_middle = "01 43 00000000 00000000 00000001 00000590"_hex;

template <typename Header>
class DdpHeader : public testing::Test {};
using Headers = testing::Types<DdpTagged, DdpUntagged>;
TYPED_TEST_SUITE(DdpHeader, Headers);

// RFC 5041 §4.2
TEST(DdpTagged, DeconstructsAWriteOfSiw) {
  const auto header = DdpTagged::parse(siw_write);
  ASSERT_TRUE(header);
  EXPECT_EQ(*header, (DdpTagged{.last = true,
                                .rdmap_control = 0x40,
                                .stag = 0x0CD14D00,
                                .tagged_offset = 0x558CB9E023F0}));
}

TEST(DdpTagged, ConstructsAWriteOfSiw) {
  const DdpTagged header{.last = true,
                         .rdmap_control = rdmap_control(RdmapOpcode::write),
                         .stag = 0x0CD14D00,
                         .tagged_offset = 0x558CB9E023F0};
  EXPECT_EQ(emitted(header), copy_of(siw_write));
}

// RFC 5041 §4.3
TEST(DdpUntagged, DeconstructsASendWithInvalidateOfSiw) {
  const auto header = DdpUntagged::parse(siw_send_invalidate);
  ASSERT_TRUE(header);
  EXPECT_EQ(*header, (DdpUntagged{.last = true,
                                  .rdmap_control = 0x44,
                                  .invalidate_stag = 0x3E8D4700,
                                  .queue = 0,
                                  .msn = 1,
                                  .message_offset = 0}));
}

TEST(DdpUntagged, ConstructsASegmentInTheMiddle) {
  const DdpUntagged header{.rdmap_control = 0x43, .msn = 1, .message_offset = 1424};
  EXPECT_EQ(emitted(header), copy_of(siw_middle));
  EXPECT_EQ(*DdpUntagged::parse(siw_middle), header);
}

TYPED_TEST(DdpHeader, ComesBackFromExtremeValues) {
  const auto ones = std::vector<std::byte>(TypeParam::header_bytes, std::byte{0xFF});
  auto bytes = ones;
  bytes[0] = emitted(TypeParam{.last = true})[0];
  const auto header = TypeParam::parse(bytes);
  ASSERT_TRUE(header);
  EXPECT_EQ(emitted(*header), bytes);
}

TYPED_TEST(DdpHeader, IsTruncatedAtEveryShorterLength) {
  expect_truncated_below(TypeParam::header_bytes, emitted(TypeParam{}),
                         [](Bytes bytes) { return TypeParam::parse(bytes); });
}

// RFC 5041 §4.1: the four reserved bits are sent as zero and not checked.
TYPED_TEST(DdpHeader, IgnoresReservedBits) {
  auto bytes = emitted(TypeParam{.last = true});
  bytes[0] |= std::byte{0x3C};
  const auto header = TypeParam::parse(bytes);
  ASSERT_TRUE(header);
  EXPECT_EQ(*header, TypeParam{.last = true});
}

// RFC 5041 §4.1
TYPED_TEST(DdpHeader, RefusesForeignVersions) {
  for (const unsigned version : {0U, 2U, 3U}) {
    auto bytes = emitted(TypeParam{});
    bytes[0] = (bytes[0] & std::byte{0xFC}) | static_cast<std::byte>(version);
    const auto header = TypeParam::parse(bytes);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error(), WireError::bad_version);
  }
}

TEST(DdpTagged, RefusesAnUntaggedHeaderAndTheReverse) {
  const auto tagged = DdpTagged::parse(siw_send);
  ASSERT_FALSE(tagged);
  EXPECT_EQ(tagged.error(), WireError::wrong_model);
  const auto untagged = DdpUntagged::parse(joined(siw_write, "00000000"_hex));
  ASSERT_FALSE(untagged);
  EXPECT_EQ(untagged.error(), WireError::wrong_model);
}

TEST(DdpControl, IsReadFromTheFirstByte) {
  EXPECT_TRUE(ddp_is_tagged(siw_write[0]));
  EXPECT_TRUE(ddp_is_last(siw_write[0]));
  EXPECT_FALSE(ddp_is_tagged(siw_middle[0]));
  EXPECT_FALSE(ddp_is_last(siw_middle[0]));
  EXPECT_EQ(ddp_version_of(siw_middle[0]), ddp_version);
  EXPECT_EQ(ddp_version_of(std::byte{0xFE}), 2);
}

TEST(TaggedView, ReadsHeaderAndPayload) {
  const auto segment = joined(siw_write, "7264"_hex);
  const auto view = TaggedView::check(segment);
  ASSERT_TRUE(view);
  EXPECT_TRUE(view->last());
  EXPECT_EQ(rdmap_opcode(view->rdmap_control()), RdmapOpcode::write);
  EXPECT_EQ(view->stag(), 0x0CD14D00U);
  EXPECT_EQ(view->tagged_offset(), 0x558CB9E023F0U);
  EXPECT_EQ(copy_of(view->payload()), copy_of("7264"_hex));
  EXPECT_TRUE(TaggedView::check(siw_write)->payload().empty());
}

TEST(UntaggedView, ReadsHeaderAndPayload) {
  const auto view = UntaggedView::check(siw_send);
  ASSERT_TRUE(view);
  EXPECT_TRUE(view->last());
  EXPECT_EQ(rdmap_opcode(view->rdmap_control()), RdmapOpcode::send);
  EXPECT_EQ(view->invalidate_stag(), 0U);
  EXPECT_EQ(view->queue(), queue::send);
  EXPECT_EQ(view->msn(), 1U);
  EXPECT_EQ(view->message_offset(), 0U);
  EXPECT_EQ(view->payload().size(), 16U);
}

}  // namespace
}  // namespace weft::wire
