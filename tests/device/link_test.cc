// A slower network under the queue pairs of a device (Settings::link).
#include <algorithm>
#include <chrono>

#include "device/datagram_end.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds latency{20};
constexpr std::size_t size = 4096;

PairOptions slow(faults::Link link, ProgressMode progress = ProgressMode::automatic) {
  PairOptions options;
  options.settings.address = "127.0.0.1";
  options.settings.link = link;
  options.settings.progress.mode = progress;
  return options;
}

faults::Link late() {
  return {.latency_ns = std::chrono::nanoseconds(latency).count(), .seed = 1};
}

// Both ends are of one device, so a byte waits twice in each direction.
TEST(Link, DelaysAWriteAndItsProof) {
  Pair pair(slow(late()));
  auto local = pair.a.buffer(size);
  auto remote = pair.b.buffer(size);
  local->fill(7);
  const auto begin = steady_clock::now();
  ASSERT_EQ(pair.a.write(1, {local->sge(0, size)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  EXPECT_GE(steady_clock::now() - begin, 4 * latency);
  EXPECT_TRUE(remote->holds(7, 0, size));
  EXPECT_GT(pair.device->link()->counters().delayed_bytes, 4 * size / 2);
}

TEST(Link, DelaysASend) {
  Pair pair(slow(late()));
  auto local = pair.a.buffer(size);
  auto remote = pair.b.buffer(size);
  local->fill(7);
  ASSERT_EQ(pair.b.post_receive(2, {remote->sge(0, size)}), 0);
  const auto begin = steady_clock::now();
  ASSERT_EQ(pair.a.send(1, {local->sge(0, size)}), 0);
  EXPECT_EQ(pair.b.await().status, IBV_WC_SUCCESS);
  EXPECT_GE(steady_clock::now() - begin, 2 * latency);
  EXPECT_TRUE(remote->holds(7, 0, size));
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
}

// The progress thread alone moves what the link has delayed.
TEST(Link, NeedsNoCallOfTheApplication) {
  Pair pair(slow(late(), ProgressMode::thread));
  auto local = pair.a.buffer(size);
  auto remote = pair.b.buffer(size);
  local->fill(7);
  ASSERT_EQ(pair.a.read(1, {local->sge(0, size)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
}

TEST(Link, CarriesMuchInOrder) {
  Pair pair(slow({.latency_ns = 100'000, .jitter_ns = 200'000, .seed = 3}));
  constexpr std::size_t large = std::size_t{4} << 20;
  auto local = pair.a.buffer(large);
  auto remote = pair.b.buffer(large);
  for (std::uint8_t round = 1; round <= 8; ++round) {
    local->fill(round);
    ASSERT_EQ(pair.a.write(round, {local->sge(0, large)}, remote->address(), remote->rkey()), 0);
    const ibv_wc done = pair.a.await();
    ASSERT_EQ(done.status, IBV_WC_SUCCESS);
    ASSERT_EQ(done.wr_id, round);
    ASSERT_TRUE(remote->holds(round, 0, large));
  }
}

// At 80 Mbit/s, 1 MiB takes more than 100 ms.
TEST(Link, HasARate) {
  Pair pair(slow({.bits_per_second = 80'000'000}));
  constexpr std::size_t large = std::size_t{1} << 20;
  auto local = pair.a.buffer(large);
  auto remote = pair.b.buffer(large);
  const auto begin = steady_clock::now();
  ASSERT_EQ(pair.a.write(1, {local->sge(0, large)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(100));
}

TEST(Link, StallsWhereASegmentIsLost) {
  Pair pair(slow({.loss = 0.5, .seed = 1}));
  constexpr std::size_t large = 4 * 1448;
  auto local = pair.a.buffer(large);
  auto remote = pair.b.buffer(large);
  const auto begin = steady_clock::now();
  ASSERT_EQ(pair.a.write(1, {local->sge(0, large)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(200));
  EXPECT_GT(pair.device->link()->counters().stalls, 0U);
}

TEST(Link, KeepsConnectionsOnTcp) {
  if (!carrier_is_local()) GTEST_SKIP() << "TCP is all that this run permits";
  Pair pair(slow(late()));
  const CarrierNote note = pair.a.queue_pair->carrier_note();
  EXPECT_EQ(note.name, "tcp");
  EXPECT_EQ(note.reason, "a link delays TCP connections");
}

class DatagramsOnALink : public ::testing::Test {
 protected:
  void open(faults::Link link) {
    device = std::move(*Device::create(slow(link).settings));
    a = std::make_unique<DatagramEnd>(*device);
    b = std::make_unique<DatagramEnd>(*device);
    source = a->buffer(size);
    sink = b->buffer(grh_bytes + size);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<DatagramEnd> a;
  std::unique_ptr<DatagramEnd> b;
  std::unique_ptr<Buffer> source;
  std::unique_ptr<Buffer> sink;
};

TEST_F(DatagramsOnALink, AreLate) {
  open(late());
  source->fill(5);
  ASSERT_EQ(b->post_receive(1, {sink->sge(0, grh_bytes + size)}), 0);
  const auto begin = steady_clock::now();
  ASSERT_EQ(a->send_to(*b, {source->sge(0, 1000)}), 0);
  EXPECT_EQ(b->await().status, IBV_WC_SUCCESS);
  EXPECT_GE(steady_clock::now() - begin, 2 * latency);
  EXPECT_TRUE(
      std::ranges::equal(sink->bytes().subspan(grh_bytes, 1000), source->bytes().subspan(0, 1000)));
}

// Each datagram passes the link twice, and half are lost each time.
TEST_F(DatagramsOnALink, AreLost) {
  open({.loss = 0.5, .seed = 4});
  constexpr int count = 60;
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(b->post_receive(1, {sink->sge(0, grh_bytes + size)}), 0);
  }
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(a->send_to(*b, {source->sge(0, 100)}), 0);
    EXPECT_EQ(a->await().status, IBV_WC_SUCCESS);
  }
  const auto& counters = device->link()->counters();
  int arrived = 0;
  while (arrived + static_cast<int>(counters.lost_datagrams) < count) {
    if (b->look()) ++arrived;
  }
  EXPECT_GT(arrived, 2);
  EXPECT_GT(counters.lost_datagrams, 20U);
}

// A program may exit after its last completion (Process::begin_link()).
TEST_F(DatagramsOnALink, LeaveAtOnceAtTheEnd) {
  open({.latency_ns = 50'000'000'000});
  const auto other = std::move(*Device::create(slow({}).settings));
  DatagramEnd receiver(*other);
  auto target = receiver.buffer(grh_bytes + size);
  ASSERT_EQ(receiver.post_receive(1, {target->sge(0, grh_bytes + size)}), 0);
  ASSERT_EQ(a->send_to(receiver, {source->sge(0, 10)}), 0);
  EXPECT_EQ(a->await().status, IBV_WC_SUCCESS);
  device->datagrams().send_delayed();
  EXPECT_EQ(receiver.await().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace weft::device
