#include "wire/rdmap.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

// Linux 6.1 siw, rping: the payload of an RDMA Read Request.
constexpr auto siw_read_request =
    "8912fc00 000055e1976473f0 00000040 65c16d00 0000558cb9e06430"_hex;

constexpr auto fetch_add =
    "00000000 00000007 01020304 1112131415161718"
    "0000000000000005 0000000000000000 0000000000000000 ffffffffffffffff"_hex;
constexpr AtomicRequest fetch_add_value{.opcode = AtomicOpcode::fetch_add,
                                        .request_id = 7,
                                        .stag = 0x01020304,
                                        .tagged_offset = 0x1112131415161718,
                                        .add_or_swap = 5,
                                        .add_or_swap_mask = 0,
                                        .compare = 0,
                                        .compare_mask = ~std::uint64_t{0}};

// RFC 5040 §4.1
TEST(RdmapControl, HoldsVersionAndOpcode) {
  EXPECT_EQ(rdmap_control(RdmapOpcode::write), 0x40);
  EXPECT_EQ(rdmap_control(RdmapOpcode::terminate), 0x47);
  EXPECT_EQ(rdmap_control(RdmapOpcode::atomic_response), 0x4B);
  EXPECT_EQ(rdmap_version_of(0x4B), rdmap_version);
  EXPECT_EQ(rdmap_version_of(0x8B), 2);
}

TEST(RdmapControl, KeepsUnknownOpcodesAndIgnoresReservedBits) {
  for (unsigned code = 0; code < 16; ++code) {
    const auto opcode = static_cast<RdmapOpcode>(code);
    EXPECT_EQ(rdmap_opcode(rdmap_control(opcode)), opcode);
    EXPECT_EQ(rdmap_opcode(static_cast<std::uint8_t>(0x70 | code)), opcode);
  }
}

TEST(RdmapOpcode, HasANameEach) {
  std::set<std::string> seen{"unknown opcode"};
  for (unsigned code = 0; code < 12; ++code) {
    EXPECT_TRUE(seen.insert(describe(static_cast<RdmapOpcode>(code))).second) << code;
  }
  EXPECT_STREQ(describe(RdmapOpcode{12}), "unknown opcode");
}

// RFC 5040 §4.4
TEST(ReadRequest, DeconstructsOneOfSiw) {
  const auto request = ReadRequest::parse(siw_read_request);
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (ReadRequest{.sink_stag = 0x8912FC00,
                                   .sink_offset = 0x55E1976473F0,
                                   .size_bytes = 64,
                                   .source_stag = 0x65C16D00,
                                   .source_offset = 0x558CB9E06430}));
  EXPECT_EQ(emitted(*request), copy_of(siw_read_request));
}

TEST(ReadRequest, IsTruncatedAtEveryShorterLength) {
  expect_truncated_below(ReadRequest::header_bytes, siw_read_request,
                         [](Bytes bytes) { return ReadRequest::parse(bytes); });
}

// RFC 7306 §5.2.1
TEST(AtomicRequest, DeconstructsAndConstructsAFetchAdd) {
  EXPECT_EQ(*AtomicRequest::parse(fetch_add), fetch_add_value);
  EXPECT_EQ(emitted(fetch_add_value), copy_of(fetch_add));
}

TEST(AtomicRequest, DeconstructsACompareAndSwap) {
  const auto bytes =
      "00000002 0000ffff 80000001 fffffffffffffff8"
      "0123456789abcdef ffffffffffffffff fedcba9876543210 ffffffffffffffff"_hex;
  const auto request = AtomicRequest::parse(bytes);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->opcode, AtomicOpcode::compare_swap);
  EXPECT_EQ(request->request_id, 0xFFFFU);
  EXPECT_EQ(request->stag, 0x80000001U);
  EXPECT_EQ(request->tagged_offset, 0xFFFFFFFFFFFFFFF8U);
  EXPECT_EQ(request->add_or_swap, 0x0123456789ABCDEFU);
  EXPECT_EQ(request->compare, 0xFEDCBA9876543210U);
  EXPECT_EQ(emitted(*request), copy_of(bytes));
}

// RFC 7306 §5.2.1: 28 reserved bits, then four of opcode, of which not all are known.
TEST(AtomicRequest, KeepsUnknownOpcodesAndIgnoresReservedBits) {
  auto bytes = fetch_add;
  for (unsigned code = 0; code < 16; ++code) {
    store_be(bytes.data(), std::uint32_t{0xABCDEF50} | code);
    const auto request = AtomicRequest::parse(bytes);
    ASSERT_TRUE(request);
    EXPECT_EQ(static_cast<unsigned>(request->opcode), code);
    EXPECT_EQ(load_be<std::uint32_t>(emitted(*request).data()), code);
  }
}

TEST(AtomicRequest, IsTruncatedAtEveryShorterLength) {
  expect_truncated_below(AtomicRequest::header_bytes, fetch_add,
                         [](Bytes bytes) { return AtomicRequest::parse(bytes); });
}

// RFC 7306 §5.2.2
TEST(AtomicResponse, DeconstructsAndConstructs) {
  const auto bytes = "00000007 0123456789abcdef"_hex;
  const AtomicResponse value{.request_id = 7, .original_value = 0x0123456789ABCDEF};
  EXPECT_EQ(*AtomicResponse::parse(bytes), value);
  EXPECT_EQ(emitted(value), copy_of(bytes));
  expect_truncated_below(AtomicResponse::header_bytes, bytes,
                         [](Bytes cut) { return AtomicResponse::parse(cut); });
}

// RFC 7306 §6.2: the application's four bytes pass as they are, in whatever order it put them.
TEST(ImmediateData, CopiesTheDataAndOrdersTheTag) {
  const auto bytes = "a1b2c3d4 00000102"_hex;
  const auto immediate = ImmediateData::parse(bytes);
  ASSERT_TRUE(immediate);
  EXPECT_EQ(std::memcmp(&immediate->data_be, bytes.data(), sizeof immediate->data_be), 0);
  EXPECT_EQ(immediate->tag, 0x0102U);
  EXPECT_EQ(emitted(*immediate), copy_of(bytes));
  expect_truncated_below(ImmediateData::header_bytes, bytes,
                         [](Bytes cut) { return ImmediateData::parse(cut); });
}

// Most significant byte first, as InfiniBand sends it in the XRCETH.
TEST(ImmediateData, NamesAQueueByItsNumber) {
  const ImmediateData named{.data_be = immediate_of_number(0x00A1B2C3),
                            .tag = ImmediateData::names_queue};
  EXPECT_EQ(emitted(named), copy_of("00a1b2c3 00000002"_hex));
  EXPECT_EQ(number_of_immediate(named.data_be), 0x00A1B2C3U);
}

}  // namespace
}  // namespace weft::wire
