#include "wire/ib_cm.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

TEST(MadHeader, DeconstructsAndConstructs) {
  const auto bytes = "01070203 00000000 0000000123456789 0010 0000 00000000"_hex;
  const MadHeader value{.transaction = 0x123456789, .attribute = CmAttribute::request};
  EXPECT_EQ(*MadHeader::parse(bytes), value);
  EXPECT_EQ(emitted(value), copy_of(bytes));
  expect_truncated_below(MadHeader::header_bytes, bytes,
                         [](Bytes cut) { return MadHeader::parse(cut); });
  auto other = bytes;
  other[0] = std::byte{2};
  EXPECT_EQ(MadHeader::parse(other).error(), WireError::bad_version);
}

TEST(CmAttribute, HasANameEach) {
  std::set<std::string> names{"unknown message"};
  for (std::uint16_t code = 0x10; code < 0x1B; ++code) {
    EXPECT_TRUE(names.insert(describe(CmAttribute{code})).second) << code;
  }
  EXPECT_STREQ(describe(CmAttribute{0x30}), "unknown message");
}

template <typename Message>
void expect_stable(const Message& value) {
  const auto bytes = emitted(value);
  EXPECT_EQ(*Message::parse(bytes), value);
  expect_truncated_below(Message::header_bytes, bytes,
                         [](Bytes cut) { return Message::parse(cut); });
}

TEST(CmRequest, EveryFieldHasItsPlace) {
  const CmRequest value{.local_id = 0x01020304,
                        .service = 0x000000000106270F,
                        .local_qp = 0xABCDEF,
                        .responder_resources = 16,
                        .initiator_depth = 8,
                        .starting_psn = 0x123456,
                        .retry_count = 7,
                        .path_mtu_code = 3,
                        .rnr_retry_count = 5,
                        .shared_receive_queue = true,
                        .transport_code = 3,
                        .extended_transport_code = 1,
                        .response_timeout_code = 20,
                        .acknowledgement_timeout_code = 19};
  expect_stable(value);
  const auto bytes = emitted(value);
  EXPECT_EQ(load_be<std::uint32_t>(&bytes[32]), 0xABCDEF10U);
  EXPECT_EQ(load_be<std::uint32_t>(&bytes[44]), 0x12345607U);
  EXPECT_EQ(bytes[50], std::byte{0x35});
  EXPECT_EQ(bytes[43] >> 3, std::byte{20});
  EXPECT_EQ(bytes[95] >> 3, std::byte{19});
  // 4.096 us times two to the power of 20, and of 19.
  EXPECT_EQ(value.answer_within_ns(), 6'442'450'944);
  EXPECT_EQ(value.path_mtu_bytes(), 1024U);
  EXPECT_EQ(CmRequest{.path_mtu_code = 5}.path_mtu_bytes(), 4096U);
  EXPECT_EQ(CmRequest{.path_mtu_code = 6}.path_mtu_bytes(), 0U);
  EXPECT_TRUE(CmIpHeader::belongs_to(value.service));
  EXPECT_EQ(CmIpHeader::port_of(value.service), 9999);
}

TEST(CmReply, EveryFieldHasItsPlace) {
  const CmReply value{.local_id = 5,
                      .remote_id = 6,
                      .local_qp = 0x112233,
                      .starting_psn = 0xFFFFFF,
                      .responder_resources = 1,
                      .initiator_depth = 2,
                      .rnr_retry_count = 7,
                      .shared_receive_queue = true};
  expect_stable(value);
  EXPECT_EQ(load_be<std::uint32_t>(&emitted(value)[20]), 0xFFFFFF00U);
}

TEST(CmMessages, AreStable) {
  expect_stable(
      CmReject{.local_id = 1, .remote_id = 2, .rejected = 1, .reason = CmReject::by_consumer});
  expect_stable(CmPair{.local_id = 1, .remote_id = 2, .remote_qp = 0xFEDCBA});
  expect_stable(CmServiceReply{.request_id = 9,
                               .status = 1,
                               .queue_pair = 0x010203,
                               .service = 0x0000000001111234,
                               .queue_key = 0x01234567});
}

TEST(CmMessages, FillTheirDatagramsWithPrivateData) {
  constexpr std::size_t room = MadHeader::datagram_bytes - MadHeader::header_bytes;
  EXPECT_EQ(CmRequest::header_bytes + CmRequest::private_bytes, room);
  EXPECT_EQ(CmReply::header_bytes + CmReply::private_bytes, room);
  EXPECT_EQ(CmReject::header_bytes + CmReject::private_bytes, room);
  EXPECT_EQ(CmPair::header_bytes + CmPair::private_bytes, room);
  EXPECT_EQ(CmServiceReply::header_bytes + CmServiceReply::private_bytes, room);
}

}  // namespace
}  // namespace weft::wire
