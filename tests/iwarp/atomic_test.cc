// Atomic operations: RFC 7306 §5, in the forms that verbs can ask for.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Requester;
using iwarp::Status;
using wire::AtomicOpcode;
using wire::AtomicRequest;

constexpr std::uint64_t ones = ~std::uint64_t{0};

std::uint64_t word(const Region& region, std::size_t offset = 0) {
  std::uint64_t value;
  std::memcpy(&value, region.copy(offset, 8).data(), 8);
  return value;
}

void set_word(Region& region, std::uint64_t value, std::size_t offset = 0) {
  region.put(offset, std::as_bytes(std::span(&value, 1)));
}

TEST(Atomic, FetchAddReturnsTheValueBefore) {
  Pair pair;
  Region& counter = pair.b.host.add(24);
  Region& result = pair.a.host.add(32);
  set_word(counter, 0xFFFF'FFFF'FFFF'FFF0U, 8);
  for (std::uint64_t i = 0; i < 3; ++i) {
    pair.a.post({.wr_id = i,
                 .operation = Operation::fetch_add,
                 .remote_address = counter.address(8),
                 .rkey = counter.rkey(),
                 .compare_or_add = 0x10},
                {result.slice(i * 8, 8)});
  }
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector(3, Status::success));
  EXPECT_EQ(pair.a.host.sends.at(0).length_bytes, 8U);
  EXPECT_EQ(word(result, 0), 0xFFFF'FFFF'FFFF'FFF0U);
  EXPECT_EQ(word(result, 8), 0U);
  EXPECT_EQ(word(result, 16), 0x10U);
  EXPECT_EQ(word(result, 24), 0U);
  EXPECT_EQ(word(counter, 8), 0x20U);
  EXPECT_EQ(word(counter, 0), 0U);
  EXPECT_EQ(word(counter, 16), 0U);
}

TEST(Atomic, CompareSwapSwapsOnlyWhereItCompares) {
  Pair pair;
  Region& lock = pair.b.host.add(8);
  Region& result = pair.a.host.add(16);
  set_word(lock, 5);
  const auto swap = [&](std::uint64_t compare, std::uint64_t value, std::size_t at) {
    pair.a.post({.operation = Operation::compare_swap,
                 .remote_address = lock.address(),
                 .rkey = lock.rkey(),
                 .compare_or_add = compare,
                 .swap = value},
                {result.slice(at, 8)});
  };
  swap(4, 100, 0);
  swap(5, 200, 8);
  pair.drive();
  EXPECT_EQ(word(result, 0), 5U);
  EXPECT_EQ(word(result, 8), 5U);
  EXPECT_EQ(word(lock), 200U);
}

// The fields of a request: RFC 7306 §5.2.1.
TEST(Atomic, RequestsCarryTheMasksOfTheirPlainForms) {
  ScriptedPeer peer(roomy(true));
  Region& result = peer.host.add(16);
  peer.post({.operation = Operation::fetch_add,
             .remote_address = 0x1000,
             .rkey = 0xAB,
             .compare_or_add = 7},
            {result.slice(0, 8)});
  peer.post({.operation = Operation::compare_swap,
             .remote_address = 0x2000,
             .rkey = 0xCD,
             .compare_or_add = 8,
             .swap = 9},
            {result.slice(8, 8)});
  peer.expect(atomic_request(1, {.opcode = AtomicOpcode::fetch_add,
                                 .request_id = 1,
                                 .stag = 0xAB,
                                 .tagged_offset = 0x1000,
                                 .add_or_swap = 7,
                                 .add_or_swap_mask = 0,
                                 .compare = 0,
                                 .compare_mask = ones}));
  peer.expect(atomic_request(2, {.opcode = AtomicOpcode::compare_swap,
                                 .request_id = 2,
                                 .stag = 0xCD,
                                 .tagged_offset = 0x2000,
                                 .add_or_swap = 9,
                                 .add_or_swap_mask = ones,
                                 .compare = 8,
                                 .compare_mask = ones}));
  peer.send(atomic_response(1, 1, 0x1111));
  peer.send(atomic_response(2, 2, 0x2222));
  EXPECT_EQ(peer.statuses(), std::vector(2, Status::success));
  EXPECT_EQ(word(result, 0), 0x1111U);
  EXPECT_EQ(word(result, 8), 0x2222U);
}

// RFC 7306 §5.2.2: responses are sent on queue 3 with MSNs of their own, in order with reads.
TEST(Atomic, ResponsesShareTheOrderOfReadsButNotTheirQueue) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(16);
  set_word(memory, 0x0102030405060708U);
  const AtomicRequest add{.request_id = 0x55,
                          .stag = memory.rkey(),
                          .tagged_offset = memory.address(),
                          .add_or_swap = 1};
  peer.send(atomic_request(1, add));
  peer.send(read_request(2, {.sink_stag = 9,
                             .size_bytes = 8,
                             .source_stag = memory.rkey(),
                             .source_offset = memory.address()}));
  peer.send(atomic_request(3, add));
  peer.expect(atomic_response(1, 0x55, 0x0102030405060708U));
  const std::uint64_t after = 0x0102030405060709U;
  peer.expect(read_response(9, 0, std::as_bytes(std::span(&after, 1))));
  peer.expect(atomic_response(2, 0x55, after));
  EXPECT_EQ(word(memory), after + 1);
}

struct BadAtomic {
  const char* name;
  AtomicRequest change;
  std::size_t offset;
  wire::TerminateCode code;
};

class BadAtomics : public testing::TestWithParam<BadAtomic> {};

TEST_P(BadAtomics, EndTheStreamAndChangeNothing) {
  const BadAtomic& bad = GetParam();
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(16, {.remote_atomic = bad.code != wire::terminate::rdma_access});
  AtomicRequest request = bad.change;
  request.stag += memory.rkey();
  request.tagged_offset = memory.address(bad.offset);
  request.add_or_swap = 77;
  const auto culprit = atomic_request(1, request);
  peer.send(culprit);
  peer.expect_terminate(terminate(bad.code, culprit));
  EXPECT_EQ(memory.copy(), Content(16));
}

INSTANTIATE_TEST_SUITE_P(
    Codes, BadAtomics,
    testing::Values(
        BadAtomic{
            "masked_add", {.add_or_swap_mask = 1}, 0, wire::terminate::rdma_unexpected_opcode},
        BadAtomic{
            "masked_swap",
            {.opcode = AtomicOpcode::compare_swap, .add_or_swap_mask = 0xFF, .compare_mask = ones},
            0,
            wire::terminate::rdma_unexpected_opcode},
        BadAtomic{
            "masked_compare",
            {.opcode = AtomicOpcode::compare_swap, .add_or_swap_mask = ones, .compare_mask = 1},
            0,
            wire::terminate::rdma_unexpected_opcode},
        BadAtomic{"unknown_code",
                  {.opcode = AtomicOpcode{1}},
                  0,
                  wire::terminate::rdma_unexpected_opcode},
        BadAtomic{"misaligned", {}, 4, wire::terminate::rdma_unspecified},
        BadAtomic{"beyond_the_end", {}, 16, wire::terminate::rdma_bounds},
        BadAtomic{"across_the_end", {}, 9, wire::terminate::rdma_bounds},
        BadAtomic{"other_stag", {.stag = 1}, 0, wire::terminate::rdma_invalid_stag},
        BadAtomic{"missing_right", {}, 0, wire::terminate::rdma_access}),
    [](const auto& given) { return std::string(given.param.name); });

// The sender checks alignment itself: the request fails as on InfiniBand, after those before it.
TEST(Atomic, MisalignedTargetNeverLeaves) {
  Pair pair;
  Region& memory = pair.b.host.add(16);
  Region& result = pair.a.host.add(8);
  pair.a.post({.wr_id = 1,
               .operation = Operation::write,
               .remote_address = memory.address(),
               .rkey = memory.rkey()},
              {result.slice()});
  pair.a.post({.wr_id = 2,
               .operation = Operation::fetch_add,
               .remote_address = memory.address(1),
               .rkey = memory.rkey()},
              {result.slice()});
  pair.a.post({.wr_id = 3, .operation = Operation::write}, {result.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(),
            (std::vector{Status::success, Status::remote_invalid_request, Status::flushed}));
  EXPECT_EQ(pair.a.host.end_reason, iwarp::EndReason::local_error);
}

TEST(Atomic, TakesExactlyEightBytesInOnePiece) {
  Pair pair;
  Region& result = pair.a.host.add(16);
  const iwarp::WorkRequest add{.operation = Operation::fetch_add};
  EXPECT_EQ(pair.a.try_post(add, {result.slice(0, 4)}), Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post(add, {result.slice(0, 16)}), Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post(add, {result.slice(0, 4), result.slice(4, 4)}),
            Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post(add), Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post(add, {result.slice(0, 8)}), Requester::Posted::ok);
}

TEST(Atomic, ResponseThatFitsNoRequestEndsTheStream) {
  for (const std::uint32_t request_id : {0U, 2U}) {
    ScriptedPeer peer(roomy(true));
    Region& result = peer.host.add(8);
    peer.post({.operation = Operation::fetch_add}, {result.slice()});
    (void)peer.next();
    const auto response = atomic_response(1, request_id, 5);
    peer.send(response);
    peer.expect_terminate(terminate(wire::terminate::rdma_unexpected_opcode, response));
    EXPECT_EQ(word(result), 0U);
  }
}

// A read response where an atomic response is due, and the reverse.
TEST(Atomic, ResponseOfTheOtherKindEndsTheStream) {
  ScriptedPeer first(roomy(true));
  Region& result = first.host.add(8);
  first.post({.operation = Operation::fetch_add}, {result.slice()});
  (void)first.next();
  const auto read = read_response(result.lkey(), result.address(), Content(8));
  first.send(read);
  first.expect_terminate(terminate(wire::terminate::tagged_invalid_stag, read));

  ScriptedPeer second(roomy(true));
  Region& sink = second.host.add(8);
  second.post({.operation = Operation::read}, {sink.slice()});
  (void)second.next();
  const auto atomic = atomic_response(1, 1, 5);
  second.send(atomic);
  second.expect_terminate(terminate(wire::terminate::rdma_unexpected_opcode, atomic));
}

}  // namespace
}  // namespace weft::test
