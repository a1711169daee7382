// RDMA Reads: RFC 5040 §5.2.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Status;
using wire::ReadRequest;

class ReadSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(ReadSizes, BringWhatIsThere) {
  const std::size_t size = GetParam();
  Pair pair;
  Region& from = pair.b.host.add(pattern(size));
  Region& to = pair.a.host.add(size + 8);
  pair.a.post({.wr_id = 1,
               .operation = Operation::read,
               .remote_address = from.address(),
               .rkey = from.rkey()},
              {to.slice(4, size)});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(to.copy(4, size), from.copy());
  EXPECT_EQ(to.copy(0, 4), Content(4));
  EXPECT_EQ(to.copy(size + 4, 4), Content(4));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ReadSizes,
                         testing::Values(0, 1, 1428, 1429, 65'535, 262'144, 4'000'000));

TEST(Read, RequestNamesSinkAndSource) {
  ScriptedPeer peer(roomy(true));
  Region& to = peer.host.add(100);
  peer.post({.operation = Operation::read, .remote_address = 0x1122334455667788, .rkey = 0xAABB},
            {to.slice(8, 50), to.slice(60, 40)});
  peer.expect(read_request(1, {.sink_stag = to.lkey(),
                               .sink_offset = to.address(8),
                               .size_bytes = 90,
                               .source_stag = 0xAABB,
                               .source_offset = 0x1122334455667788}));
  // The peer may cut the response as it likes; the sink is a list.
  const auto content = pattern(90);
  peer.send(read_response(to.lkey(), to.address(8), Bytes(content).first(55), false));
  EXPECT_TRUE(peer.statuses().empty());
  peer.send(read_response(to.lkey(), to.address(63), Bytes(content).subspan(55)));
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  EXPECT_EQ(joined(to.copy(8, 50), to.copy(60, 40)), content);
  EXPECT_EQ(to.copy(58, 2), Content(2));
}

TEST(Read, ResponseGoesToTheSinkThatTheRequestNames) {
  ScriptedPeer peer(roomy(false));
  Region& from = peer.host.add(pattern(3000), {.remote_write = false});
  peer.send(read_request(1, {.sink_stag = 0x77,
                             .sink_offset = 0xFFFF'FFFF'FFFF'F000U,
                             .size_bytes = 2000,
                             .source_stag = from.rkey(),
                             .source_offset = from.address(10)}));
  peer.send(empty_read(2));
  peer.expect(read_response(0x77, 0xFFFF'FFFF'FFFF'F000U, from.copy(10, 1428), false));
  peer.expect(read_response(0x77, 0xFFFF'FFFF'FFFF'F000U + 1428, from.copy(1438, 572)));
  peer.expect(empty_response());
  peer.expect_nothing();
}

// RFC 5040 §5.2.1: neither STag of an empty read is checked.
TEST(Read, EmptyOneIsNotChecked) {
  ScriptedPeer peer(roomy(true));
  peer.send(read_request(1, {.sink_stag = 1, .sink_offset = 2, .source_stag = 3}));
  peer.expect(read_response(1, 2, {}));
  peer.post({.operation = Operation::read, .remote_address = 5, .rkey = 6});
  peer.expect(read_request(1, {.source_stag = 6, .source_offset = 5}));
  peer.send(read_response(0x99, 0x99, {}));
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
}

// The sink is checked against the outstanding read: it needs no remote right.
TEST(Read, NeedsTheRightOnTheSourceOnly) {
  Pair pair;
  Region& from = pair.b.host.add(
      text("payload"),
      {.local_write = false, .remote_write = false, .remote_read = true, .remote_atomic = false});
  Region& to = pair.a.host.add(
      7,
      {.local_write = true, .remote_write = false, .remote_read = false, .remote_atomic = false});
  pair.a.post({.operation = Operation::read, .remote_address = from.address(), .rkey = from.rkey()},
              {to.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(to.copy(), text("payload"));
}

// The memory may change while a response is sent: the checksum must fit what was sent.
TEST(Read, SourceMayChangeBeforeTheResponseHasGone) {
  auto options = roomy(false);
  options.mulpdu_bytes = 9000;
  ScriptedPeer peer(options);
  Region& from = peer.host.add(pattern(8000));
  const auto content = from.copy();
  peer.send(read_request(1, {.sink_stag = 1,
                             .size_bytes = 8000,
                             .source_stag = from.rkey(),
                             .source_offset = from.address()}));
  (void)peer.connection.plan_send();
  from.put(0, Content(8000));
  peer.expect(read_response(1, 0, content));
}

struct BadResponse {
  const char* name;
  std::uint32_t stag_change;
  std::uint64_t offset_change;
  std::size_t bytes;
  bool last;
  wire::TerminateCode code;
};

class BadResponses : public testing::TestWithParam<BadResponse> {};

// A response is validated against the outstanding read. Nothing is placed.
TEST_P(BadResponses, EndTheStream) {
  const BadResponse& bad = GetParam();
  ScriptedPeer peer(roomy(true));
  Region& to = peer.host.add(100);
  peer.post({.wr_id = 1, .operation = Operation::read, .remote_address = 1, .rkey = 2},
            {to.slice(10, 50)});
  (void)peer.next();
  const auto response =
      read_response(to.lkey() + bad.stag_change, to.address(10) + bad.offset_change,
                    pattern(bad.bytes), bad.last);
  peer.send(response);
  peer.expect_terminate(terminate(bad.code, response));
  EXPECT_EQ(to.copy(), Content(100));
  EXPECT_EQ(peer.statuses(), std::vector{Status::flushed});
}

INSTANTIATE_TEST_SUITE_P(
    Codes, BadResponses,
    testing::Values(BadResponse{"other_stag", 1, 0, 50, true, wire::terminate::tagged_invalid_stag},
                    BadResponse{"before_the_sink", 0, ~std::uint64_t{0}, 50, true,
                                wire::terminate::tagged_bounds},
                    BadResponse{"with_a_gap", 0, 1, 49, true, wire::terminate::tagged_bounds},
                    BadResponse{"too_long", 0, 0, 51, true, wire::terminate::tagged_bounds},
                    BadResponse{"too_short", 0, 0, 49, true, wire::terminate::tagged_bounds},
                    BadResponse{"no_end", 0, 0, 50, false, wire::terminate::tagged_bounds}),
    [](const auto& given) { return std::string(given.param.name); });

TEST(Read, ResponseThatNobodyAskedForEndsTheStream) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(100);
  const auto response = read_response(memory.lkey(), memory.address(), pattern(10));
  peer.send(response);
  peer.expect_terminate(terminate(wire::terminate::tagged_invalid_stag, response));
  EXPECT_EQ(memory.copy(), Content(100));
}

// RFC 5040 §5.2: responses come in the order of the requests.
TEST(Read, SeveralAreAnsweredInOrder) {
  Pair pair;
  Region& from = pair.b.host.add(pattern(10'000));
  Region& to = pair.a.host.add(10'000);
  for (std::uint64_t i = 0; i < 10; ++i) {
    pair.a.post({.wr_id = i,
                 .operation = Operation::read,
                 .signaled = i % 3 == 0,
                 .remote_address = from.address(i * 1000),
                 .rkey = from.rkey()},
                {to.slice((9 - i) * 1000, 1000)});
  }
  pair.drive();
  EXPECT_EQ(pair.a.send_ids(), (std::vector<std::uint64_t>{0, 3, 6, 9}));
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(to.copy((9 - i) * 1000, 1000), from.copy(i * 1000, 1000));
  }
}

}  // namespace
}  // namespace weft::test
