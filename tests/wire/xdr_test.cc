#include "wire/xdr.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <vector>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

// RFC 4506 §3
TEST(Xdr, PadsToFourBytes) {
  EXPECT_EQ(xdr_pad_bytes(0), 0U);
  EXPECT_EQ(xdr_pad_bytes(1), 3U);
  EXPECT_EQ(xdr_pad_bytes(4), 0U);
  EXPECT_EQ(xdr_pad_bytes(7), 1U);
  EXPECT_EQ(xdr_padded(9), 12U);
}

TEST(XdrReader, ReadsItemsInOrder) {
  const auto bytes = "00000007 0000000100000002 00000001 00000005 68656c6c6f000000 ff00ff00"_hex;
  XdrReader in(bytes);
  EXPECT_EQ(in.u32(), 7U);
  EXPECT_EQ(in.u64(), 0x0000000100000002U);
  EXPECT_TRUE(in.boolean());
  EXPECT_EQ(in.text(), "hello");
  EXPECT_EQ(in.left(), 4U);
  EXPECT_EQ(copy_of(in.fixed(3)), copy_of("ff00ff"_hex));
  EXPECT_EQ(in.left(), 0U);
  EXPECT_TRUE(in.ok());
}

// RFC 4506 §4.10: the residual bytes belong to the item.
TEST(XdrReader, WantsThePaddingOfTheLastItem) {
  const auto bytes = "00000005 68656c6c6f0000"_hex;
  XdrReader in(bytes);
  EXPECT_TRUE(in.opaque().empty());
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.error(), WireError::truncated);
}

TEST(XdrReader, KeepsTheFirstErrorAndStaysWhereItWas) {
  const auto bytes = "00000002 00000003"_hex;
  XdrReader in(bytes);
  EXPECT_TRUE(in.ok());
  (void)in.boolean();
  EXPECT_EQ(in.error(), WireError::bad_value);
  const auto position = in.position();
  EXPECT_EQ(in.u32(), 0U);
  EXPECT_EQ(in.u64(), 0U);
  EXPECT_TRUE(in.fixed(1).empty());
  EXPECT_EQ(in.position(), position);
  EXPECT_EQ(in.error(), WireError::bad_value);
}

TEST(XdrReader, RefusesLengthsBeyondTheBytesOrTheLimit) {
  const auto huge = "ffffffff 00000000"_hex;
  XdrReader beyond(huge);
  EXPECT_TRUE(beyond.opaque().empty());
  EXPECT_EQ(beyond.error(), WireError::truncated);

  const auto five = "00000005 6162636465000000"_hex;
  XdrReader limited(five);
  EXPECT_TRUE(limited.opaque(4).empty());
  EXPECT_EQ(limited.error(), WireError::bad_length);
}

TEST(XdrReader, RefusesCountsThatCannotFollow) {
  const auto bytes = "00000003 00000001 00000002"_hex;
  XdrReader in(bytes);
  EXPECT_EQ(in.count(4), 0U);
  EXPECT_EQ(in.error(), WireError::truncated);
  XdrReader two(Bytes(bytes).subspan(4));
  EXPECT_EQ(two.count(4), 1U);
  XdrReader few(bytes);
  EXPECT_EQ(few.count(1, 2), 0U);
  EXPECT_EQ(few.error(), WireError::bad_length);
}

TEST(XdrWriter, WritesWhatTheReaderReads) {
  std::array<std::byte, 32> out{};
  const auto text = "68656c6c6f"_hex;
  XdrWriter writer(out);
  writer.u32(7);
  writer.u64(8);
  writer.boolean(true);
  writer.opaque(text);
  writer.fixed(Bytes(text).first(2));
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.position(), out.size());
  EXPECT_EQ(copy_of(out), copy_of("00000007 0000000000000008 00000001 00000005 68656c6c6f000000"
                                  "68650000"_hex));
}

TEST(XdrWriter, WritesNothingThatDoesNotFitWhole) {
  std::array<std::byte, 10> out{};
  XdrWriter writer(out);
  writer.opaque("616263646566"_hex);
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(writer.position(), 0U);
  writer.u32(1);
  EXPECT_EQ(writer.position(), 0U) << "nothing follows an item that is missing";
}

}  // namespace
}  // namespace weft::wire
