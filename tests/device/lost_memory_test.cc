// Memory that is unmapped, or made read-only, while it is registered: the request that uses it
// fails, and nothing else happens. free(3) before ibv_dereg_mr(3) is a common mistake.
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/fault_handler.h"
#include "device/datagram_end.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

// Registered pages of their own.
class LostMemory {
 public:
  LostMemory(End& end, std::size_t bytes)
      : end_(end),
        bytes_(bytes),
        at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        mr_(end.context.register_memory(*end.domain, at_, bytes,
                                        reinterpret_cast<std::uint64_t>(at_), all_access)) {}
  ~LostMemory() {
    end_.context.deregister_memory(mr_);
    ::munmap(at_, bytes_);
  }
  LostMemory(const LostMemory&) = delete;
  LostMemory& operator=(const LostMemory&) = delete;

  // PROT_NONE stands for munmap(2): it faults in the same way, and nothing else takes the place.
  void lose(bool read_only) { ::mprotect(at_, bytes_, read_only ? PROT_READ : PROT_NONE); }

  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(at_); }
  [[nodiscard]] std::uint32_t rkey() const { return mr_->rkey; }
  [[nodiscard]] ibv_sge sge(std::size_t bytes) const {
    return {address(), static_cast<std::uint32_t>(bytes), mr_->lkey};
  }

 private:
  End& end_;
  std::size_t bytes_;
  void* at_;
  ibv_mr* mr_;
};

struct Case {
  std::size_t bytes = 64;
  bool read_only = false;
  bool crc = true;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& test = info.param;
  return std::to_string(test.bytes) + (test.read_only ? "_read_only" : "_unmapped") +
         (test.crc ? "_crc" : "_plain");
}

class LostMemoryOf : public testing::TestWithParam<Case> {
 protected:
  LostMemoryOf() : pair_(options()) {}

  static PairOptions options() {
    PairOptions options;
    options.settings.crc = GetParam().crc;
    return options;
  }
  [[nodiscard]] static std::size_t bytes() { return GetParam().bytes; }

  // Which of two statuses is right depends on which side notices.
  void expect_failure(ibv_wc_status one, ibv_wc_status other) {
    const ibv_wc completion = pair_.a.await();
    EXPECT_TRUE(completion.status == one || completion.status == other) << completion.status;
    EXPECT_EQ(completion.wr_id, 2U);
  }

  Pair pair_;
};

TEST_P(LostMemoryOf, TargetOfAWrite) {
  auto local = pair_.a.buffer(bytes());
  LostMemory remote(pair_.b, bytes());
  ASSERT_EQ(pair_.a.write(1, {local->sge(0, bytes())}, remote.address(), remote.rkey()), 0);
  ASSERT_EQ(pair_.a.await().status, IBV_WC_SUCCESS);
  remote.lose(GetParam().read_only);
  ASSERT_EQ(pair_.a.write(2, {local->sge(0, bytes())}, remote.address(), remote.rkey()), 0);
  expect_failure(IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR);
}

TEST_P(LostMemoryOf, SourceOfARead) {
  auto local = pair_.a.buffer(bytes());
  LostMemory remote(pair_.b, bytes());
  remote.lose(GetParam().read_only);
  ASSERT_EQ(pair_.a.read(2, {local->sge(0, bytes())}, remote.address(), remote.rkey()), 0);
  if (GetParam().read_only) {
    EXPECT_EQ(pair_.a.await().status, IBV_WC_SUCCESS);
  } else {
    EXPECT_NE(pair_.a.await().status, IBV_WC_SUCCESS);
  }
}

TEST_P(LostMemoryOf, TargetOfAnAtomic) {
  auto local = pair_.a.buffer(8);
  LostMemory remote(pair_.b, bytes());
  remote.lose(GetParam().read_only);
  ibv_send_wr request{};
  request.wr_id = 2;
  request.send_flags = IBV_SEND_SIGNALED;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic = {remote.address(), 2, 0, remote.rkey()};
  ASSERT_EQ(pair_.a.post(request, {local->sge(0, 8)}), 0);
  expect_failure(IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR);
}

TEST_P(LostMemoryOf, AReceive) {
  auto local = pair_.a.buffer(bytes());
  LostMemory remote(pair_.b, bytes());
  ASSERT_EQ(pair_.b.post_receive(7, {remote.sge(bytes())}), 0);
  remote.lose(GetParam().read_only);
  ASSERT_EQ(pair_.a.send(2, {local->sge(0, bytes())}), 0);
  if (carrier_is_local()) {
    // Small payload is placed by the receiver, when the sender is done; large payload by the
    // sender, which fails.
    EXPECT_NE(pair_.b.await().status, IBV_WC_SUCCESS);
    return;
  }
  expect_failure(IBV_WC_REM_OP_ERR, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(pair_.b.await().status, IBV_WC_LOC_PROT_ERR);
}

TEST_P(LostMemoryOf, SinkOfARead) {
  LostMemory local(pair_.a, bytes());
  auto remote = pair_.b.buffer(bytes());
  local.lose(GetParam().read_only);
  ASSERT_EQ(pair_.a.read(2, {local.sge(bytes())}, remote->address(), remote->rkey()), 0);
  expect_failure(IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
}

TEST_P(LostMemoryOf, SinkOfAnAtomic) {
  LostMemory local(pair_.a, bytes());
  auto remote = pair_.b.buffer(8);
  local.lose(GetParam().read_only);
  ibv_send_wr request{};
  request.wr_id = 2;
  request.send_flags = IBV_SEND_SIGNALED;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic = {remote->address(), 2, 0, remote->rkey()};
  ASSERT_EQ(pair_.a.post(request, {local.sge(8)}), 0);
  expect_failure(IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
}

TEST_P(LostMemoryOf, SourceOfASend) {
  LostMemory local(pair_.a, bytes());
  auto remote = pair_.b.buffer(bytes());
  ASSERT_EQ(pair_.b.post_receive(7, {remote->sge(0, bytes())}), 0);
  local.lose(GetParam().read_only);
  ASSERT_EQ(pair_.a.send(2, {local.sge(bytes())}), 0);
  if (GetParam().read_only) {
    EXPECT_EQ(pair_.a.await().status, IBV_WC_SUCCESS);
  } else {
    expect_failure(IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
  }
}

TEST_P(LostMemoryOf, SourceOfAWrite) {
  LostMemory local(pair_.a, bytes());
  auto remote = pair_.b.buffer(bytes());
  local.lose(GetParam().read_only);
  ASSERT_EQ(pair_.a.write(2, {local.sge(bytes())}, remote->address(), remote->rkey()), 0);
  if (GetParam().read_only) {
    EXPECT_EQ(pair_.a.await().status, IBV_WC_SUCCESS);
  } else {
    expect_failure(IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LostMemoryOf,
                         testing::Values(Case{64}, Case{64, true}, Case{64, false, false},
                                         Case{64, true, false}, Case{4096}, Case{4096, true},
                                         Case{1 << 20}, Case{1 << 20, true},
                                         Case{1 << 20, false, false}, Case{1 << 20, true, false}),
                         name_of);

// A message that was held is placed long after it arrived.
TEST(LostMemory, AReceiveForAHeldMessage) {
  SKIP_WITHOUT_TCP("the hold is of the stream");
  PairOptions options;
  options.hold_bytes = 1 << 16;
  options.weft_peers = true;
  Pair pair(options);
  auto local = pair.a.buffer(64);
  LostMemory remote(pair.b, 64);
  remote.lose(false);
  ASSERT_EQ(pair.a.send(2, {local->sge(0, 64)}), 0);
  ASSERT_EQ(pair.b.post_receive(7, {remote.sge(64)}), 0);
  EXPECT_EQ(pair.b.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_OP_ERR);
}

// Without CRCs large payload is sent from its place. Deregistration copies what TCP has not taken.
TEST(LostMemory, IsDeregisteredWhileItIsStillSent) {
  SKIP_WITHOUT_TCP("only TCP sends later");
  PairOptions options;
  options.settings.crc = false;
  Pair pair(options);
  constexpr std::size_t large = 64 << 20;  // more than TCP's buffers take
  auto remote = pair.b.buffer(large);
  {
    LostMemory local(pair.a, large);
    ASSERT_EQ(pair.a.write(2, {local.sge(large)}, remote->address(), remote->rkey()), 0);
    local.lose(false);
  }
  EXPECT_NE(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);  // in time or not, but a result of its own
}

extern "C" void on_own_fault(int) {
  ::_exit(99);
}

// The handler of the program is there for the faults of the program.
TEST(LostMemory, FailsAlsoUnderAHandlerThatTheProgramInstallsLater) {
  Pair pair;
  // The run may have a filter of system calls (same_host_of_run()). Without this call the handler
  // of the program gets the signal.
  if (process_vm_readv(getpid(), nullptr, 0, nullptr, 0, 0) != 0) {
    GTEST_SKIP() << "process_vm_readv is refused";
  }
  auto local = pair.a.buffer(64);
  LostMemory remote(pair.b, 64);
  struct sigaction own {};
  own.sa_handler = on_own_fault;
  struct sigaction before {};
  ::sigaction(SIGSEGV, &own, &before);
  recheck_faults(sys::now_ns() + 1'000'000'000);
  remote.lose(false);
  ASSERT_EQ(pair.a.write(2, {local->sge(0, 64)}, remote.address(), remote.rkey()), 0);
  EXPECT_NE(pair.a.await().status, IBV_WC_SUCCESS);
  ::sigaction(SIGSEGV, &before, nullptr);
  recheck_faults(sys::now_ns() + 2'000'000'000);
}

}  // namespace
}  // namespace weft::device
