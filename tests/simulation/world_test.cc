// Devices in memory, with queue pairs that are connected by their endpoints.
#include "weft/simulation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "weft/verbs.hpp"

namespace weft::simulation {
namespace {

using namespace std::chrono_literals;
using verbs::Access;
using verbs::Completion;

// One queue pair of a device of its own.
struct End {
  End(const Host& host, const DeviceOptions& options = {}, std::uint8_t rnr_retry = 6,
      std::uint8_t timeout = 14)
      : context(host.open(options)),
        domain(context.create_domain()),
        queue(context.create_completion_queue(256)),
        region(domain.allocate<std::uint64_t>(1024, Access::all)),
        prepared(domain.queue_pair(queue, queue)
                     .max_send_requests(64)
                     .max_receive_requests(64)
                     .access(Access::all)
                     .rnr_retry(rnr_retry)
                     .timeout(timeout)
                     .build()),
        endpoint(prepared.endpoint()) {}

  void connect(const verbs::Endpoint& peer) { pair.emplace(std::move(prepared).handshake(peer)); }
  [[nodiscard]] verbs::RemoteSlice element(std::size_t at) const {
    return region.remote().slice(at * sizeof(std::uint64_t), sizeof(std::uint64_t));
  }
  // Writes element `at` to the same place of the peer.
  [[nodiscard]] int write(const End& peer, std::size_t at, std::uint64_t id) {
    return pair->post_write(region.slice(at, 1), peer.element(at), id);
  }

  verbs::Context context;
  verbs::ProtectionDomain domain;
  verbs::CompletionQueue queue;
  verbs::TypedRegion<std::uint64_t> region;
  verbs::PreparedQueuePair prepared;
  verbs::Endpoint endpoint;
  std::optional<verbs::QueuePair> pair;
};

void connect(End& a, End& b) {
  a.connect(b.endpoint);
  b.connect(a.endpoint);
}

// The next completion within this virtual time.
std::optional<Completion> await(World& world, const End& end, std::chrono::nanoseconds limit) {
  std::array<Completion, 1> one;
  std::size_t got = 0;
  world.run_until([&] { return (got = end.queue.poll(one).size()) > 0; }, limit);
  return got > 0 ? std::optional(one[0]) : std::nullopt;
}

struct Two {
  explicit Two(const Options& options, const DeviceOptions& device = {})
      : world(options), here(world.add_host()), there(world.add_host()), a(here, device), b(there) {
    connect(a, b);
  }

  World world;
  Host here;
  Host there;
  End a;
  End b;
};

TEST(Simulation, AWriteArrivesInTheMemoryOfTheOtherDevice) {
  Two two({.seed = 1});
  two.a.region[3] = 42;
  ASSERT_EQ(two.a.write(two.b, 3, 7), 0);
  EXPECT_EQ(two.b.region[3], 0U) << "nothing moves before an event";
  const auto done = await(two.world, two.a, 10s);
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->ok()) << done->status();
  EXPECT_EQ(two.b.region[3], 42U);
  EXPECT_GT(two.world.now(), 0ns);
  EXPECT_LT(two.world.now(), 10s);
  EXPECT_EQ(two.here.address(), "10.0.0.1");
}

std::size_t sockets_and_threads() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:") || target.find("eventpoll") != std::string::npos) ++count;
  }
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

TEST(Simulation, NoSocketAndNoThreadIsMade) {
  const std::size_t before = sockets_and_threads();
  Two two({.seed = 2});
  ASSERT_EQ(two.a.write(two.b, 0, 1), 0);
  ASSERT_TRUE(await(two.world, two.a, 10s));
  EXPECT_EQ(sockets_and_threads(), before);
}

// The order in which the completions of two connections come, and the trace of the world.
std::pair<std::string, std::uint64_t> run(std::uint64_t seed) {
  World world({.seed = seed});
  const Host host_a = world.add_host();
  const Host host_b = world.add_host();
  const Host host_c = world.add_host();
  End a(host_a);
  End b(host_b);
  End c(host_c);
  End d(host_c);
  connect(a, c);
  connect(b, d);
  std::string order;
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(a.write(c, i, i), 0);
    EXPECT_EQ(b.write(d, i, i), 0);
  }
  const auto look = [&order](const End& end, char name) {
    std::array<Completion, 8> some;
    for (const auto& one : end.queue.poll(some)) {
      EXPECT_TRUE(one.ok());
      order += name;
    }
  };
  world.run_until(
      [&] {
        look(a, 'a');
        look(b, 'b');
        return order.size() == 40;
      },
      10s);
  EXPECT_EQ(order.size(), 40U);
  return {order, world.trace()};
}

TEST(Simulation, TheSameSeedRepeatsTheRun) {
  for (const std::uint64_t seed : {0U, 1U, 77U}) EXPECT_EQ(run(seed), run(seed)) << seed;
}

template <typename Value>
std::size_t different(std::vector<Value> values) {
  std::ranges::sort(values);
  return static_cast<std::size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

TEST(Simulation, OtherSeedsGiveOtherOrders) {
  std::vector<std::string> orders;
  std::vector<std::uint64_t> traces;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto [order, trace] = run(seed);
    orders.push_back(std::move(order));
    traces.push_back(trace);
  }
  EXPECT_EQ(different(traces), 20U);
  EXPECT_GT(different(orders), 1U) << "completions come in batches, so few orders exist";
}

TEST(Simulation, ASendWithoutAReceiveFailsAfterItsRetriesInVirtualTime) {
  World world({.seed = 3});
  const Host here = world.add_host();
  const Host there = world.add_host();
  End a(here, {}, 3);
  End b(there);
  connect(a, b);
  const auto began = world.now();
  ASSERT_EQ(a.pair->post_send(a.region.slice(0, 1), 1), 0);
  const auto done = await(world, a, 60s);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status(), IBV_WC_RNR_RETRY_EXC_ERR);
  // The timer of min_rnr_timer's default is 2.56 ms, and three retries are three timers.
  EXPECT_GE(world.now() - began, 7ms);
  EXPECT_LT(world.now() - began, 10s);
}

TEST(Simulation, ASendWaitsForItsReceive) {
  Two two({.seed = 4});
  two.a.region[0] = 5;
  ASSERT_EQ(two.a.pair->post_send(two.a.region.slice(0, 1), 1), 0);
  two.world.run_for(1ms);
  ASSERT_EQ(two.b.pair->post_receive(two.b.region.slice(0, 1), 2), 0);
  const auto received = await(two.world, two.b, 10s);
  ASSERT_TRUE(received);
  EXPECT_TRUE(received->ok());
  EXPECT_EQ(two.b.region[0], 5U);
}

TEST(Simulation, APeerThatNeverComesIsReportedAfterTheTimeout) {
  World world({.seed = 5});
  const Host here = world.add_host();
  const Host there = world.add_host();
  End a(here);
  End b(there);
  a.connect(b.endpoint);  // b stays in RESET
  world.kill(there);
  const auto began = world.now();
  ASSERT_EQ(a.write(b, 0, 1), 0);
  const auto done = await(world, a, 60s);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(world.now() - began, 1s);
}

TEST(Simulation, AKilledProcessIsNoticedAndDoesNothingAnyMore) {
  Two two({.seed = 6});
  ASSERT_EQ(two.a.write(two.b, 0, 1), 0);
  ASSERT_TRUE(await(two.world, two.a, 10s));
  EXPECT_TRUE(two.world.is_alive(two.there));
  two.world.kill(two.there);
  EXPECT_FALSE(two.world.is_alive(two.there));
  two.a.region[0] = 9;
  ASSERT_EQ(two.a.write(two.b, 0, 2), 0);
  const auto failed = await(two.world, two.a, 60s);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_NE(two.b.region[0], 9U);
  EXPECT_EQ(two.b.write(two.a, 1, 3), 0) << "it does not notice";
  EXPECT_FALSE(await(two.world, two.b, 10s));
}

TEST(Simulation, AHostStartsAgain) {
  Two two({.seed = 7});
  two.world.kill(two.there);
  End again(two.there);
  End other(two.here);
  connect(other, again);
  ASSERT_EQ(other.write(again, 0, 1), 0);
  const auto done = await(two.world, other, 10s);
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->ok());
}

TEST(Simulation, ACableThatIsUnpluggedDelaysWhatIsSent) {
  Two two({.seed = 8});
  ASSERT_EQ(two.a.write(two.b, 0, 1), 0);
  ASSERT_TRUE(await(two.world, two.a, 10s));
  const auto began = two.world.now();
  two.world.stall(two.here, two.there, 50ms);
  ASSERT_EQ(two.a.write(two.b, 1, 2), 0);
  const auto done = await(two.world, two.a, 10s);
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->ok());
  EXPECT_GE(two.world.now() - began, 50ms);
}

TEST(Simulation, AHostThatVanishedIsReportedAfterTheRetries) {
  Two two({.seed = 9});
  ASSERT_EQ(two.a.write(two.b, 0, 1), 0);
  ASSERT_TRUE(await(two.world, two.a, 10s));
  two.world.cut(two.here, two.there);
  ASSERT_EQ(two.a.write(two.b, 1, 2), 0);
  const auto done = await(two.world, two.a, 60s);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status(), IBV_WC_RETRY_EXC_ERR);
}

TEST(Simulation, AResetEndsTheConnectionOfBoth) {
  Two two({.seed = 10});
  ASSERT_EQ(two.a.write(two.b, 0, 1), 0);
  ASSERT_TRUE(await(two.world, two.a, 10s));
  two.world.reset(two.here, two.there);
  ASSERT_EQ(two.a.write(two.b, 1, 2), 0);
  const auto done = await(two.world, two.a, 60s);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status(), IBV_WC_RETRY_EXC_ERR);
}

TEST(Simulation, TheRateOfALinkIsKept) {
  constexpr std::uint64_t bits = 8'000'000;  // 8192 bytes in 8 ms
  Two two({.seed = 11, .link = {.latency = 1us, .jitter = 0ns, .bits_per_second = bits}});
  ASSERT_EQ(two.a.write(two.b, 0, 1), 0);
  ASSERT_TRUE(await(two.world, two.a, 10s));
  const auto began = two.world.now();
  ASSERT_EQ(two.a.pair->post_write(two.a.region.slice(0, 1024), two.b.region.remote(), 2), 0);
  ASSERT_TRUE(await(two.world, two.a, 10s));
  EXPECT_GE(two.world.now() - began, 8ms);
  EXPECT_LT(two.world.now() - began, 12ms);
}

TEST(Simulation, FaultsOfTheDeviceHappenHere) {
  Two two({.seed = 12}, {.faults = "RETRY_EXC_ERR at write nth=3"});
  for (std::uint64_t i = 1; i <= 2; ++i) {
    ASSERT_EQ(two.a.write(two.b, 0, i), 0);
    const auto done = await(two.world, two.a, 10s);
    ASSERT_TRUE(done);
    EXPECT_TRUE(done->ok());
  }
  ASSERT_EQ(two.a.write(two.b, 0, 3), 0);
  const auto failed = await(two.world, two.a, 10s);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status(), IBV_WC_RETRY_EXC_ERR);
}

TEST(Simulation, AWrongKeyIsTheErrorOfItsRequest) {
  Two two({.seed = 13});
  const auto right = two.b.element(0);
  const verbs::RemoteSlice wrong(right.address(), right.size_bytes(), right.rkey() ^ 0x100U);
  ASSERT_EQ(two.a.pair->post_write(two.a.region.slice(0, 1), wrong, 1), 0);
  const auto failed = await(two.world, two.a, 10s);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status(), IBV_WC_REM_ACCESS_ERR);
}

// As the program of a textbook: it polls until something is there, and knows of no world.
TEST(Simulation, AProgramThatPollsNeedsNoChange) {
  Two two({.seed = 14});
  ASSERT_EQ(two.a.write(two.b, 0, 1), 0);
  ibv_wc completion{};
  while (ibv_poll_cq(two.a.queue.raw(), 1, &completion) == 0) {
  }
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.wr_id, 1U);
}

TEST(Simulation, OnlyStepsMoveItWhereTheTestWantsThat) {
  Two two({.seed = 15, .polls_advance = false});
  ASSERT_EQ(two.a.write(two.b, 0, 1), 0);
  std::array<Completion, 1> one;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(two.a.queue.poll(one).empty());
  EXPECT_EQ(two.world.now(), 0ns);
  while (two.a.queue.poll(one).empty()) ASSERT_TRUE(two.world.step());
}

TEST(Simulation, AWaitForAnEventRunsTheWorld) {
  Two two({.seed = 16});
  const auto channel = two.a.context.create_channel();
  const auto queue = two.a.context.create_completion_queue(16, {.channel = &channel});
  auto prepared = two.a.domain.queue_pair(queue, queue).build();
  End peer(two.there);
  peer.connect(prepared.endpoint());
  const auto pair = std::move(prepared).handshake(peer.endpoint);
  ASSERT_EQ(pair.post_write(two.a.region.slice(0, 1), peer.element(0), 1), 0);
  std::array<Completion, 1> one;
  EXPECT_EQ(queue.wait(one, 10s).size(), 1U);
}

TEST(Simulation, CallsComeAtTheirTime) {
  World world({.seed = 17});
  std::vector<int> order;
  world.call_after(2ms, [&] { order.push_back(2); });
  world.call_after(1ms, [&] { order.push_back(1); });
  world.run_for(1500us);
  EXPECT_EQ(order, std::vector{1});
  EXPECT_EQ(world.now(), 1500us);
  EXPECT_TRUE(world.step());
  EXPECT_EQ(world.now(), 2ms);
  EXPECT_FALSE(world.step()) << "nothing is left";
}

TEST(Simulation, AThreadHasOneWorld) {
  const World world({.seed = 18});
  EXPECT_THROW(World({.seed = 19}), std::logic_error);
  std::thread([] { EXPECT_NO_THROW(World({.seed = 20})); }).join();
}

TEST(Simulation, ObjectsMayOutliveTheirWorld) {
  std::optional<End> left;
  {
    World world({.seed = 21});
    const Host here = world.add_host();
    const Host there = world.add_host();
    left.emplace(here);
    End b(there);
    connect(*left, b);
    ASSERT_EQ(left->write(b, 0, 1), 0);
    ASSERT_TRUE(await(world, *left, 10s));
  }
  World next({.seed = 22});
  left.reset();
  EXPECT_EQ(next.now(), 0ns);
}

TEST(Simulation, WrongAddressesAreNamed) {
  World world({.seed = 23});
  static_cast<void>(world.add_host("10.0.0.1"));
  EXPECT_THROW(static_cast<void>(world.add_host("10.0.0.1")), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(world.add_host("here")), std::invalid_argument);
  EXPECT_EQ(world.add_host().address(), "10.0.0.2");
}

TEST(Simulation, AQueuePairCanBeConnectedToItself) {
  World world({.seed = 24});
  End self(world.add_host());
  self.connect(self.endpoint);
  self.region[0] = 3;
  ASSERT_EQ(self.pair->post_write(self.region.slice(0, 1), self.element(1), 1), 0);
  ASSERT_TRUE(await(world, self, 10s));
  EXPECT_EQ(self.region[1], 3U);
}

TEST(Simulation, WhatItDoesNotHaveFails) {
  World world({.seed = 25});
  EXPECT_THROW(static_cast<void>(verbs::open_device({}, verbs::Backend::embedded)), Error);
}

}  // namespace
}  // namespace weft::simulation
