// Regions in memory that the devices of both processes can map.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "support/needs.h"
#include "verbs/pair.h"

namespace weft::verbs::testing {
namespace {

TEST(SharedRegion, IsWrittenReadAndAddedTo) {
  Pair pair;
  if (!test::has_atomics(pair.a->context)) GTEST_SKIP() << "the device has no atomics";
  End& a = *pair.a;
  End& b = *pair.b;
  const auto shared = b.domain.allocate_shared<std::uint64_t>(5000, Access::all);
  EXPECT_TRUE(std::ranges::all_of(shared.elements(), [](std::uint64_t word) { return word == 0; }));
  std::ranges::fill(a.region.elements(), std::uint8_t{1});
  const RemoteSlice there = shared.remote();
  ASSERT_EQ(a.queue_pair.post_write(a.region.slice(0, 64), there.slice(8, 64), 1), 0);
  ASSERT_EQ(a.queue_pair.post_fetch_and_add(a.region.slice(64, 8), there.slice(8, 8), 1, 2), 0);
  ASSERT_EQ(a.queue_pair.post_compare_and_swap(a.region.slice(72, 8), there.slice(16, 8),
                                               0x0101010101010101, 7, 3),
            0);
  ASSERT_EQ(a.queue_pair.post_read(a.region.slice(80, 32), there.slice(0, 32), 4), 0);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(a.await().ok());
  const std::array<std::uint64_t, 4> expected{0, 0x0101010101010102, 7, 0x0101010101010101};
  EXPECT_TRUE(std::ranges::equal(shared.elements().first(4), expected));
  const auto bytes = std::as_bytes(std::span(expected));
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(a.region.elements().subspan(80, 32)), bytes));
  if (a.context.backend() != Backend::embedded) return;  // only this device has counters
  const MemoryRegionCounters counted = shared.counters();
  EXPECT_EQ(counted.peer_writes.bytes, 64U);
  EXPECT_EQ(counted.peer_reads.bytes, 32U);
  EXPECT_EQ(counted.peer_atomics.operations, 2U);
}

// Sends below and above what fits into the ring between the processes, gathered from two pieces,
// and scattered to one and to two receive buffers.
TEST(SharedRegion, ReceivesGetExactlyTheBytesOfASend) {
  Pair pair;
  End& a = *pair.a;
  End& b = *pair.b;
  const auto from = a.domain.allocate<std::uint8_t>(100'000);
  for (std::size_t i = 0; i < from.elements().size(); ++i) {
    from[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + 1);
  }
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{4097},
                                  std::size_t{8192}, std::size_t{99'999}}) {
    for (const bool scattered : {false, true}) {
      const auto shared = b.domain.allocate_shared<std::uint8_t>(bytes + 2, Access::local);
      const std::size_t cut = scattered ? bytes / 2 : 0;
      std::vector<LocalSlice> buffers{shared.slice(1 + cut, bytes - cut)};
      if (cut > 0) buffers.insert(buffers.begin(), shared.slice(1, cut));
      ASSERT_EQ(b.queue_pair.post_receive(buffers, 1), 0);
      const std::array pieces{from.slice(0, bytes / 3), from.slice(bytes / 3, bytes - bytes / 3)};
      ASSERT_EQ(a.queue_pair.post_send(pieces, 2), 0);
      ASSERT_TRUE(a.await().ok()) << bytes;
      const Completion got = b.await();
      ASSERT_TRUE(got.ok()) << bytes;
      EXPECT_EQ(got.size_bytes(), bytes);
      EXPECT_TRUE(
          std::ranges::equal(shared.elements().subspan(1, bytes), from.elements().first(bytes)))
          << bytes;
      EXPECT_EQ(shared[0], 0) << "a byte in front of the receive";
      EXPECT_EQ(shared[bytes + 1], 0) << "a byte behind the receive";
    }
  }
}

// A receive whose memory was deregistered is refused, and no byte of the Send reaches the memory.
TEST(SharedRegion, ASendReachesNoReceiveThatIsDeregistered) {
  Pair pair;
  End& a = *pair.a;
  End& b = *pair.b;
  const auto from = a.domain.allocate<std::uint8_t>(20'000);
  std::ranges::fill(from.elements(), std::uint8_t{1});
  auto shared = std::optional(b.domain.allocate_shared<std::uint8_t>(20'000, Access::local));
  ASSERT_EQ(b.queue_pair.post_receive(shared->slice(), 1), 0);
  ASSERT_EQ(a.queue_pair.post_send(from.slice(), 2), 0);
  ASSERT_TRUE(a.await().ok());  // this one has made the mapping
  ASSERT_TRUE(b.await().ok());
  const LocalSlice gone = shared->slice();
  shared.reset();
  ASSERT_EQ(b.queue_pair.post_receive(gone, 3), 0);
  ASSERT_EQ(a.queue_pair.post_send(from.slice(), 4), 0);
  const auto refused = b.await().status();
  EXPECT_NE(refused, IBV_WC_SUCCESS);
  // The kernel's siw has another status for it, and completes the Send when TCP has delivered it.
  if (a.context.backend() != Backend::embedded) return;
  EXPECT_EQ(refused, IBV_WC_LOC_PROT_ERR);
  EXPECT_FALSE(a.await().ok());
}

// A list is carried out in its order, also where one Write goes to ordinary memory.
TEST(SharedRegion, AListOfWritesKeepsItsOrder) {
  Pair pair;
  End& a = *pair.a;
  End& b = *pair.b;
  const auto shared = b.domain.allocate_shared<std::uint8_t>(4096, Access::all);
  constexpr unsigned count = 48;
  std::array<ibv_sge, count> pieces{};
  std::array<ibv_send_wr, count> list{};
  for (unsigned i = 0; i < count; ++i) {
    a.region[i] = static_cast<std::uint8_t>(i + 1);
    const RemoteSlice there = i % 3 == 0 ? b.region.remote() : shared.remote();
    pieces[i] = {reinterpret_cast<std::uint64_t>(&a.region[i]), 1, a.region.lkey()};
    list[i].wr_id = i;
    list[i].sg_list = &pieces[i];
    list[i].num_sge = 1;
    list[i].opcode = IBV_WR_RDMA_WRITE;
    list[i].send_flags = IBV_SEND_SIGNALED;
    list[i].wr.rdma.remote_addr = there.address();
    list[i].wr.rdma.rkey = there.rkey();
    list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.queue_pair.raw(), list.data(), &bad), 0);
  for (unsigned i = 0; i < count; ++i) {
    const Completion done = a.await();
    ASSERT_TRUE(done.ok());
    ASSERT_EQ(done.id(), i);
  }
  EXPECT_EQ(shared[0], count);
  EXPECT_EQ(b.region[0], count - 2);
}

// The accesses of a list are counted together.
TEST(SharedRegion, CountsEachAccessOfAListToItsRegion) {
  Pair pair;
  End& a = *pair.a;
  End& b = *pair.b;
  if (a.context.backend() != Backend::embedded) GTEST_SKIP() << "only this device has counters";
  const auto first = b.domain.allocate_shared<std::uint8_t>(4096, Access::all);
  const auto second = b.domain.allocate_shared<std::uint8_t>(4096, Access::all);
  constexpr unsigned count = 20;
  ibv_sge piece{reinterpret_cast<std::uint64_t>(&a.region[0]), 16, a.region.lkey()};
  std::array<ibv_send_wr, count> list{};
  for (unsigned i = 0; i < count; ++i) {
    const RemoteSlice there = i % 4 == 0 ? second.remote() : first.remote();
    list[i].sg_list = &piece;
    list[i].num_sge = 1;
    list[i].opcode = i % 5 == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    list[i].wr.rdma.remote_addr = there.address();
    list[i].wr.rdma.rkey = there.rkey();
    list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
  }
  list.back().send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.queue_pair.raw(), list.data(), &bad), 0);
  ASSERT_TRUE(a.await().ok());
  EXPECT_EQ(first.counters().peer_writes.operations, 12U);
  EXPECT_EQ(first.counters().peer_reads.operations, 3U);
  EXPECT_EQ(second.counters().peer_writes.operations, 4U);
  EXPECT_EQ(second.counters().peer_reads.operations, 1U);
  EXPECT_EQ(first.counters().peer_writes.bytes, 12U * 16);
}

enum class Wrong { right, bounds, domain, deregistered };

class RefusedAccess : public ::testing::TestWithParam<Wrong> {};

TEST_P(RefusedAccess, IsARemoteAccessError) {
  Pair pair;
  WEFT_NEEDS_PEER_ERRORS(pair.a->context);
  End& a = *pair.a;
  End& b = *pair.b;
  const auto foreign = b.context.create_domain();
  const Wrong wrong = GetParam();
  const Access access = wrong == Wrong::right ? Access::remote_read : Access::all;
  std::optional shared =
      (wrong == Wrong::domain ? foreign : b.domain).allocate_shared<std::uint8_t>(4096, access);
  const RemoteSlice there = shared->remote();
  // Mapped by an access that is allowed.
  if (wrong == Wrong::right || wrong == Wrong::deregistered) {
    ASSERT_EQ(a.queue_pair.post_read(a.region.slice(0, 8), there.slice(0, 8), 1), 0);
    ASSERT_TRUE(a.await().ok());
  }
  if (wrong == Wrong::deregistered) shared.reset();
  const RemoteSlice target = wrong == Wrong::bounds
                                 ? RemoteSlice(there.address() + 4090, 8, there.rkey())
                                 : there.slice(0, 8);
  ASSERT_EQ(a.queue_pair.post_write(a.region.slice(0, 8), target, 2), 0);
  EXPECT_EQ(a.await().status(), IBV_WC_REM_ACCESS_ERR);
}

INSTANTIATE_TEST_SUITE_P(SharedRegion, RefusedAccess,
                         ::testing::Values(Wrong::right, Wrong::bounds, Wrong::domain,
                                           Wrong::deregistered));

}  // namespace
}  // namespace weft::verbs::testing
