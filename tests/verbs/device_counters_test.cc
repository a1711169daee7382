// The counters of a device as a whole, as a program reads them.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

constexpr std::chrono::seconds timeout{60};

struct End {
  explicit End(const Context& device)
      : domain(device.create_domain()),
        queue(device.create_completion_queue(16)),
        region(domain.allocate<char>(4096, Access::all)),
        prepared(domain.queue_pair(queue, queue).access(Access::all).build()) {}

  void await() {
    std::array<Completion, 1> completions;
    const auto got = queue.wait(completions, timeout);
    ASSERT_EQ(got.size(), 1U);
    ASSERT_TRUE(got[0].ok()) << got[0].status_name();
  }

  ProtectionDomain domain;
  CompletionQueue queue;
  TypedRegion<char> region;
  PreparedQueuePair prepared;
  std::optional<QueuePair> connected;
};

struct Two {
  Two(const Context& of_a, const Context& of_b) : a(of_a), b(of_b) {
    const auto endpoint = a.prepared.endpoint();
    a.connected.emplace(std::move(a.prepared).handshake(b.prepared.endpoint()));
    b.connected.emplace(std::move(b.prepared).handshake(endpoint));
  }
  void write(std::size_t bytes) {
    ASSERT_EQ(a.connected->post_write(a.region.slice(0, bytes), b.region.remote(), 1), 0);
    a.await();
  }
  void send(std::size_t bytes) {
    ASSERT_EQ(b.connected->post_receive(b.region.slice(), 2), 0);
    ASSERT_EQ(a.connected->post_send(a.region.slice(0, bytes), 3), 0);
    a.await();
    b.await();
  }
  End a;
  End b;
};

void expect_traffic(const DeviceCounters& counted) {
  EXPECT_EQ(counted.queue_pairs.writes.operations, 3U);
  EXPECT_EQ(counted.queue_pairs.writes.bytes, 300U);
  EXPECT_EQ(counted.queue_pairs.sends.bytes, 20U);
  EXPECT_EQ(counted.queue_pairs.send_completions[IBV_WC_SUCCESS], 5U);
  EXPECT_EQ(counted.completion_queues.completions[IBV_WC_SUCCESS], 5U);
  EXPECT_EQ(counted.completion_queues.polled, 5U);
}

// Over both carriers.
void count_in(DeviceOptions::SameHost same_host) {
  const DeviceOptions options{.address = "127.0.0.1", .same_host = same_host};
  const Context device = open_own_device(options);
  const Context other = open_own_device(options);
  {
    Two first(device, other);
    first.write(100);
    first.send(10);
    Two second(device, other);
    second.write(100);
    second.write(100);
    second.send(10);
    const DeviceCounters counted = device.counters();
    expect_traffic(counted);
    EXPECT_EQ(counted.queue_pairs_created, 2U);
    EXPECT_EQ(counted.queue_pairs_destroyed, 0U);
    const DeviceCounters at_peer = other.counters();
    EXPECT_EQ(at_peer.queue_pairs.writes.operations, 0U);
    EXPECT_EQ(at_peer.queue_pairs.received.bytes, 20U);
    EXPECT_EQ(at_peer.queue_pairs.peer_writes.bytes, 300U);
  }
  const DeviceCounters counted = device.counters();
  expect_traffic(counted);
  EXPECT_EQ(counted.queue_pairs_destroyed, 2U);
  EXPECT_EQ(counted.completion_queues_created, 2U);
  EXPECT_EQ(counted.completion_queues_destroyed, 2U);
}

TEST(DeviceCounting, SumsOverAllQueuePairsOverTcp) {
  count_in(DeviceOptions::SameHost::off);
}

TEST(DeviceCounting, SumsOverAllQueuePairsWithinTheHost) {
  count_in(DeviceOptions::SameHost::automatic);
}

TEST(DeviceCounting, HasTheSharedDeviceToo) {
  setenv("WEFT_ADDR", "127.0.0.1", 1);
  const Context context = open_device({}, Backend::embedded);
  const Context again = open_device({}, Backend::embedded);
  const DeviceCounters before = context.counters();
  Two two(context, again);
  two.write(100);
  const DeviceCounters counted = again.counters();
  EXPECT_EQ(counted.queue_pairs.writes.bytes, before.queue_pairs.writes.bytes + 100);
  EXPECT_EQ(counted.queue_pairs_created, before.queue_pairs_created + 2) << "of both contexts";
}

TEST(DeviceCounting, HasFaultsAndTheLink) {
  const DeviceOptions faulty{.address = "127.0.0.1", .faults = "ENOMEM at reg-mr nth=2"};
  const Context device = open_own_device(faulty);
  const auto domain = device.create_domain();
  (void)domain.allocate<char>(64);
  EXPECT_EQ(device.counters().faults, 0U);
  EXPECT_THROW((void)domain.allocate<char>(64), Error);
  EXPECT_EQ(device.counters().faults, 1U);
  const DeviceOptions slow{.address = "127.0.0.1", .link = "latency=50us"};
  const Context far = open_own_device(slow);
  const Context other = open_own_device({.address = "127.0.0.1"});
  Two two(far, other);
  two.write(100);
  EXPECT_GT(far.counters().link.delayed_bytes, 100U);
  EXPECT_EQ(other.counters().link.delayed_bytes, 0U);
}

}  // namespace
}  // namespace weft::verbs
