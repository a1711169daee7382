// Which requests report their completion, and what a completion gives back.
#include "stream/reports.h"

#include <gtest/gtest.h>

#include "stream/request_id.h"

namespace weft::stream::detail {
namespace {

constexpr Reports::Limits limits{.messages = 3, .controls = 2};
constexpr Held message{.ring_bytes = 100, .messages = 1};

TEST(Reports, OneReportsForAllThatWait) {
  Reports reports(limits);
  EXPECT_FALSE(reports.any_wait());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reports.add(message, 1000), std::nullopt);
  EXPECT_TRUE(reports.any_wait());
  EXPECT_EQ(reports.add(message, 1000), (Held{.ring_bytes = 400, .messages = 4}));
  EXPECT_FALSE(reports.any_wait());
}

TEST(Reports, BytesOfTheRingAreLimited) {
  Reports reports(limits);
  EXPECT_EQ(reports.add(message, 200), std::nullopt);
  EXPECT_EQ(reports.add(message, 200), std::nullopt);
  EXPECT_EQ(reports.add(message, 200), (Held{.ring_bytes = 300, .messages = 3}));
  EXPECT_EQ(reports.add(message, 99), (Held{.ring_bytes = 100, .messages = 1}));
}

TEST(Reports, AMessageOfEitherKindReportsForBoth) {
  Reports reports(limits);
  EXPECT_EQ(reports.add(message, 1000), std::nullopt);
  EXPECT_EQ(reports.add({.controls = 1}, 1000), std::nullopt);
  EXPECT_EQ(reports.add({.controls = 1}, 0),
            (Held{.ring_bytes = 100, .messages = 1, .controls = 2}));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(reports.add({.controls = 1}, 1000), std::nullopt);
  EXPECT_EQ(reports.add({.controls = 1}, 1000), (Held{.controls = 3}));
}

TEST(Reports, WithoutRoomToWaitEachMessageReports) {
  Reports reports({});
  EXPECT_EQ(reports.add(message, 1000), message);
}

TEST(RequestId, DecodesWhatWasEncoded) {
  const Held held{.ring_bytes = 0xFFFF'FFFF, .messages = 0xFFFF, .controls = 0xFF};
  const auto sent = RequestId::decode(RequestId::sent(held).encode());
  EXPECT_EQ(sent.kind, RequestId::Kind::sent);
  EXPECT_EQ(sent.held, held);
  const auto receive = RequestId::decode(RequestId::receive(65'535).encode());
  EXPECT_EQ(receive.kind, RequestId::Kind::receive);
  EXPECT_EQ(receive.slot, 65'535U);
  EXPECT_EQ(receive.held, Held{});
  for (const auto kind : {RequestId::Kind::probe, RequestId::Kind::ignored})
    EXPECT_EQ(RequestId::decode(RequestId::other(kind).encode()).kind, kind);
}

}  // namespace
}  // namespace weft::stream::detail
