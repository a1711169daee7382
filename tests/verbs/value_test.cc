// Values without a device: GIDs, slices, endpoints, deadlines.
#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>
#include <string>

#include "support/hex.h"
#include "verbs/transitions.h"
#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

using namespace test::literals;

TEST(Guid, IsWrittenInFourGroups) {
  const Guid guid{0x0002c90300a07c8e};
  EXPECT_EQ(guid.to_string(), "0002:c903:00a0:7c8e");
  EXPECT_EQ(guid.oui(), 0x0002c9U);
  EXPECT_FALSE(guid.is_reserved());
  EXPECT_TRUE(Guid{}.is_reserved());
}

TEST(Gid, IsReadAndWrittenAsAnAddress) {
  const auto mapped = Gid::parse("192.0.2.1");
  ASSERT_TRUE(mapped);
  EXPECT_TRUE(mapped->is_ipv4_mapped());
  EXPECT_EQ(mapped->to_string(), "::ffff:192.0.2.1");
  EXPECT_EQ(Gid::parse("::ffff:192.0.2.1"), mapped);

  const auto local = Gid::parse("fe80::1:2");
  ASSERT_TRUE(local);
  EXPECT_EQ(local->subnet_prefix(), 0xFE80000000000000U);
  EXPECT_EQ(local->interface_id(), 0x10002U);
  EXPECT_EQ(Gid(local->raw()), local);
  EXPECT_FALSE(Gid::parse("host.example"));
  EXPECT_FALSE(Gid::parse(""));
}

TEST(LocalSlice, PartsStayWithin) {
  const LocalSlice whole(1000, 100, 7);
  const LocalSlice part = whole.slice(10, 20);
  EXPECT_EQ(part.address(), 1010U);
  EXPECT_EQ(part.size_bytes(), 20U);
  EXPECT_EQ(part.lkey(), 7U);
  EXPECT_EQ(whole.slice(100, 0).size_bytes(), 0U);
  EXPECT_THROW((void)whole.slice(81, 20), std::out_of_range);
  EXPECT_THROW((void)whole.slice(101, 0), std::out_of_range);
  EXPECT_THROW((void)whole.slice(1, static_cast<std::size_t>(-1)), std::out_of_range);
}

TEST(RemoteSlice, PartsStayWithin) {
  const RemoteSlice whole(0xFFFFFFFFFFFFF000, 0x1000, 0xABCD);
  EXPECT_EQ(whole.slice(0xFFF, 1).address(), 0xFFFFFFFFFFFFFFFFU);
  EXPECT_THROW((void)whole.slice(0xFFF, 2), std::out_of_range);
  EXPECT_THROW((void)whole.slice(1, static_cast<std::uint64_t>(-1)), std::out_of_range);
}

TEST(RemoteSlice, SurvivesBytesAndText) {
  const RemoteSlice slice(0x7f00'1234'5678'9abc, 0x1'0000'0001, 0xdeadbeef);
  EXPECT_EQ(RemoteSlice::from_bytes(slice.to_bytes()), slice);
  EXPECT_EQ(slice.to_string(), "7f00123456789abc:100000001:deadbeef");
  EXPECT_EQ(RemoteSlice::parse(slice.to_string()), slice);
  for (const char* wrong : {"", "1:2", "1:2:3:4", "x:2:3", "1:2:100000000", "1::3", "1:2:3 "}) {
    EXPECT_FALSE(RemoteSlice::parse(wrong)) << wrong;
  }
  const auto bytes = slice.to_bytes();
  EXPECT_FALSE(RemoteSlice::from_bytes(std::span(bytes).first(19)));
}

TEST(Endpoint, SurvivesBytesAndText) {
  Endpoint endpoint{0x123456, 0xFEDCBA, 0, IBV_MTU_4096, Gid::parse("fe80::1")};
  EXPECT_EQ(endpoint.to_string(), "weft1:123456:fedcba:0:4096:fe80::1");
  EXPECT_EQ(Endpoint::parse(endpoint.to_string()), endpoint);
  EXPECT_EQ(Endpoint::from_bytes(endpoint.to_bytes()), endpoint);
  endpoint.gid.reset();
  endpoint.lid = 0x1F;
  EXPECT_EQ(endpoint.to_string(), "weft1:123456:fedcba:1f:4096:-");
  EXPECT_EQ(Endpoint::parse(endpoint.to_string()), endpoint);
  EXPECT_EQ(Endpoint::from_bytes(endpoint.to_bytes()), endpoint);
}

// As the headers document it: programs of different builds exchange these bytes.
TEST(Endpoint, HasTheBytesOfItsDocument) {
  const Endpoint endpoint{0x123456, 0xFEDCBA, 0x0708, IBV_MTU_4096, Gid::parse("fe80::1")};
  const auto bytes = "5745 01 05 00123456 00fedcba 0708 0001 fe800000000000000000000000000001"_hex;
  EXPECT_EQ(endpoint.to_bytes(), bytes);
  EXPECT_EQ(Endpoint::from_bytes(bytes), endpoint);
  const RemoteSlice slice(0x0102030405060708, 0x1112131415161718, 0x21222324);
  EXPECT_EQ(slice.to_bytes(), "0102030405060708 1112131415161718 21222324"_hex);
}

TEST(Endpoint, WhatIsNoneIsRefused) {
  for (const char* wrong :
       {"", "weft1:", "weft2:1:2:0:1024:-", "weft1:1:2:0:1000:-", "weft1:1000000:2:0:1024:-",
        "weft1:1:1000000:0:1024:-", "weft1:1:2:10000:1024:-", "weft1:1:2:0:1024",
        "weft1:1:2:0:1024:", "weft1:1:2:0:1024:host", "weft1:1:2::1024:-"}) {
    EXPECT_FALSE(Endpoint::parse(wrong)) << wrong;
  }
  auto bytes = Endpoint{}.to_bytes();
  EXPECT_TRUE(Endpoint::from_bytes(bytes));
  bytes[2] = std::byte{2};  // the version
  EXPECT_FALSE(Endpoint::from_bytes(bytes));
  bytes = Endpoint{}.to_bytes();
  bytes[3] = std::byte{6};  // the MTU
  EXPECT_FALSE(Endpoint::from_bytes(bytes));
  EXPECT_FALSE(Endpoint::from_bytes(std::span(bytes).first(31)));
}

// For devices that look up the route in the transition to RTR.
TEST(QueuePair, roce_route_failure_diagnostic) {
  ibv_ah_attr address{};
  address.is_global = 1;
  address.grh.dgid = Gid::parse("192.0.2.7")->raw();
  address.grh.sgid_index = 3;
  for (const int error : {EINVAL, ETIMEDOUT, ENETUNREACH, EHOSTUNREACH}) {
    const std::string why = detail::explain_route(error, address);
    for (const char* word : {"RoCE", "::ffff:192.0.2.7", "row 3", "4791"}) {
      EXPECT_NE(why.find(word), std::string::npos) << why;
    }
  }
  EXPECT_EQ(detail::explain_route(ENOMEM, address), "");
  address.is_global = 0;
  EXPECT_EQ(detail::explain_route(ETIMEDOUT, address), "") << "by LID";
}

TEST(Deadline, CountsWholeMilliseconds) {
  EXPECT_EQ(Deadline::never().poll_timeout_ms(), -1);
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_EQ(Deadline::now().poll_timeout_ms(), 0);
  EXPECT_TRUE(Deadline::now().passed());
  EXPECT_GT(Deadline(std::chrono::hours(1)).poll_timeout_ms(), 3'000'000);
  EXPECT_EQ(Deadline(std::chrono::seconds(-1)).poll_timeout_ms(), 0);
}

TEST(Mtu, CodesAreBytes) {
  EXPECT_EQ(mtu_bytes(IBV_MTU_256), 256);
  EXPECT_EQ(mtu_bytes(IBV_MTU_4096), 4096);
}

}  // namespace
}  // namespace weft::verbs
