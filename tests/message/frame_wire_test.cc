// The bytes of frames and greetings, as docs/message-protocol.md has them.
#include "message/frame_wire.h"

#include <gtest/gtest.h>

#include "message/greeting_wire.h"
#include "support/hex.h"

namespace weft::message::detail {
namespace {

using test::copy_of;
using namespace test::literals;

constexpr std::byte untouched{0xEE};

Frame example(Kind kind) {
  Frame frame;
  frame.kind = kind;
  frame.confirm = true;
  frame.answer = true;
  frame.credits = 0x0102;
  frame.delivered = 0x03040506;
  frame.fetched = 0x0708090A;
  frame.updates = 0x0B0C0D0E;
  return frame;
}

std::vector<std::byte> encoded(const Frame& frame) {
  std::vector<std::byte> bytes(1000, untouched);
  bytes.resize(frame.encode(bytes));
  return bytes;
}

TEST(FrameBytes, OfUpdateAndClose) {
  const auto update = "03 03 0102 03040506 0708090a 0b0c0d0e"_hex;
  EXPECT_EQ(encoded(example(Kind::update)), copy_of(update));
  EXPECT_EQ(Frame::parse(update), example(Kind::update));
  const auto close = "04 03 0102 03040506 0708090a 0b0c0d0e"_hex;
  EXPECT_EQ(encoded(example(Kind::close)), copy_of(close));
  EXPECT_EQ(Frame::parse(close), example(Kind::close));
}

TEST(FrameBytes, OfAMessage) {
  const auto expected =
      "01 03 0102 03040506 0708090a 0b0c0d0e  0f101112 00000000 131415161718191a"_hex;
  Frame frame = example(Kind::message);
  frame.type = 0x0F101112;
  frame.tag = 0x131415161718191A;
  EXPECT_EQ(encoded(frame), copy_of(expected));
  EXPECT_EQ(Frame::parse(expected), frame);
  auto with_payload = copy_of(expected);
  with_payload.resize(with_payload.size() + 5);
  frame.bytes = 5;
  EXPECT_EQ(Frame::parse(with_payload), frame);
}

TEST(FrameBytes, OfAnOffer) {
  const auto expected =
      "02 03 0102 03040506 0708090a 0b0c0d0e  0f101112 00000000 131415161718191a"
      "000000000000001e 00000002"
      "1122334455667788 000000000000000a aabbccdd"
      "99aabbccddeeff00 0000000000000014 01020304"_hex;
  Frame frame = example(Kind::offer);
  frame.type = 0x0F101112;
  frame.tag = 0x131415161718191A;
  frame.bytes = 30;
  frame.pieces = {{0x1122334455667788, 10, 0xAABBCCDD}, {0x99AABBCCDDEEFF00, 20, 0x01020304}};
  EXPECT_EQ(encoded(frame), copy_of(expected));
  EXPECT_EQ(Frame::parse(expected), frame);
}

// The payloads are the caller's; the padding between the parts is zero.
TEST(FrameBytes, OfJoinedMessages) {
  const auto expected =
      "05 03 0102 03040506 0708090a 0b0c0d0e"
      "00000007 80000003 0102030405060708 eeeeee 0000000000"
      "00000008 00000000 1112131415161718"
      "00000009 00000002 2122232425262728 eeee"_hex;
  Frame frame = example(Kind::joined);
  ASSERT_TRUE(frame.join({7, 0x0102030405060708, true, 3, 0}, 1000));
  ASSERT_TRUE(frame.join({8, 0x1112131415161718, false, 0, 0}, 1000));
  ASSERT_TRUE(frame.join({9, 0x2122232425262728, false, 2, 0}, 1000));
  EXPECT_EQ(encoded(frame), copy_of(expected));
  EXPECT_EQ(Frame::parse(expected), frame);
}

TEST(FrameBytes, ThatDoNotFitAreNotWritten) {
  Frame frame = example(Kind::offer);
  frame.bytes = 1;
  frame.pieces = {{1, 1, 1}};
  const std::size_t size = encoded(frame).size();
  for (std::size_t room = 0; room <= size; ++room) {
    std::vector<std::byte> bytes(room);
    EXPECT_EQ(frame.encode(bytes), room == size ? size : 0) << room;
  }
}

TEST(GreetingBytes, OfARequestAndOfARejection) {
  const auto request = "5745464d 01 01 012c 00011170 0000000200000000 02 aabb"_hex;
  const MessageGreeting greeting{{300, 70'000, std::uint64_t{1} << 33, true},
                                 {std::byte{0xAA}, std::byte{0xBB}}};
  EXPECT_EQ(greeting.to_bytes(), copy_of(request));
  EXPECT_EQ(MessageGreeting::parse(request).greeting, greeting);

  const auto rejected = "5745464d 01 04 00000040 01 07"_hex;
  const Rejection rejection{Reason::too_many, 64, {std::byte{7}}};
  EXPECT_EQ(rejection.to_bytes(), copy_of(rejected));
  EXPECT_EQ(Rejection::parse(rejected), rejection);
}

// The reason is of use without the private data.
TEST(GreetingBytes, ARejectionThatIsCutKeepsItsReason) {
  const auto whole = "5745464d 01 05 00000000 03 010203"_hex;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto rejection = Rejection::parse(Bytes(whole).first(size));
    EXPECT_EQ(rejection.reason, size < Rejection::fixed_bytes ? Reason::none : Reason::application);
    EXPECT_TRUE(rejection.private_data.empty());
  }
}

}  // namespace
}  // namespace weft::message::detail
