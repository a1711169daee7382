#include "wire/rpc_rdma.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

// Linux 6.1, NFS version 4.2 over siw.
// A WRITE call: its data is a read chunk at position 172.
constexpr auto with_read =
    "13ab8493 00000001 00000080 00000000"
    "00000001 000000ac dc78dc01 00002710 13ab84938400a000 00000000 00000000 00000000"_hex;
constexpr auto rpc_start = "13ab8493 00000000 00000002"_hex;
// A READ reply: its data was written to the client's memory.
constexpr auto with_write =
    "38ab8493 00000001 00000040 00000000 00000000"
    "00000001 00000001 a1da2d03 00000001 38ab849385301000 00000000 00000000"_hex;
// A reply whose whole message was written to the client's memory.
constexpr auto with_reply =
    "edaa8493 00000001 00000040 00000001 00000000 00000000"
    "00000001 00000001 13678701 0000005c edaa849384b4a000"_hex;

constexpr auto padded =
    "00000001 00000001 00000002 00000002 00000004 00000100 00000000 00000000"
    "00000000"_hex;
constexpr auto version_error = "00000001 00000001 00000002 00000004 00000001 00000001 00000002"_hex;
constexpr auto chunk_error = "00000001 00000001 00000002 00000004 00000002"_hex;

auto check(Bytes bytes) {
  return RpcRdmaView::check(bytes);
}

std::vector<std::byte> emitted_whole(const RpcRdmaHeader& header) {
  return emitted(header, header.size());
}

TEST(RpcRdmaView, ReadsAReadList) {
  const auto bytes = joined(with_read, rpc_start);
  const auto view = check(bytes);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->xid(), 0x13AB8493U);
  EXPECT_EQ(view->credits(), 128U);
  EXPECT_EQ(view->procedure(), RpcRdmaProcedure::msg);
  ASSERT_EQ(view->reads().size(), 1U);
  EXPECT_EQ(view->reads()[0].position, 172U);
  EXPECT_EQ(view->reads()[0].target,
            (RdmaSegment{.handle = 0xDC78DC01, .length = 10000, .offset = 0x13AB84938400A000}));
  EXPECT_TRUE(view->writes().empty());
  EXPECT_FALSE(view->reply());
  EXPECT_EQ(view->size(), with_read.size());
  EXPECT_EQ(copy_of(view->body()), copy_of(rpc_start));
}

TEST(RpcRdmaView, ReadsAWriteList) {
  const auto view = check(with_write);
  ASSERT_TRUE(view);
  EXPECT_TRUE(view->reads().empty());
  ASSERT_EQ(view->writes().size(), 1U);
  std::size_t chunks = 0;
  for (const ChunkView chunk : view->writes()) {
    ++chunks;
    ASSERT_EQ(chunk.size(), 1U);
    EXPECT_EQ(chunk[0].length, 1U);
    EXPECT_EQ(chunk[0].handle, 0xA1DA2D03U);
  }
  EXPECT_EQ(chunks, 1U);
  EXPECT_TRUE(view->body().empty());
}

TEST(RpcRdmaView, ReadsAReplyChunk) {
  const auto view = check(with_reply);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->procedure(), RpcRdmaProcedure::nomsg);
  ASSERT_TRUE(view->reply());
  ASSERT_EQ(view->reply()->size(), 1U);
  EXPECT_EQ((*view->reply())[0].length, 92U);
}

TEST(RpcRdmaView, WalksSeveralChunksOfSeveralSegments) {
  const RdmaSegment one{.handle = 1, .length = 10, .offset = 100};
  const RdmaSegment two{.handle = 2, .length = 20, .offset = 200};
  const std::array<ReadSegment, 3> reads{{{4, one}, {4, two}, {32, one}}};
  const std::array<RdmaSegment, 2> pair{one, two};
  const std::array<RdmaSegment, 1> single{two};
  const std::array<std::span<const RdmaSegment>, 3> writes{pair, std::span<const RdmaSegment>{},
                                                           single};
  const RpcRdmaHeader header{
      .xid = 9, .credits = 3, .reads = reads, .writes = writes, .reply = pair};
  const auto bytes = emitted_whole(header);
  const auto view = check(bytes);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->size(), bytes.size());
  ASSERT_EQ(view->reads().size(), 3U);
  EXPECT_EQ(view->reads()[1], reads[1]);
  EXPECT_EQ(view->reads()[2], reads[2]);
  std::vector<std::size_t> sizes;
  for (const ChunkView chunk : view->writes()) sizes.push_back(chunk.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 0, 1}));
  ASSERT_TRUE(view->reply());
  EXPECT_EQ((*view->reply())[1], two);
}

TEST(RpcRdmaView, ReadsTheObsoleteTypesAndErrors) {
  const auto with_padding = check(padded);
  ASSERT_TRUE(with_padding);
  EXPECT_EQ(with_padding->procedure(), RpcRdmaProcedure::msgp);
  EXPECT_EQ(with_padding->align(), 4U);
  EXPECT_EQ(with_padding->threshold(), 256U);

  const auto done = check("00000001 00000001 00000002 00000003"_hex);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->size(), 16U);

  const auto version = check(version_error);
  ASSERT_TRUE(version);
  EXPECT_EQ(version->error(), (RpcRdmaError{RpcRdmaErrorCode::version, 1, 2}));
  const auto chunk = check(chunk_error);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(chunk->error().code, RpcRdmaErrorCode::chunk);
}

TEST(RpcRdmaHeader, EmitsWhatLinuxSends) {
  const std::array<ReadSegment, 1> reads{
      {{172, {.handle = 0xDC78DC01, .length = 10000, .offset = 0x13AB84938400A000}}}};
  EXPECT_EQ(emitted_whole({.xid = 0x13AB8493, .credits = 128, .reads = reads}), copy_of(with_read));
  const std::array<RdmaSegment, 1> reply{
      {{.handle = 0x13678701, .length = 92, .offset = 0xEDAA849384B4A000}}};
  EXPECT_EQ(
      emitted_whole(
          {.xid = 0xEDAA8493, .credits = 64, .procedure = RpcRdmaProcedure::nomsg, .reply = reply}),
      copy_of(with_reply));
}

TEST(RpcRdmaHeader, EmitsTheObsoleteTypesAndErrors) {
  RpcRdmaHeader header{.xid = 1, .credits = 2, .procedure = RpcRdmaProcedure::msgp};
  header.align = 4;
  header.threshold = 256;
  EXPECT_EQ(emitted_whole(header), copy_of(padded));
  header.procedure = RpcRdmaProcedure::error;
  EXPECT_EQ(emitted_whole(header), copy_of(chunk_error));
  header.error = {RpcRdmaErrorCode::version, 1, 2};
  EXPECT_EQ(emitted_whole(header), copy_of(version_error));
  header.procedure = RpcRdmaProcedure::done;
  EXPECT_EQ(emitted_whole(header), copy_of("00000001 00000001 00000002 00000003"_hex));
}

TEST(RpcRdmaView, RefusesEachCut) {
  expect_truncated_below(with_read.size(), with_read, check);
  expect_truncated_below(with_write.size(), with_write, check);
  expect_truncated_below(with_reply.size(), with_reply, check);
  expect_truncated_below(padded.size(), padded, check);
  expect_truncated_below(version_error.size(), version_error, check);
}

TEST(RpcRdmaView, RefusesOtherVersionsAndUnknownValues) {
  auto bytes = with_read;
  bytes[7] = std::byte{2};
  EXPECT_EQ(check(bytes).error(), WireError::bad_version);
  bytes = with_read;
  bytes[15] = std::byte{5};
  EXPECT_EQ(check(bytes).error(), WireError::bad_value);
  bytes = with_read;
  bytes[19] = std::byte{2};  // the word in front of the first read segment
  EXPECT_EQ(check(bytes).error(), WireError::bad_value);
  auto error = chunk_error;
  error[19] = std::byte{3};
  EXPECT_EQ(check(error).error(), WireError::bad_value);
}

TEST(RpcRdmaView, RefusesCountsThatCannotFollow) {
  auto bytes = with_write;
  for (std::size_t i = 24; i < 28; ++i) bytes[i] = std::byte{0xFF};
  EXPECT_EQ(check(bytes).error(), WireError::truncated);
}

TEST(RpcRdmaProcedure, HasANameEach) {
  std::set<std::string> seen{"unknown procedure"};
  for (unsigned code = 0; code < 5; ++code) {
    EXPECT_TRUE(seen.insert(describe(static_cast<RpcRdmaProcedure>(code))).second) << code;
  }
  EXPECT_STREQ(describe(RpcRdmaProcedure{5}), "unknown procedure");
}

}  // namespace
}  // namespace weft::wire
