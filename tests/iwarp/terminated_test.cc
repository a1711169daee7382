// How a Terminate from the other side completes the outstanding requests.
#include <gtest/gtest.h>

#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Status;
using wire::TerminateCode;
namespace code = wire::terminate;

// An initiator with one outstanding request of each kind, and what it has sent.
class Terminated : public testing::Test {
 protected:
  void post(std::uint64_t wr_id, Operation operation, std::uint64_t address = 0,
            std::uint32_t rkey = 5, bool signaled = true) {
    peer.post({.wr_id = wr_id,
               .operation = operation,
               .signaled = signaled,
               .remote_address = address,
               .rkey = rkey},
              {memory.slice()});
    last = peer.next();
  }
  // The probe for the first request is outstanding; later requests need none yet.
  void skip_proof() { (void)peer.next(); }
  void expect(std::vector<Status> statuses) {
    EXPECT_EQ(peer.statuses(), statuses);
    EXPECT_EQ(peer.host.end_reason, iwarp::EndReason::peer_terminated);
    EXPECT_TRUE(peer.connection.drained());
    EXPECT_TRUE(peer.connection.plan_send().empty());
  }

  ScriptedPeer peer{roomy(true)};
  Region& memory = peer.host.add(8);
  Ulpdu last;
};

struct Mapping {
  const char* name;
  Operation operation;
  TerminateCode code;
  Status status;
};

class StatusOf : public Terminated, public testing::WithParamInterface<Mapping> {};

TEST_P(StatusOf, TheRequestAtFault) {
  const Mapping& mapping = GetParam();
  post(1, mapping.operation);
  const auto culprit = last;
  const bool read = mapping.operation == Operation::read;
  peer.send(terminate(mapping.code, culprit, read && mapping.code.layer == 0));
  expect({mapping.status});
  EXPECT_EQ(peer.connection.terminate().code, mapping.code);
}

INSTANTIATE_TEST_SUITE_P(
    Codes, StatusOf,
    testing::Values(
        Mapping{"write_stag", Operation::write, code::tagged_invalid_stag, Status::remote_access},
        Mapping{"write_bounds", Operation::write, code::tagged_bounds, Status::remote_access},
        Mapping{"write_stream", Operation::write, code::tagged_stag_not_of_stream,
                Status::remote_access},
        Mapping{"write_wrap", Operation::write, code::tagged_wrap, Status::remote_access},
        Mapping{"read_stag", Operation::read, code::rdma_invalid_stag, Status::remote_access},
        Mapping{"read_bounds", Operation::read, code::rdma_bounds, Status::remote_access},
        Mapping{"read_right", Operation::read, code::rdma_access, Status::remote_access},
        Mapping{"read_too_many", Operation::read, code::untagged_no_buffer,
                Status::remote_invalid_request},
        Mapping{"atomic_right", Operation::fetch_add, code::rdma_access, Status::remote_access},
        Mapping{"atomic_refused", Operation::compare_swap, code::rdma_unexpected_opcode,
                Status::remote_operation},
        Mapping{"send_not_posted", Operation::send, code::untagged_no_buffer,
                Status::rnr_retry_exceeded},
        Mapping{"send_too_long", Operation::send, code::untagged_too_long,
                Status::remote_invalid_request},
        Mapping{"send_bad_receive", Operation::send, code::rdma_stream_catastrophic,
                Status::remote_operation},
        Mapping{"send_unspecified", Operation::send, code::rdma_unspecified,
                Status::remote_operation},
        Mapping{"invalidate", Operation::send_invalidate, code::rdma_cannot_invalidate,
                Status::remote_access}),
    [](const auto& given) { return std::string(given.param.name); });

TEST_F(Terminated, ImmediateIsBlamedByItsNumber) {
  post(1, Operation::write_immediate);
  const auto culprit = peer.next();
  EXPECT_EQ(culprit, immediate(1, 0));
  peer.send(terminate(code::untagged_no_buffer, culprit));
  expect({Status::rnr_retry_exceeded});
}

// A peer works in order: requests before the one at fault were carried out, the rest was not.
TEST_F(Terminated, RequestsBeforeTheCulpritSucceed) {
  post(1, Operation::write, 0, 5);
  skip_proof();
  post(2, Operation::send);
  post(3, Operation::write, 0, 6, false);
  post(4, Operation::write, 0, 7);
  const auto culprit = last;
  post(5, Operation::send);
  post(6, Operation::write, 0, 7);
  peer.send(terminate(code::tagged_invalid_stag, culprit));
  expect(
      {Status::success, Status::success, Status::remote_access, Status::flushed, Status::flushed});
}

// A Write has no number, and STag and offset may fit several. The first unproven one is meant.
TEST_F(Terminated, OnlyUnprovenRequestsAreCandidates) {
  post(1, Operation::write, 0, 5);
  skip_proof();
  post(2, Operation::write, 0, 5);
  peer.send(empty_response());
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  const auto culprit = last;
  peer.send(terminate(code::tagged_bounds, culprit));
  expect({Status::success, Status::remote_access});
}

TEST_F(Terminated, ProvenButWaitingForAnEarlierReadIsNoCandidate) {
  post(1, Operation::write, 100, 5, false);
  post(2, Operation::read);
  const auto read = last;
  post(3, Operation::write, 100, 5, false);
  peer.send(read_response(memory.lkey(), memory.address(), Content(8)));
  peer.send(terminate(code::tagged_bounds, write(5, 100, Content(8))));
  EXPECT_EQ(peer.statuses(), (std::vector{Status::success, Status::remote_access}));
  EXPECT_EQ(peer.host.sends.back().wr_id, 3U);
}

TEST_F(Terminated, OffsetsTellWritesApart) {
  post(1, Operation::write, 1000, 5);
  skip_proof();
  post(2, Operation::write, 1008, 5);
  post(3, Operation::write, 1016, 6);
  peer.send(terminate(code::tagged_bounds, write(5, 1015, Content(1))));
  expect({Status::success, Status::remote_access, Status::flushed});
}

// Our Read Response may be at fault, with a peer's STag that is equal to the rkey of a Write.
TEST_F(Terminated, OurResponseIsNoRequest) {
  post(1, Operation::write, 0, 5);
  skip_proof();
  peer.send(terminate(code::tagged_invalid_stag, read_response(5, 0, Content(8))));
  expect({Status::flushed});
}

TEST_F(Terminated, WithoutAQuotedHeaderNobodyIsBlamed) {
  post(1, Operation::write);
  skip_proof();
  post(2, Operation::send);
  peer.send(terminate(code::mpa_crc));
  expect({Status::flushed, Status::flushed});
}

TEST_F(Terminated, UnansweredReadsBeforeTheCulpritAreFlushed) {
  post(1, Operation::read);
  post(2, Operation::send);
  const auto culprit = last;
  peer.send(terminate(code::untagged_no_buffer, culprit));
  expect({Status::flushed, Status::rnr_retry_exceeded});
}

// Our own probe may be at fault: its number belongs to no request.
TEST_F(Terminated, OurOwnReadIsNoRequest) {
  post(1, Operation::write);
  const auto proof = peer.next();
  peer.send(terminate(code::untagged_no_buffer, proof));
  expect({Status::flushed});
}

TEST_F(Terminated, UnsignaledCulpritIsReported) {
  post(1, Operation::write, 0, 5, false);
  peer.send(terminate(code::tagged_invalid_stag, last));
  expect({Status::remote_access});
  EXPECT_FALSE(peer.host.sends.at(0).signaled);
}

// A long message is refused before its end is sent.
TEST_F(Terminated, RequestThatIsHalfSentIsACandidate) {
  Region& large = peer.host.add(1'000'000);
  peer.post({.wr_id = 1, .operation = Operation::write, .rkey = 5}, {large.slice()});
  (void)peer.connection.plan_send();
  peer.send(terminate(code::tagged_invalid_stag, write(5, 1428, Content(1428), false)));
  expect({Status::remote_access});
}

TEST_F(Terminated, PostedAndNotSentIsNoCandidate) {
  Region& large = peer.host.add(1'000'000);
  peer.post({.wr_id = 1, .operation = Operation::write, .rkey = 4}, {large.slice()});
  peer.post({.wr_id = 2, .operation = Operation::write, .rkey = 5}, {large.slice()});
  (void)peer.connection.plan_send();
  peer.send(terminate(code::tagged_invalid_stag, write(5, 0, Content(4))));
  expect({Status::flushed, Status::flushed});
}

// A Terminate that is shorter than its format ends the stream, too.
TEST_F(Terminated, MalformedTerminateEndsTheStream) {
  post(1, Operation::send);
  peer.send(untagged({.last = true,
                      .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::terminate),
                      .queue = wire::queue::terminate},
                     Content(3)));
  expect({Status::flushed});
  EXPECT_EQ(peer.connection.terminate().code, code::rdma_unspecified);
}

// RFC 5040 §5.4: nothing is sent in return, not even FPDUs that were built already.
TEST_F(Terminated, NothingIsSentInReturn) {
  peer.send(empty_read(1));
  post(1, Operation::send);
  peer.post({.operation = Operation::send}, {memory.slice()});
  (void)peer.connection.plan_send();
  peer.send(terminate(code::untagged_no_buffer, send(1, Content(8))));
  EXPECT_TRUE(peer.connection.plan_send().empty());
  EXPECT_TRUE(peer.connection.drained());
}

}  // namespace
}  // namespace weft::test
