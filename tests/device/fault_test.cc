// Forbidden operations of a peer, and what both sides report. No byte outside the granted range may
// change.
#include <sys/mman.h>

#include <algorithm>

#include "device/pair_fixture.h"
#include "device/queue_pair/completions.h"

namespace weft::device {
namespace {

constexpr std::size_t size = 256;

struct Case {
  const char* name;
  unsigned access = all_access;
  bool read = false;
  bool wrong_rkey = false;
  bool foreign_domain = false;
  std::size_t offset = 0;
  std::size_t length = size;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

class RemoteAccess : public testing::TestWithParam<Case> {};

// RFC 5040 §4.8, RFC 5041 §7.2.
TEST_P(RemoteAccess, IsRefusedOnTheVeryRequest) {
  const Case& test = GetParam();
  Pair pair;
  auto local = pair.a.buffer(4 * size);
  auto remote = pair.b.buffer(3 * size);
  remote->fill(1);
  std::unique_ptr<ProtectionDomain> other(pair.b.context.allocate_domain());
  // The region is the middle third of the buffer.
  ibv_mr* mr = pair.b.context.register_memory(test.foreign_domain ? *other : *pair.b.domain,
                                              remote->bytes().data() + size, size,
                                              remote->address() + size, test.access);
  ASSERT_NE(mr, nullptr);
  const std::uint32_t rkey = test.wrong_rkey ? mr->rkey ^ 1 : mr->rkey;
  const std::uint64_t address = remote->address() + size + test.offset;

  // An allowed request comes first, to show that the error is reported for the right request.
  ASSERT_EQ(pair.a.write(1, {local->sge(0, 0)}, 0, 0), 0);
  if (test.read) {
    ASSERT_EQ(pair.a.read(2, {local->sge(0, test.length)}, address, rkey), 0);
  } else {
    ASSERT_EQ(pair.a.write(2, {local->sge(0, test.length)}, address, rkey), 0);
  }
  // If the peer responds quickly, both requests may be complete by now.
  const ibv_wc first = pair.a.await();
  EXPECT_EQ(first.status, IBV_WC_SUCCESS);
  EXPECT_EQ(first.wr_id, 1U);
  const ibv_wc second = pair.a.await();
  EXPECT_EQ(second.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(second.wr_id, 2U);
  EXPECT_TRUE(remote->holds(1, 0, 3 * size));
  EXPECT_EQ(pair.a.queue_pair->verbs()->state, IBV_QPS_ERR);
  pair.b.context.deregister_memory(mr);
}

INSTANTIATE_TEST_SUITE_P(
    All, RemoteAccess,
    testing::Values(Case{.name = "write_wrong_rkey", .wrong_rkey = true},
                    Case{.name = "read_wrong_rkey", .read = true, .wrong_rkey = true},
                    Case{.name = "write_beyond_end", .offset = 1},
                    Case{.name = "read_beyond_end", .read = true, .offset = 1},
                    Case{.name = "write_before_start", .offset = static_cast<std::size_t>(-1)},
                    Case{.name = "read_far_away", .read = true, .offset = 1 << 20},
                    Case{.name = "write_wraps_around",
                         .offset = static_cast<std::size_t>(-1) - 7 * size},
                    Case{.name = "write_without_right", .access = IBV_ACCESS_LOCAL_WRITE},
                    Case{.name = "read_without_right",
                         .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                         .read = true},
                    Case{.name = "write_foreign_domain", .foreign_domain = true},
                    Case{.name = "read_foreign_domain", .read = true, .foreign_domain = true}),
    name_of);

TEST(Fault, SendTooLongForTheReceive) {
  Pair pair;
  auto local = pair.a.buffer(size);
  auto remote = pair.b.buffer(2 * size);
  remote->fill(1);
  ASSERT_EQ(pair.b.post_receive(5, {remote->sge(0, size - 1)}), 0);
  ASSERT_EQ(pair.b.post_receive(6, {remote->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(1, {local->sge(0, size)}), 0);
  const ibv_wc received = pair.b.await();
  EXPECT_EQ(received.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(received.wr_id, 5U);
  const ibv_wc flushed = pair.b.await();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 6U);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(remote->holds(1, size - 1, 2 * size));
}

// RFC 5041 §7.2 code 2: iWARP has no "receiver not ready".
TEST(Fault, SendWithoutAReceive) {
  Pair pair;
  auto local = pair.a.buffer(size);
  ASSERT_EQ(pair.a.send(1, {local->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(2, {local->sge(0, size)}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
}

TEST(Fault, WrongLkeyInAReceive) {
  Pair pair;
  auto local = pair.a.buffer(size);
  auto remote = pair.b.buffer(size);
  ibv_sge wrong = remote->sge(0, size);
  wrong.lkey ^= 0x100;
  ASSERT_EQ(pair.b.post_receive(5, {wrong}), 0);
  ASSERT_EQ(pair.a.send(1, {local->sge(0, size)}), 0);
  EXPECT_EQ(pair.b.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_OP_ERR);
}

TEST(Fault, WrongLkeyInARequestIsReportedInItsTurn) {
  Pair pair;
  auto local = pair.a.buffer(size);
  auto remote = pair.b.buffer(size);
  ibv_sge wrong = local->sge(0, size);
  wrong.lkey ^= 0x100;
  ASSERT_EQ(pair.a.write(1, {local->sge(0, size)}, remote->address(), remote->rkey()), 0);
  ASSERT_EQ(pair.a.write(2, {wrong}, remote->address(), remote->rkey()), 0);
  ASSERT_EQ(pair.a.write(3, {local->sge(0, size)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
}

// The device has made a request fail on purpose, but the queue pair was reset before it came to it:
// a later request with the same id has a status of its own.
TEST(Fault, AResetForgetsTheStatusOfARequestThatWasFlushed) {
  Pair pair;
  Completions completions(*pair.a.queue_pair->verbs(), 2);
  completions.replace_send_status(7, IBV_WC_LOC_QP_OP_ERR);
  completions.send_slots().take();
  completions.add_send({.wr_id = 7, .status = iwarp::Status::flushed});
  completions.drop();
  completions.send_slots().take();
  completions.add_send({.wr_id = 7, .status = iwarp::Status::local_protection});
  ASSERT_EQ(completions.publish(), Completions::Published::all);
  EXPECT_EQ(pair.a.await().status, IBV_WC_LOC_PROT_ERR);
}

TEST(Fault, SendSideRulesAreErrorsOfThePost) {
  Pair pair;
  auto local = pair.a.buffer(size);
  EXPECT_EQ(pair.a.send(1, std::vector<ibv_sge>(5, local->sge(0, 1))), EINVAL);
  EXPECT_EQ(pair.a.send(1, {local->sge(0, 65)}, IBV_SEND_INLINE), EINVAL);
  ibv_send_wr request{};
  request.opcode = IBV_WR_TSO;
  EXPECT_EQ(pair.a.post(request, {}), EOPNOTSUPP);
}

TEST(Fault, MisalignedAtomicLeavesMemoryUnchanged) {
  Pair pair;
  auto local = pair.a.buffer(16);
  auto remote = pair.b.buffer(32);
  remote->fill(1);
  ibv_send_wr request{};
  request.send_flags = IBV_SEND_SIGNALED;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic = {remote->address() + 4, 2, 0, remote->rkey()};
  ASSERT_EQ(pair.a.post(request, {local->sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(remote->holds(1, 0, 32));
}

// The kernel reports memory that was unmapped after registration; the device must report an error
// and not crash.
TEST(Fault, UnmappedReceiveBuffer) {
  PairOptions options;
  options.settings.crc = false;  // so that the kernel places the data and detects it
  Pair pair(options);
  constexpr std::size_t large = 1 << 20;
  void* memory = mmap(nullptr, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ibv_mr* mr = pair.b.context.register_memory(*pair.b.domain, memory, large,
                                              reinterpret_cast<std::uint64_t>(memory), all_access);
  ASSERT_NE(mr, nullptr);
  auto local = pair.a.buffer(2 * large);
  // The first write makes the sink expect large writes, which are then received directly in place.
  ASSERT_EQ(
      pair.a.write(1, {local->sge(0, large)}, reinterpret_cast<std::uint64_t>(memory), mr->rkey),
      0);
  ASSERT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  munmap(memory, large);
  ASSERT_EQ(
      pair.a.write(2, {local->sge(0, large)}, reinterpret_cast<std::uint64_t>(memory), mr->rkey),
      0);
  EXPECT_NE(pair.a.await().status, IBV_WC_SUCCESS);
  pair.b.context.deregister_memory(mr);
}

TEST(Fault, RegisteringUnmappedMemoryIsRefused) {
  Pair pair;
  EXPECT_EQ(pair.a.context.register_memory(*pair.a.domain, reinterpret_cast<void*>(0x1000), 4096,
                                           0x1000, 0),
            nullptr);
  EXPECT_EQ(errno, EFAULT);
  std::uint8_t byte = 0;
  EXPECT_EQ(pair.a.context.register_memory(*pair.a.domain, &byte, 1, 0, IBV_ACCESS_REMOTE_WRITE),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Fault, PeerThatVanishesFailsWhatIsOutstanding) {
  Pair pair;
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  ASSERT_EQ(pair.a.post_receive(9, {local->sge(0, 8)}), 0);
  pair.b.queue_pair->disconnect();
  const ibv_wc flushed = pair.a.await();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 9U);
  // In the error state posting succeeds and every request is flushed: ibv_modify_qp(3).
  EXPECT_EQ(pair.a.send(4, {local->sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.post_receive(5, {local->sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace
}  // namespace weft::device
