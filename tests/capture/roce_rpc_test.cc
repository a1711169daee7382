// NFS over RPC-over-RDMA in RoCE packets, of which some are lost, doubled or shuffled: what is
// decoded is what was sent, or said to be incomplete.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "capture/made_roce.h"
#include "capture/made_rpcs.h"
#include "capture/nfs_exchanges.h"
#include "capture/report/rpc_json.h"
#include "weft/capture/rpc_text.hpp"

namespace weft::capture::test {
namespace {

MadeCapture exchanges(const RoceOptions& options = {}) {
  MadeCapture capture;
  RoceTalk talk(capture, options);
  talk.connect();
  NfsExchanges().run(talk);
  talk.disconnect();
  return capture;
}

std::size_t whole_ones(const RpcLog& log) {
  return NfsExchanges().whole_ones(log);
}

TEST(RoceRpc, CallsAndRepliesHaveTheirChunks) {
  for (const std::uint32_t psn : {1'000U, 0xFFFFFFU, 0xFFFFFEU, 0xFFFFFBU}) {
    const RpcLog log = followed(exchanges({.psn_a = psn, .psn_b = psn}));
    ASSERT_EQ(log.rpcs.size(), 3U);
    EXPECT_TRUE(log.findings.empty()) << log.all();
    EXPECT_EQ(whole_ones(log), 2U);
    EXPECT_EQ(log.rpcs[1].call->message, Assembled(NfsExchanges().write_call()));
    EXPECT_EQ(describe(log.rpcs[2]), "NFSv3 READ");
  }
}

TEST(RoceRpc, OnePacketLessIsNeverSilentlyWrong) {
  const MadeCapture capture = exchanges();
  for (std::size_t drop = 0; drop < capture.size(); ++drop) {
    SCOPED_TRACE(drop);
    MadeCapture less = capture;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(drop));
    EXPECT_GE(whole_ones(followed(less)), 1U);
  }
}

TEST(RoceRpc, EachPacketTwiceChangesNothing) {
  const MadeCapture capture = exchanges();
  for (std::size_t twice = 0; twice < capture.size(); ++twice) {
    MadeCapture more = capture;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(twice), capture[twice]);
    const RpcLog log = followed(more);
    EXPECT_EQ(whole_ones(log), 2U) << twice;
    EXPECT_TRUE(log.findings.empty()) << twice << ' ' << log.all();
  }
}

TEST(RoceRpc, ConnectionsWithEqualKeysAndXidsStayApart) {
  const MadeCapture one = exchanges();
  const MadeCapture other = exchanges({.host_a = 3});
  const MadeCapture third = exchanges({.qp_a = 0x12, .qp_b = 0x12});
  MadeCapture all;
  for (std::size_t i = 0; i < one.size(); ++i) {
    all.push_back(one[i]);
    all.push_back(other[i]);
    all.push_back(third[i]);
  }
  const RpcLog log = followed(all);
  EXPECT_EQ(log.rpcs.size(), 9U);
  EXPECT_TRUE(log.findings.empty()) << log.all();
  EXPECT_EQ(whole_ones(log), 6U);
}

// A reply whose write list names bytes that were written before the capture began.
TEST(RoceRpc, AReplyWithoutItsCallLacksWhatWasWritten) {
  MadeCapture capture = exchanges();
  const auto frame = static_cast<std::ptrdiff_t>(followed(capture).rpcs.at(2).call->first.frame);
  capture.erase(capture.begin() + frame - 1);
  const RpcLog seen = followed(capture);
  ASSERT_EQ(seen.rpcs.size(), 3U) << seen.all();
  const Rpc& rpc = seen.rpcs[2];
  ASSERT_TRUE(rpc.reply && !rpc.call);
  EXPECT_FALSE(rpc.reply->complete());
  EXPECT_NE(outcome_text(rpc), "OK");
  fmt::memory_buffer json;
  write_json(json, rpc, 3);
  EXPECT_NE(fmt::to_string(json).find(R"("whole":false)"), std::string::npos)
      << fmt::to_string(json);
}

}  // namespace
}  // namespace weft::capture::test
