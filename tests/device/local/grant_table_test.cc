// The regions of a context as its peers on this host see them.
#include "device/local/grant_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "device/memory/special_memory.h"

namespace weft::device {
namespace {

constexpr std::uint32_t domain = 4;
constexpr std::uint32_t stag = 0x00012301;

class Grants : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(table_.open());
    view_ = GrantView(
        SharedMemory::open(sys::Descriptor(dup(table_.read_only_file())), grants::bytes, false),
        SharedMemory::open(sys::Descriptor(dup(table_.count_file())), grants::count_bytes, true));
  }

  static void fill(Region& region, std::uint32_t number, std::uint64_t iova = 0x10000) {
    region.stag = number;
    region.domain = domain;
    region.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    region.iova = iova;
    region.base = reinterpret_cast<std::byte*>(0x7000'0000);
    region.length_bytes = 100;
  }

  static GrantView::Access access(std::uint32_t number, std::uint64_t offset = 0x10000,
                                  std::uint64_t length_bytes = 100) {
    return {.stag = number,
            .domain = domain,
            .offset = offset,
            .length_bytes = length_bytes,
            .needed = IBV_ACCESS_REMOTE_WRITE};
  }

  GrantTable table_;
  GrantView view_;
};

TEST_F(Grants, AreFoundWhileTheyArePublished) {
  Region region;
  fill(region, stag);
  EXPECT_FALSE(view_.look_up(access(stag)).known);
  table_.publish(region);
  const auto found = view_.look_up(access(stag, 0x10010, 84));
  EXPECT_TRUE(found.known);
  EXPECT_EQ(found.fault, iwarp::Fault::none);
  EXPECT_EQ(found.address, 0x7000'0010U);
  table_.withdraw(region);
  EXPECT_FALSE(view_.look_up(access(stag)).known);
}

// A refusal is never based on what is remembered; what is granted by it is looked at once more.
TEST_F(Grants, AreRememberedUntilTheyChange) {
  Region region;
  fill(region, stag);
  table_.publish(region);
  GrantView::Known known;
  EXPECT_EQ(view_.look_up(access(stag), known).fault, iwarp::Fault::none);
  table_.withdraw(region);
  const auto stale = view_.look_up(access(stag), known);
  EXPECT_TRUE(stale.known);
  EXPECT_FALSE(view_.still_there(stale));
  EXPECT_FALSE(view_.look_up(access(stag, 0x10001), known).known);
  region.length_bytes = 200;
  table_.publish(region);
  EXPECT_EQ(view_.look_up(access(stag, 0x10000, 200), known).fault, iwarp::Fault::none);
  EXPECT_EQ(view_.look_up(access(stag, 0x10000, 201), known).fault, iwarp::Fault::bounds);
  EXPECT_FALSE(view_.look_up(access(0, 0, 0), known).known);
}

TEST_F(Grants, CountNothingForARegionThatHasEnded) {
  Region region;
  fill(region, stag);
  table_.publish(region);
  const auto found = view_.look_up(access(stag));
  const Traffic once{.operations = 1, .bytes = 8};
  view_.count(found.place, found.generation, iwarp::RemoteRight::write, once);
  EXPECT_EQ(table_.counters(region).peer_writes.operations, 1U);
  table_.withdraw(region);
  Region next;
  fill(next, stag);
  table_.publish(next);
  view_.count(found.place, found.generation, iwarp::RemoteRight::write, once);
  EXPECT_EQ(table_.counters(next).peer_writes.operations, 0U);
}

TEST_F(Grants, AreFoundByTheirWholeStag) {
  Region region;
  fill(region, stag);
  table_.publish(region);
  EXPECT_FALSE(view_.look_up(access(stag ^ 1)).known) << "the consumer's key";
  EXPECT_FALSE(view_.look_up(access(stag ^ 0x100)).known);
  EXPECT_FALSE(view_.look_up(access(0)).known);
}

TEST_F(Grants, AreCheckedInTheOrderOfTheDevice) {
  using iwarp::Fault;
  Region region;
  fill(region, stag);
  table_.publish(region);
  auto foreign = access(stag, 0, 1000);
  foreign.domain = domain + 1;
  foreign.needed = IBV_ACCESS_REMOTE_READ;
  EXPECT_EQ(view_.look_up(foreign).fault, Fault::foreign_domain);
  foreign.domain = domain;
  EXPECT_EQ(view_.look_up(foreign).fault, Fault::access);
  EXPECT_EQ(view_.look_up(access(stag, UINT64_MAX, 2)).fault, Fault::wrap);
  EXPECT_EQ(view_.look_up(access(stag, 0x10001, 100)).fault, Fault::bounds);
  EXPECT_EQ(view_.look_up(access(stag, 0xFFFF, 1)).fault, Fault::bounds);
  EXPECT_EQ(view_.look_up(access(stag, 0x10065, 0)).fault, Fault::bounds);
  EXPECT_EQ(view_.look_up(access(stag, 0x10000, 101)).fault, Fault::bounds);
  EXPECT_EQ(view_.look_up(access(stag, 0x10064, 0)).fault, Fault::none);
}

TEST_F(Grants, LeaveOutWhatNeedsTheDevice) {
  Region null;
  fill(null, stag);
  NullMemory memory;
  null.null = &memory;
  table_.publish(null);
  EXPECT_FALSE(view_.look_up(access(stag)).known);
  Region on_demand;
  fill(on_demand, stag);
  on_demand.access |= IBV_ACCESS_ON_DEMAND;
  table_.publish(on_demand);
  EXPECT_FALSE(view_.look_up(access(stag)).known);
  Region invalidated;
  fill(invalidated, stag);
  invalidated.remote_valid = false;
  table_.publish(invalidated);
  EXPECT_FALSE(view_.look_up(access(stag)).known);
}

TEST_F(Grants, AreCountedByPeersAndKeptByTheirRegion) {
  Region region;
  fill(region, stag);
  table_.publish(region);
  const auto found = view_.look_up(access(stag));
  view_.count(found.place, found.generation, iwarp::RemoteRight::write,
              {.operations = 1, .bytes = 100});
  view_.count(found.place, found.generation, iwarp::RemoteRight::write,
              {.operations = 1, .bytes = 50});
  view_.count(found.place, found.generation, iwarp::RemoteRight::read,
              {.operations = 1, .bytes = 7});
  for (int i = 0; i < 2; ++i) {
    const MemoryRegionCounters counted = table_.counters(region);
    EXPECT_EQ(counted.peer_writes.operations, 2U);
    EXPECT_EQ(counted.peer_writes.bytes, 150U);
    EXPECT_EQ(counted.peer_reads.operations, 1U);
    EXPECT_EQ(counted.peer_reads.bytes, 7U);
    table_.withdraw(region);  // the second time there is nothing to withdraw
  }
  Region next;
  fill(next, stag);
  table_.publish(next);
  EXPECT_EQ(table_.counters(next).peer_writes.operations, 0U);
}

TEST_F(Grants, ThatChangedAreNotStillThere) {
  Region region;
  fill(region, stag);
  table_.publish(region);
  const auto found = view_.look_up(access(stag));
  EXPECT_TRUE(view_.still_there(found));
  table_.withdraw(region);
  EXPECT_FALSE(view_.still_there(found));
  region.base += 4096;
  table_.publish(region);
  EXPECT_FALSE(view_.still_there(found)) << "the same STag, another place";
  EXPECT_TRUE(view_.still_there(view_.look_up(access(stag))));
}

// Regions whose STags point to one place share the neighbourhood; one too many finds no place, and
// comes in where another leaves.
TEST_F(Grants, FillANeighbourhoodAndNoMore) {
  const auto number = [](std::size_t i) {
    return static_cast<std::uint32_t>(((i * grants::entries + 5) << 8) | 1);
  };
  std::vector<std::unique_ptr<Region>> regions;
  for (std::size_t i = 0; i <= grants::reach; ++i) {
    regions.push_back(std::make_unique<Region>());
    fill(*regions.back(), number(i), 0x10000 * (i + 1));
    table_.publish(*regions.back());
  }
  for (std::size_t i = 0; i < grants::reach; ++i) {
    const auto found = view_.look_up(access(number(i), 0x10000 * (i + 1)));
    EXPECT_TRUE(found.known && found.fault == iwarp::Fault::none) << i;
  }
  EXPECT_FALSE(view_.look_up(access(number(grants::reach))).known);
  table_.withdraw(*regions[3]);
  EXPECT_FALSE(view_.look_up(access(number(3))).known);
  EXPECT_TRUE(view_.look_up(access(number(4))).known) << "behind a free place";
  table_.publish(*regions[grants::reach]);
  EXPECT_TRUE(view_.look_up(access(number(grants::reach))).known);
}

TEST_F(Grants, AtTheEndOfTheTableGoOnAtItsStart) {
  const auto number = [](std::size_t i) {
    return static_cast<std::uint32_t>(((i * grants::entries + grants::entries - 1) << 8) | 1);
  };
  Region regions[3];
  for (std::size_t i = 0; i < 3; ++i) {
    fill(regions[i], number(i));
    table_.publish(regions[i]);
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(view_.look_up(access(number(i))).known);
}

// A place that changes hands while it is read gives one region or the other, never parts of both.
TEST_F(Grants, AreNeverSeenHalf) {
  std::atomic<bool> stop{false};
  std::thread owner([&] {
    Region small;
    Region large;
    fill(small, stag);
    fill(large, stag ^ (grants::entries << 8), 0x8000'0000);
    large.base = reinterpret_cast<std::byte*>(0x9000'0000);
    large.length_bytes = std::uint64_t{1} << 40;
    while (!stop) {
      table_.publish(small);
      table_.withdraw(small);
      table_.publish(large);
      table_.withdraw(large);
    }
  });
  for (int i = 0; i < 300'000; ++i) {
    const auto found = view_.look_up(access(stag));
    if (!found.known) continue;
    ASSERT_EQ(found.fault, iwarp::Fault::none);
    ASSERT_EQ(found.address, 0x7000'0000U);
  }
  stop = true;
  owner.join();
}

TEST(GrantTable, WithoutMemoryDoesNothing) {
  GrantTable table;
  Region region;
  EXPECT_FALSE(table.is_open());
  table.publish(region);
  table.withdraw(region);
}

}  // namespace
}  // namespace weft::device
