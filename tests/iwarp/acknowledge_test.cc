// Completions that mean "placed": a later read proves each request (RFC 5040 §5.5).
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::EndReason;
using iwarp::Operation;
using iwarp::Status;

iwarp::WorkRequest request(std::uint64_t wr_id, Operation operation, bool signaled = true) {
  return {.wr_id = wr_id, .operation = operation, .signaled = signaled, .rkey = 5};
}

const auto proof = empty_response();

// Writes that are posted one by one. A read leaves with the first one only, because at most one is
// outstanding.
void post_writes(ScriptedPeer& peer, const Region& memory, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    peer.post(request(i, Operation::write), {memory.slice()});
    peer.expect(write(5, 0, Content(4)));
    if (i == 0) peer.expect(empty_read(1));
    peer.expect_nothing();
  }
}

TEST(Acknowledge, CompletesWithTheProofAndNotBefore) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post(request(1, Operation::write), {memory.slice()});
  peer.expect(write(5, 0, Content(4)));
  peer.expect(empty_read(1));
  peer.expect_nothing();
  EXPECT_TRUE(peer.statuses().empty());
  peer.send(proof);
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  EXPECT_EQ(peer.connection.acknowledgement_reads(), 1U);
}

// The read is sent with the last request, in the same gather: the peer may exit right after it.
TEST(Acknowledge, OneReadLeavesWithTheBatch) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  for (std::uint64_t i = 0; i < 10; ++i) {
    peer.post(request(i, i % 2 == 0 ? Operation::write : Operation::send), {memory.slice()});
  }
  std::size_t planned = 0;
  for (const auto& piece : peer.connection.plan_send()) planned += piece.iov_len;
  for (std::uint32_t i = 0; i < 5; ++i) {
    peer.expect(write(5, 0, Content(4)));
    peer.expect(send(i + 1, Content(4)));
  }
  peer.expect(empty_read(1));
  peer.expect_nothing();
  EXPECT_EQ(peer.sent_bytes(), planned);
  peer.send(proof);
  EXPECT_EQ(peer.statuses(), std::vector(10, Status::success));
}

// At most one is outstanding. Requests posted meanwhile wait for the next one, which proves them
// all.
TEST(Acknowledge, OneIsOutstandingAtATime) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  post_writes(peer, memory, 3);
  peer.send(proof);
  EXPECT_EQ(peer.statuses(), std::vector(1, Status::success));
  peer.expect(empty_read(2));
  peer.expect_nothing();
  peer.send(proof);
  EXPECT_EQ(peer.statuses(), std::vector(3, Status::success));
  peer.expect_nothing();
  EXPECT_EQ(peer.connection.acknowledgement_reads(), 2U);
}

// The driver may let a read wait for the next request where nothing else is to be sent. It then
// proves that request, too.
TEST(Acknowledge, AReadAloneMayWaitForTheNextRequest) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  post_writes(peer, memory, 2);
  EXPECT_FALSE(peer.connection.only_probe_due());  // one is outstanding
  peer.send(proof);
  EXPECT_TRUE(peer.connection.only_probe_due());
  peer.post(request(2, Operation::write), {memory.slice()});
  peer.expect(write(5, 0, Content(4)));
  peer.expect(empty_read(2));
  peer.expect_nothing();
  EXPECT_FALSE(peer.connection.only_probe_due());
  peer.send(proof);
  EXPECT_EQ(peer.statuses(), std::vector(3, Status::success));
}

// An answer with content does not wait, so the read leaves with it.
TEST(Acknowledge, AReadDoesNotWaitWhereAnAnswerIsDue) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  post_writes(peer, memory, 2);
  peer.send(proof);
  peer.send(empty_read(1));
  EXPECT_TRUE(peer.connection.only_probe_due());
  peer.send(read_request(2, {.sink_stag = 7,
                             .sink_offset = 0,
                             .size_bytes = 4,
                             .source_stag = memory.rkey(),
                             .source_offset = memory.address()}));
  EXPECT_FALSE(peer.connection.only_probe_due());
}

// A stream that is about to close waits for its last proof.
TEST(Acknowledge, AReadDoesNotWaitAtTheEnd) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  post_writes(peer, memory, 2);
  peer.connection.close_when_proven();
  peer.send(proof);
  EXPECT_FALSE(peer.connection.only_probe_due());
}

// A read of the application after the others proves them as well; one before them does not.
TEST(Acknowledge, ApplicationsReadServesInstead) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  const auto asked = [&](std::uint32_t msn) {
    return read_request(msn, {.sink_stag = memory.lkey(),
                              .sink_offset = memory.address(),
                              .size_bytes = 4,
                              .source_stag = 5});
  };
  const auto answer = read_response(memory.lkey(), memory.address(), Content(4));
  peer.post(request(1, Operation::write), {memory.slice()});
  peer.post(request(2, Operation::read), {memory.slice()});
  peer.expect(write(5, 0, Content(4)));
  peer.expect(asked(1));
  peer.expect_nothing();
  peer.send(answer);
  EXPECT_EQ(peer.statuses(), std::vector(2, Status::success));

  peer.post(request(3, Operation::read), {memory.slice()});
  peer.post(request(4, Operation::write), {memory.slice()});
  peer.expect(asked(2));
  peer.expect(write(5, 0, Content(4)));
  peer.expect(empty_read(3));
  peer.send(answer);
  EXPECT_EQ(peer.statuses(), std::vector(3, Status::success));
  peer.send(proof);
  EXPECT_EQ(peer.statuses(), std::vector(4, Status::success));
}

// No probes are added where the application reads, however much it does.
TEST(Acknowledge, LargeReadsServeAsWell) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(300'000);
  for (int round = 0; round < 3; ++round) {
    peer.post(request(1, Operation::read), {memory.slice()});
    peer.post(request(2, Operation::write), {memory.slice(0, 4)});
    peer.post(request(3, Operation::read), {memory.slice(0, 4)});
    for (int i = 0; i < 3; ++i) (void)peer.next();
    peer.expect_nothing();
    peer.send(read_response(memory.lkey(), memory.address(), Content(50'000), false));
    for (std::uint64_t at = 50'000; at < 300'000; at += 50'000) {
      peer.send(read_response(memory.lkey(), memory.address(at), Content(50'000), at == 250'000));
    }
    peer.send(read_response(memory.lkey(), memory.address(), Content(4)));
  }
  EXPECT_EQ(peer.statuses(), std::vector(9, Status::success));
  EXPECT_EQ(peer.connection.acknowledgement_reads(), 0U);
}

TEST(Acknowledge, AtomicServesInstead) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(8);
  peer.post(request(1, Operation::send), {memory.slice()});
  peer.post(request(2, Operation::fetch_add), {memory.slice()});
  peer.expect(send(1, Content(8)));
  (void)peer.next();
  peer.expect_nothing();
  peer.send(atomic_response(1, 1, 0));
  EXPECT_EQ(peer.statuses(), std::vector(2, Status::success));
}

TEST(Acknowledge, UnsignaledRequestsNeedNoProof) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  for (int i = 0; i < 20; ++i) {
    peer.post(request(1, Operation::write, false), {memory.slice()});
    peer.expect(write(5, 0, Content(4)));
  }
  peer.expect_nothing();
}

// The first requests of a large batch complete before the last ones are sent.
TEST(Acknowledge, LongBatchesAreProvenOnTheWay) {
  Pair pair;
  constexpr std::size_t size = 100'000;
  Region& from = pair.a.host.add(size);
  Region& to = pair.b.host.add(size);
  pair.a_to_b.set_window(50'000);
  for (std::uint64_t i = 0; i < 40; ++i) {
    pair.a.post({.wr_id = i,
                 .operation = Operation::write,
                 .remote_address = to.address(),
                 .rkey = to.rkey()},
                {from.slice()});
  }
  std::size_t completed_early = 0;
  while (pair.step()) {
    if (pair.a_to_b.sent_bytes() < 30 * size) completed_early = pair.a.host.sends.size();
  }
  EXPECT_GT(completed_early, 10U);
  EXPECT_EQ(pair.a.send_statuses(), std::vector(40, Status::success));
  EXPECT_LT(pair.a.connection().acknowledgement_reads(), 20U);
}

// The responder's own Sends are proven by the initiator.
TEST(Acknowledge, WorksForBothSides) {
  PairOptions options;
  options.a.rtr = options.b.rtr = iwarp::RtrKind::write;
  Pair pair(options);
  Region& from = pair.b.host.add(text("abc"));
  Region& to = pair.a.host.add(3);
  pair.a.host.post_receive(1, {to.slice()});
  pair.b.post(request(2, Operation::send), {from.slice()});
  pair.drive();
  EXPECT_EQ(pair.b.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(pair.b.connection().acknowledgement_reads(), 1U);
}

// Without acknowledgement, or where the peer takes no reads, success means that TCP has the bytes.
TEST(Acknowledge, WithoutItTcpsWordCompletes) {
  for (const bool off : {true, false}) {
    auto options = roomy(true);
    options.acknowledge = !off;
    if (!off) options.wire_ord = options.ord = 0;
    ScriptedPeer peer(options);
    Region& memory = peer.host.add(100);
    peer.post(request(1, Operation::write), {memory.slice()});
    peer.post(request(2, Operation::send, false), {memory.slice()});
    peer.post(request(3, Operation::send), {memory.slice()});
    const std::size_t first = fpdu(write(5, 0, Content(100))).size();
    const std::size_t second = fpdu(send(1, Content(100))).size();
    (void)peer.connection.plan_send();
    peer.connection.sent(first - 1);
    EXPECT_TRUE(peer.statuses().empty());
    (void)peer.connection.plan_send();
    peer.connection.sent(1);
    EXPECT_EQ(peer.statuses().size(), 1U);
    (void)peer.connection.plan_send();
    peer.connection.sent(2 * second - 1);
    EXPECT_EQ(peer.statuses().size(), 1U);
    (void)peer.connection.plan_send();
    peer.connection.sent(1);
    EXPECT_EQ(peer.statuses(), std::vector(2, Status::success));
    EXPECT_TRUE(peer.connection.plan_send().empty());
    EXPECT_EQ(peer.connection.acknowledgement_reads(), 0U);
  }
}

// The peer's IRD is 1, and the application uses it.
TEST(Acknowledge, SharesTheOnlyPlaceWithTheApplication) {
  auto options = roomy(true);
  options.ord = options.wire_ord = 1;
  ScriptedPeer peer(options);
  Region& memory = peer.host.add(4);
  peer.post(request(1, Operation::read), {memory.slice()});
  peer.post(request(2, Operation::write), {memory.slice()});
  (void)peer.next();
  peer.expect(write(5, 0, Content(4)));
  peer.expect_nothing();
  peer.send(read_response(memory.lkey(), memory.address(), Content(4)));
  peer.expect(empty_read(2));
  peer.post(request(3, Operation::read), {memory.slice()});
  peer.expect_nothing();
  peer.send(proof);
  (void)peer.next();
  peer.send(read_response(memory.lkey(), memory.address(), Content(4)));
  EXPECT_EQ(peer.statuses(), std::vector(3, Status::success));
}

class Lost : public testing::TestWithParam<int> {};

// The peer has closed without a Terminate: requests that TCP delivered succeed, the first other one
// gets the error, the rest is flushed.
TEST_P(Lost, RequestsEndByWhatTcpDelivered) {
  const auto delivered = static_cast<std::size_t>(GetParam());
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  const std::size_t each = fpdu(write(5, 0, Content(4))).size();
  for (std::uint64_t i = 0; i < 4; ++i) {
    peer.post(request(i, Operation::write, i != 1), {memory.slice()});
  }
  for (int i = 0; i < 5; ++i) (void)peer.next();
  peer.connection.peer_closed(delivered * each + (delivered < 4 ? each - 1 : 0));

  std::vector<Status> expected;
  for (std::size_t i = 0; i < 4; ++i) {
    if (i < delivered && i != 1) expected.push_back(Status::success);
    if (i == delivered) expected.push_back(Status::retry_exceeded);
    if (i > delivered) expected.push_back(Status::flushed);
  }
  EXPECT_EQ(peer.statuses(), expected);
  EXPECT_EQ(peer.host.end_reason, EndReason::peer_closed);
}

INSTANTIATE_TEST_SUITE_P(Delivered, Lost, testing::Range(0, 5));

// A read gets no response any more, whatever TCP delivered; no later request may succeed either.
TEST(Acknowledge, LossLeavesReadsUnanswered) {
  ScriptedPeer peer(roomy(true));
  Region& memory = peer.host.add(4);
  peer.post(request(1, Operation::write), {memory.slice()});
  peer.post(request(2, Operation::read), {memory.slice()});
  peer.post(request(3, Operation::write), {memory.slice()});
  for (int i = 0; i < 4; ++i) (void)peer.next();
  peer.connection.peer_closed(peer.sent_bytes());
  EXPECT_EQ(peer.statuses(),
            (std::vector{Status::success, Status::retry_exceeded, Status::flushed}));
}

TEST(Acknowledge, LossCountsFromTheFirstFpdu) {
  auto options = roomy(true);
  options.rtr = iwarp::RtrKind::write;
  ScriptedPeer peer(options);
  Region& memory = peer.host.add(4);
  peer.post(request(1, Operation::write), {memory.slice()});
  for (int i = 0; i < 3; ++i) (void)peer.next();
  const std::size_t ready = fpdu(write(0, 0, {})).size();
  peer.connection.peer_closed(ready + fpdu(write(5, 0, Content(4))).size());
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
}

}  // namespace
}  // namespace weft::test
