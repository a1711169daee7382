// Connections within one host whose ends cannot reach each other's memory: what is different from
// other ones that leave TCP. The run with WEFT_TEST_CARRIER=staged has all other tests for them.
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "device/local/same_host_test.h"
#include "device/local/staging.h"
#include "support/refuse.h"

namespace weft::device {
namespace {

std::string carrier_of(const End& end) {
  const CarrierNote note = end.queue_pair->carrier_note();
  return std::string(note.name) + " " + std::string(note.reason);
}

// Runs in a thread to which the kernel refuses to copy between processes, as do the threads of the
// devices that it makes.
template <typename Body>
void run_refused(int error, Body body) {
  const bool possible =
      test::run_without({SYS_process_vm_readv, SYS_process_vm_writev}, error, body);
  if (!possible) GTEST_SKIP() << "no seccomp filters here";
}

PairOptions staged_options() {
  PairOptions options;
  options.settings.same_host = SameHost::staged;
  return options;
}

class Staged : public SameHostTest {
 protected:
  // Everything that has payload, of a size with several parts and of one with a short last part.
  static void exchange_all(Pair& pair) {
    const auto source = pair.a.buffer(largest);
    const auto target = pair.b.buffer(largest);
    std::uint8_t seed = 1;
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{5000}, std::size_t{staging::part_bytes},
          std::size_t{staging::part_bytes} + 1, largest}) {
      send(pair, *source, *target, bytes, ++seed);
      write(pair, *source, *target, bytes, ++seed);
      read(pair, *source, *target, bytes, ++seed);
    }
  }

  static void send(Pair& pair, Buffer& source, Buffer& target, std::size_t bytes,
                   std::uint8_t seed) {
    source.fill(seed);
    const std::size_t half = bytes / 2;
    ASSERT_EQ(pair.b.post_receive(1, {target.sge(0, half), target.sge(half, largest - half)}), 0);
    ASSERT_EQ(pair.a.send(1, {source.sge(0, half), source.sge(half, bytes - half)}), 0);
    expect_success(pair.a, 1);
    const ibv_wc received = pair.b.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.byte_len, bytes);
    EXPECT_TRUE(target.holds(seed, 0, bytes));
  }
  static void write(Pair& pair, Buffer& source, Buffer& target, std::size_t bytes,
                    std::uint8_t seed) {
    source.fill(seed);
    ASSERT_EQ(pair.a.write(2, {source.sge(0, bytes)}, target.address(), target.rkey()), 0);
    expect_success(pair.a, 2);
    EXPECT_TRUE(target.holds(seed, 0, bytes));
  }
  static void read(Pair& pair, Buffer& source, Buffer& target, std::size_t bytes,
                   std::uint8_t seed) {
    target.fill(seed);
    ASSERT_EQ(pair.a.read(3, {source.sge(0, bytes)}, target.address(), target.rkey()), 0);
    expect_success(pair.a, 3);
    EXPECT_TRUE(source.holds(seed, 0, bytes));
  }

  static constexpr std::size_t largest = 1'000'003;
};

TEST_F(Staged, ConnectionsLeaveTcpWhereTheKernelRefuses) {
  for (const int error : {EPERM, ENOSYS}) {
    run_refused(error, [] {
      Pair pair;
      exchange_all(pair);
      const std::string expected =
          "same-host the kernel does not let the processes read each other's memory";
      EXPECT_EQ(carrier_of(pair.a), expected);
      EXPECT_EQ(carrier_of(pair.b), expected);
    });
  }
}

TEST_F(Staged, ASettingAsksForIt) {
  Pair pair(staged_options());
  exchange_all(pair);
  EXPECT_EQ(carrier_of(pair.a), "same-host WEFT_SAME_HOST is staged");
}

// Several are under way at a time, with a part of the staging area each, beside other requests.
TEST_F(Staged, ShortReadsAndWritesCompleteInOrder) {
  constexpr std::size_t bytes = 7001;
  constexpr std::size_t rounds = 100;
  Pair pair(staged_options());
  const auto source = pair.a.buffer(2 * rounds * bytes);
  const auto target = pair.b.buffer(2 * rounds * bytes);
  exchange_one(pair, *source, *target);
  source->fill(1);
  target->fill(2);
  std::uint64_t posted = 0;
  std::uint64_t done = 0;
  const auto await_one = [&] {
    const ibv_wc completion = pair.a.await();
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    ASSERT_EQ(completion.wr_id, done);
    if (done % 2 == 0) {
      EXPECT_TRUE(source->holds(2, done * bytes, (done + 1) * bytes));
    }
    ++done;
  };
  while (posted < 2 * rounds) {
    const std::uint64_t at = target->address() + posted * bytes;
    const std::vector<ibv_sge> piece{source->sge(posted * bytes, bytes)};
    const int failed = posted % 2 == 0 ? pair.a.read(posted, piece, at, target->rkey())
                                       : pair.a.write(posted, piece, at, target->rkey());
    if (failed == 0) ++posted;
    if (failed != 0) await_one();
  }
  while (done < posted) await_one();
  for (std::uint64_t i = 1; i < posted; i += 2)
    EXPECT_TRUE(target->holds(1, i * bytes, (i + 1) * bytes)) << i;
}

// IBV_SEND_FENCE: what a Read has brought is sent.
TEST_F(Staged, AFencedSendWaitsForReads) {
  Pair pair(staged_options());
  const auto source = pair.a.buffer(5000);
  const auto target = pair.b.buffer(10'000);
  exchange_one(pair, *source, *target);
  for (std::uint8_t seed = 3; seed < 23; ++seed) {
    target->fill(seed);
    ASSERT_EQ(pair.b.post_receive(1, {target->sge(5000, 5000)}), 0);
    ASSERT_EQ(pair.a.read(1, {source->sge(0, 5000)}, target->address(), target->rkey()), 0);
    ASSERT_EQ(pair.a.send(2, {source->sge(0, 5000)}, IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
    expect_success(pair.a, 1);
    expect_success(pair.a, 2);
    expect_success(pair.b, 1);
    for (std::size_t i = 0; i < 5000; ++i)
      ASSERT_EQ(target->bytes()[5000 + i], target->bytes()[i]) << i;
  }
}

// The Reads before it complete, it fails, and those behind it are flushed.
TEST_F(Staged, AWrongReadAmongOthersFailsAlone) {
  Pair pair(staged_options());
  const auto source = pair.a.buffer(10 * 5000);
  const auto target = pair.b.buffer(10 * 5000);
  exchange_one(pair, *source, *target);
  source->fill(1);
  target->fill(2);
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint32_t rkey = target->rkey() + (i == 4 ? 1 : 0);
    ASSERT_EQ(pair.a.read(i, {source->sge(i * 5000, 5000)}, target->address() + i * 5000, rkey), 0);
  }
  for (std::uint64_t i = 0; i < 10; ++i) {
    const ibv_wc completion = pair.a.await();
    EXPECT_EQ(completion.wr_id, i);
    EXPECT_EQ(completion.status, i < 4    ? IBV_WC_SUCCESS
                                 : i == 4 ? IBV_WC_REM_ACCESS_ERR
                                          : IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_TRUE(source->holds(2, 0, 4 * 5000));
  EXPECT_TRUE(source->holds(1, 4 * 5000, 10 * 5000));
}

// Memory that is deregistered under a Read is not written any more.
TEST_F(Staged, AReadIntoMemoryThatIsDeregisteredFails) {
  PairOptions options = staged_options();
  options.settings.progress.mode = ProgressMode::manual;
  Pair pair(options);
  const auto source = pair.a.buffer(5000);
  const auto target = pair.b.buffer(5000);
  exchange_one(pair, *source, *target);
  source->fill(1);
  target->fill(2);
  ASSERT_EQ(pair.a.read(1, {source->sge(0, 5000)}, target->address(), target->rkey()), 0);
  source->deregister();
  EXPECT_FALSE(pair.b.look());
  EXPECT_EQ(pair.a.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(source->holds(1, 0, 5000));
}

// Each part was placed when the next one is asked for, so a region that is gone by then ends the
// request as over TCP.
TEST_F(Staged, ARequestOfSeveralPartsIsCheckedAsAWhole) {
  Pair pair(staged_options());
  const auto source = pair.a.buffer(largest);
  const auto target = pair.b.buffer(largest);
  source->fill(1);
  target->fill(2);
  const std::uint64_t address = target->address() + 1;
  ASSERT_EQ(pair.a.write(1, {source->sge(0, largest)}, address, target->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(target->holds(2, 0, largest));
}

// The receive of a Send that has come in part is flushed like the others.
TEST_F(Staged, ASendThatEndsBetweenItsPartsLosesNoReceive) {
  PairOptions options = staged_options();
  options.settings.progress.mode = ProgressMode::manual;
  Pair pair(options);
  const auto source = pair.a.buffer(largest);
  const auto target = pair.b.buffer(largest);
  exchange_one(pair, *source, *target);
  ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, largest)}), 0);
  ASSERT_EQ(pair.b.post_receive(2, {target->sge(0, largest)}), 0);
  ASSERT_EQ(pair.a.send(1, {source->sge(0, largest)}), 0);
  // One part: the other end does not take the answer before its program polls.
  EXPECT_FALSE(pair.b.look());
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(pair.b.queue_pair->modify(error, IBV_QP_STATE), 0);
  for (const std::uint64_t expected : {1, 2}) {
    const ibv_wc completion = pair.b.await();
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, expected);
  }
}

}  // namespace
}  // namespace weft::device
