#include "wire/rpc.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

// Linux 6.1, NFS version 4.2.
constexpr auto sys_body = "00000000 00000001 42000000 00000000 00000000 00000000"_hex;
constexpr auto call_head =
    "13ab8493 00000000 00000002 000186a3 00000004 00000001 00000001 00000018"_hex;
constexpr auto none = "00000000 00000000"_hex;
constexpr auto call = joined(call_head, sys_body, none);
constexpr auto accepted = "38ab8493 00000001 00000000 00000000 00000000 00000000"_hex;
constexpr auto mismatch =
    "00000007 00000001 00000000 00000000 00000000 00000002 00000002 00000004"_hex;
constexpr auto rpc_mismatch = "00000007 00000001 00000001 00000000 00000002 00000002"_hex;
constexpr auto auth_error = "00000007 00000001 00000001 00000001 00000005"_hex;

auto parse_call(Bytes bytes) {
  return RpcCall::parse(bytes);
}
auto parse_reply(Bytes bytes) {
  return RpcReply::parse(bytes);
}

// RFC 5531 §9
TEST(RpcCall, ReadsHeaderAndCredential) {
  const auto value = RpcCall::parse(call);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->xid, 0x13AB8493U);
  EXPECT_EQ(value->program, 100003U);
  EXPECT_EQ(value->version, 4U);
  EXPECT_EQ(value->procedure, 1U);
  EXPECT_EQ(value->credential.flavor, AuthFlavor::sys);
  EXPECT_EQ(copy_of(value->credential.body), copy_of(sys_body));
  EXPECT_EQ(value->verifier.flavor, AuthFlavor::none);
  EXPECT_EQ(value->size(), call.size());
  EXPECT_EQ(emitted(*value, value->size()), copy_of(call));
  expect_truncated_below(call.size(), call, parse_call);
}

TEST(RpcCall, RefusesRepliesAndOtherVersions) {
  EXPECT_EQ(RpcCall::parse(accepted).error(), WireError::bad_value);
  auto other = call;
  other[11] = std::byte{3};
  EXPECT_EQ(RpcCall::parse(other).error(), WireError::bad_version);
}

// RFC 5531 §8.2
TEST(RpcCall, RefusesCredentialsAboveTheirLimit) {
  std::vector<std::byte> long_one(call_head.begin(), call_head.end());
  long_one[30] = std::byte{0x01};
  long_one[31] = std::byte{0x91};  // 401
  long_one.resize(600);
  EXPECT_EQ(RpcCall::parse(long_one).error(), WireError::bad_length);
}

TEST(RpcReply, ReadsEachEnding) {
  const auto success = RpcReply::parse(accepted);
  ASSERT_TRUE(success);
  EXPECT_EQ(success->status, RpcStatus::success);
  EXPECT_EQ(success->size(), accepted.size());

  const auto program = RpcReply::parse(mismatch);
  ASSERT_TRUE(program);
  EXPECT_EQ(program->status, RpcStatus::program_mismatch);
  EXPECT_EQ(program->low, 2U);
  EXPECT_EQ(program->high, 4U);

  const auto version = RpcReply::parse(rpc_mismatch);
  ASSERT_TRUE(version);
  EXPECT_EQ(version->status, RpcStatus::rpc_mismatch);
  EXPECT_EQ(version->low, 2U);

  const auto auth = RpcReply::parse(auth_error);
  ASSERT_TRUE(auth);
  EXPECT_EQ(auth->status, RpcStatus::auth_error);
  EXPECT_EQ(auth->auth_status, 5U);
}

TEST(RpcReply, EmitsWhatItRead) {
  for (const Bytes bytes :
       {Bytes(accepted), Bytes(mismatch), Bytes(rpc_mismatch), Bytes(auth_error)}) {
    const auto value = RpcReply::parse(bytes);
    ASSERT_TRUE(value);
    EXPECT_EQ(emitted(*value, value->size()), copy_of(bytes));
    expect_truncated_below(bytes.size(), bytes, parse_reply);
  }
}

TEST(RpcReply, RefusesCallsAndUnknownStates) {
  EXPECT_EQ(RpcReply::parse(call).error(), WireError::bad_value);
  auto state = accepted;
  state[11] = std::byte{2};
  EXPECT_EQ(RpcReply::parse(state).error(), WireError::bad_value);
  auto status = accepted;
  status[23] = std::byte{6};
  EXPECT_EQ(RpcReply::parse(status).error(), WireError::bad_value);
  auto denied = auth_error;
  denied[15] = std::byte{2};
  EXPECT_EQ(RpcReply::parse(denied).error(), WireError::bad_value);
}

TEST(RpcStart, TellsCallsFromReplies) {
  EXPECT_EQ(RpcStart::parse(call)->kind, RpcKind::call);
  EXPECT_EQ(RpcStart::parse(accepted)->kind, RpcKind::reply);
  EXPECT_EQ(RpcStart::parse("00000001 00000002"_hex).error(), WireError::bad_value);
}

TEST(RpcStatus, HasANameEach) {
  std::set<std::string> seen{"unknown status"};
  for (unsigned code = 0; code <= static_cast<unsigned>(RpcStatus::auth_error); ++code) {
    EXPECT_TRUE(seen.insert(describe(static_cast<RpcStatus>(code))).second) << code;
  }
}

// RFC 5531, appendix A
TEST(AuthSys, ReadsNameAndGroups) {
  const auto body =
      "00000009 00000005 686f737441000000 000003e8 000003e9 00000002 00000004 0000001b"_hex;
  const auto value = AuthSys::parse(body);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->stamp, 9U);
  EXPECT_EQ(value->machine, "hostA");
  EXPECT_EQ(value->uid, 1000U);
  EXPECT_EQ(value->gid, 1001U);
  ASSERT_EQ(value->group_count, 2U);
  EXPECT_EQ(value->groups[1], 27U);
  EXPECT_TRUE(AuthSys::parse(sys_body));
  EXPECT_EQ(AuthSys::parse("00000000 00000000 00000000 00000000 00000011"_hex).error(),
            WireError::bad_length);
}

// RFC 2203 §5.3
TEST(GssCredential, ReadsVersionOne) {
  const auto value =
      GssCredential::parse("00000001 00000000 00000007 00000002 00000004 01020304"_hex);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->procedure, GssProcedure::data);
  EXPECT_EQ(value->sequence, 7U);
  EXPECT_EQ(value->service, GssService::integrity);
  EXPECT_EQ(value->handle.size(), 4U);
  EXPECT_EQ(GssCredential::parse("00000002 00000000 00000007 00000002 00000000"_hex).error(),
            WireError::bad_version);
}

}  // namespace
}  // namespace weft::wire
