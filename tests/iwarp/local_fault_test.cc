// Requests and receives of our own side that name memory they may not use.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::EndReason;
using iwarp::LocalSlice;
using iwarp::Operation;
using iwarp::Status;

enum class Wrong { lkey, bounds, domain, right };

// A slice of ten bytes with this fault.
LocalSlice bad_slice(MemoryHost& host, Wrong wrong) {
  Region& region =
      host.add(10, {.local_write = wrong != Wrong::right}, 0, 0, wrong == Wrong::domain ? 1 : 0);
  LocalSlice slice = region.slice();
  if (wrong == Wrong::lkey) slice.lkey += 1;
  if (wrong == Wrong::bounds) slice.address += 1;
  return slice;
}

class LocalFaults : public testing::TestWithParam<std::tuple<Operation, Wrong>> {};

// The error is reported in order, after the success of earlier requests; the rest is flushed.
TEST_P(LocalFaults, CompleteTheRequestInItsTurn) {
  const auto [operation, wrong] = GetParam();
  const bool atomic = operation == Operation::compare_swap || operation == Operation::fetch_add;
  const bool sink = atomic || operation == Operation::read;
  if (wrong == Wrong::right && !sink) return;  // no right is needed to read one's own memory

  Pair pair;
  Region& good = pair.a.host.add(10);
  Region& to = pair.b.host.add(10);
  LocalSlice bad = bad_slice(pair.a.host, wrong);
  if (atomic) bad.length_bytes = 8;
  if (atomic && wrong == Wrong::bounds) bad.address += 2;
  const iwarp::WorkRequest remote{.remote_address = to.address(), .rkey = to.rkey()};
  auto request = remote;
  request.operation = Operation::write;
  request.wr_id = 1;
  pair.a.post(request, {good.slice()});
  request.operation = operation;
  request.wr_id = 2;
  pair.a.post(request, {bad});
  request.operation = Operation::write;
  request.wr_id = 3;
  pair.a.post(request, {good.slice()});
  pair.drive();

  EXPECT_EQ(pair.a.send_ids(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(pair.a.send_statuses(),
            (std::vector{Status::success, Status::local_protection, Status::flushed}));
  EXPECT_EQ(pair.a.host.end_reason, EndReason::local_error);
  EXPECT_EQ(pair.b.host.end_reason, EndReason::peer_closed);
  EXPECT_TRUE(pair.b.host.receives.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, LocalFaults,
    testing::Combine(testing::Values(Operation::send, Operation::send_invalidate, Operation::write,
                                     Operation::write_immediate, Operation::read,
                                     Operation::compare_swap, Operation::fetch_add),
                     testing::Values(Wrong::lkey, Wrong::bounds, Wrong::domain, Wrong::right)));

// The place of the bad slice in the list does not matter, nor whether its bytes are sent late.
TEST(LocalFault, InAnySliceShowsBeforeTheFirstByteLeaves) {
  ScriptedPeer peer(roomy(true));
  Region& good = peer.host.add(100'000);
  peer.post({.wr_id = 1, .operation = Operation::send},
            {good.slice(), bad_slice(peer.host, Wrong::lkey)});
  peer.expect_nothing();
  EXPECT_EQ(peer.statuses(), std::vector{Status::local_protection});
  EXPECT_EQ(peer.host.end_reason, EndReason::local_error);
}

TEST(LocalFault, WithoutAcknowledgementWaitsForTcp) {
  auto options = roomy(true);
  options.acknowledge = false;
  ScriptedPeer peer(options);
  Region& good = peer.host.add(10);
  peer.post({.wr_id = 1, .operation = Operation::write}, {good.slice()});
  peer.post({.wr_id = 2, .operation = Operation::write}, {bad_slice(peer.host, Wrong::lkey)});
  EXPECT_FALSE(peer.connection.plan_send().empty());
  EXPECT_TRUE(peer.statuses().empty());
  peer.expect(write(0, 0, Content(10)));
  EXPECT_EQ(peer.statuses(), (std::vector{Status::success, Status::local_protection}));
}

// Memory is withdrawn while its message is sent: the message is cut, and the stream ends.
TEST(LocalFault, SourceWithdrawnInTheMiddleOfAMessage) {
  for (const Operation operation : {Operation::send, Operation::write}) {
    PairOptions options;
    Pair pair(options);
    Region& from = pair.a.host.add(1'000'000);
    Region& to = pair.b.host.add(1'000'000);
    pair.b.host.post_receive(1, {to.slice()});
    pair.a_to_b.set_window(100'000);
    pair.a.post(
        {.wr_id = 1, .operation = operation, .remote_address = to.address(), .rkey = to.rkey()},
        {from.slice()});
    pair.transmit();
    from.valid = false;
    pair.drive();
    EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::local_protection});
    EXPECT_EQ(pair.a.host.end_reason, EndReason::local_error);
    EXPECT_EQ(pair.b.host.end_reason, EndReason::peer_closed);
    EXPECT_FALSE(pair.b.connection().mid_fpdu());
    if (operation == Operation::send) {
      EXPECT_EQ(pair.b.host.receives.at(0).status, Status::flushed);
    }
  }
}

// RFC 5040 §4.8: the fault is on this side, and is reported to the peer as catastrophic.
TEST(LocalFault, SinkOfAReadWithdrawn) {
  for (const std::size_t size : {100U, 50'000U}) {
    ScriptedPeer peer(roomy(true));
    Region& to = peer.host.add(size);
    peer.post({.wr_id = 1, .operation = Operation::read}, {to.slice()});
    (void)peer.next();
    to.valid = false;
    const auto response = read_response(to.lkey(), to.address(), pattern(size));
    peer.send(response);
    peer.expect_terminate(terminate(wire::terminate::rdma_stream_catastrophic, response));
    EXPECT_EQ(peer.statuses(), std::vector{Status::local_protection});
    EXPECT_TRUE(to.copy() == Content(size));
  }
}

TEST(LocalFault, SinkOfAnAtomicWithdrawn) {
  ScriptedPeer peer(roomy(true));
  Region& to = peer.host.add(8);
  peer.post({.wr_id = 1, .operation = Operation::fetch_add}, {to.slice()});
  (void)peer.next();
  to.valid = false;
  const auto response = atomic_response(1, 1, 7);
  peer.send(response);
  peer.expect_terminate(terminate(wire::terminate::rdma_stream_catastrophic, response));
  EXPECT_EQ(peer.statuses(), std::vector{Status::local_protection});
  EXPECT_EQ(to.copy(), Content(8));
}

class BadReceives : public testing::TestWithParam<std::tuple<Wrong, std::size_t>> {};

// The receiver gets its own error, the sender that of a failure at the peer.
TEST_P(BadReceives, FailOnBothSides) {
  const auto [wrong, size] = GetParam();
  Pair pair;
  Region& from = pair.a.host.add(pattern(size));
  Region& good = pair.b.host.add(size);
  pair.b.host.post_receive(1, {good.slice(0, size - 5), bad_slice(pair.b.host, wrong)});
  pair.a.post({.wr_id = 1, .operation = Operation::send}, {from.slice()});
  pair.drive();
  ASSERT_EQ(pair.b.host.receives.size(), 1U);
  EXPECT_EQ(pair.b.host.receives[0].status, Status::local_protection);
  EXPECT_EQ(pair.b.host.end_reason, EndReason::terminated);
  EXPECT_EQ(pair.b.connection().terminate().code, wire::terminate::rdma_stream_catastrophic);
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::remote_operation});
}

INSTANTIATE_TEST_SUITE_P(All, BadReceives,
                         testing::Combine(testing::Values(Wrong::lkey, Wrong::bounds, Wrong::domain,
                                                          Wrong::right),
                                          testing::Values(10, 1000, 40'000)));

// Slices that this message does not need are not checked.
TEST(LocalFault, UnusedSlicesOfAReceiveDoNotMatter) {
  Pair pair;
  Region& from = pair.a.host.add(text("abc"));
  Region& good = pair.b.host.add(3);
  pair.b.host.post_receive(1, {good.slice(), bad_slice(pair.b.host, Wrong::lkey)});
  pair.a.post({.operation = Operation::send}, {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.b.host.receives.at(0).status, Status::success);
}

}  // namespace
}  // namespace weft::test
