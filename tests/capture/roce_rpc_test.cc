// NFS over RPC-over-RDMA in RoCE packets, of which some are lost, doubled or shuffled: what is
// decoded is what was sent, or said to be incomplete.
#include <gtest/gtest.h>

#include "capture/made_roce.h"
#include "capture/rpc_builder.h"
#include "capture/rpc_log.h"
#include "support/random.h"
#include "wire/xdr.h"

namespace weft::capture::test {
namespace {

using weft::test::pattern;

constexpr Side client = Side::a;
constexpr Side server = Side::b;
constexpr std::size_t written_bytes = 1'001;
constexpr std::size_t read_bytes = 1'503;

const Buffer handle = pattern(28, 50);
const Buffer written = pattern(written_bytes, 1);
const Buffer read = pattern(read_bytes, 2);

Buffer write_head(std::uint32_t xid) {
  return rpc_call(xid, nfs_program, 3, 7,
                  Xdr().opaque(handle).u64(512).u32(written_bytes).u32(2).u32(written_bytes));
}

// A WRITE by a read chunk of two segments, and a READ into a write chunk of two segments.
MadeCapture exchanges(const RoceOptions& options = {}) {
  MadeCapture capture;
  RoceTalk talk(capture, options);
  talk.connect();
  talk.send(client, Bytes(rdma_message({.xid = 1}, rpc_call(1, nfs_program, 3, 0))));
  talk.send(server, Bytes(rdma_message({.xid = 1}, rpc_reply(1))));

  const Buffer head = write_head(2);
  const auto position = static_cast<std::uint32_t>(head.size());
  RdmaHeader gives{.xid = 2};
  gives.lists.reads = {{position, {1, 600, 0x1000}}, {position, {2, 401, 0x9000}}};
  talk.send(client, Bytes(rdma_message(gives, head)));
  talk.read(server, 1, 0x1000, Bytes(written).first(600));
  talk.read(server, 2, 0x9000, Bytes(written).subspan(600));
  talk.send(
      server,
      Bytes(rdma_message(
          {.xid = 2}, rpc_reply(2, Xdr().u32(0).u32(0).u32(0).u32(written_bytes).u32(2).u64(7)))));

  RdmaHeader asks{.xid = 3};
  asks.lists.writes = {{{3, 700, 0x3000}, {4, 1'000, 0x4000}}};
  RdmaHeader tells{.xid = 3};
  tells.lists.writes = {{{3, 700, 0x3000}, {4, 803, 0x4000}}};
  talk.send(client, Bytes(rdma_message(asks, rpc_call(3, nfs_program, 3, 6,
                                                      Xdr().opaque(handle).u64(0).u32(2'000)))));
  talk.write(server, 3, 0x3000, Bytes(read).first(700));
  talk.write(server, 4, 0x4000, Bytes(read).subspan(700));
  talk.send(server,
            Bytes(rdma_message(
                tells, rpc_reply(3, Xdr().u32(0).u32(0).u32(read_bytes).u32(1).u32(read_bytes)))));
  talk.disconnect();
  return capture;
}

RpcLog followed(const MadeCapture& capture) {
  RpcLog log;
  RpcTracker tracker(log);
  analyse(capture, &tracker);
  tracker.finish();
  return log;
}

// What is said to be whole is right.
void expect_right(const RpcLog& log, std::size_t& whole) {
  whole = 0;
  for (const Rpc& rpc : log.rpcs) {
    if (!rpc.nfs || rpc.nfs->operations.empty() || rpc.xid == 1) continue;
    const NfsOperation& operation = rpc.nfs->operations[0];
    const Buffer& content = operation.name == "WRITE" ? written : read;
    const Bytes bytes = operation.bulk.bytes();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (operation.bulk.whole(i, i + 1)) {
        ASSERT_EQ(bytes[i], content[i]) << operation.name << ' ' << i;
      }
    }
    if (rpc.reply && operation.bulk == Assembled(content)) ++whole;
  }
}

TEST(RoceRpc, CallsAndRepliesHaveTheirChunks) {
  for (const std::uint32_t psn : {1'000U, 0xFFFFFFU, 0xFFFFFEU, 0xFFFFFBU}) {
    const RpcLog log = followed(exchanges({.psn_a = psn, .psn_b = psn}));
    ASSERT_EQ(log.rpcs.size(), 3U);
    EXPECT_TRUE(log.findings.empty()) << log.all();
    std::size_t whole = 0;
    expect_right(log, whole);
    EXPECT_EQ(whole, 2U);
    // The chunk is the last in the call, and rounded up.
    Buffer call = write_head(2);
    call.insert(call.end(), written.begin(), written.end());
    call.resize(wire::xdr_padded(call.size()));
    EXPECT_EQ(log.rpcs[1].call->message, Assembled(call));
    EXPECT_EQ(describe(log.rpcs[2]), "NFSv3 READ");
  }
}

TEST(RoceRpc, OnePacketLessIsNeverSilentlyWrong) {
  const MadeCapture capture = exchanges();
  for (std::size_t drop = 0; drop < capture.size(); ++drop) {
    SCOPED_TRACE(drop);
    MadeCapture less = capture;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(drop));
    std::size_t whole = 0;
    expect_right(followed(less), whole);
    EXPECT_GE(whole, 1U);
  }
}

TEST(RoceRpc, EachPacketTwiceChangesNothing) {
  const MadeCapture capture = exchanges();
  for (std::size_t twice = 0; twice < capture.size(); ++twice) {
    MadeCapture more = capture;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(twice), capture[twice]);
    const RpcLog log = followed(more);
    std::size_t whole = 0;
    expect_right(log, whole);
    EXPECT_EQ(whole, 2U) << twice;
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
  std::size_t whole = 0;
  expect_right(log, whole);
  EXPECT_EQ(whole, 6U);
}

}  // namespace
}  // namespace weft::capture::test
