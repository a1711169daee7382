// Datagrams (UD) in memory: they arrive, are lost and overtake each other as the seed decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "weft/simulation.hpp"
#include "weft/verbs.hpp"

namespace weft::simulation {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;
using verbs::Access;
using verbs::Completion;

constexpr std::uint32_t key = 0x1234;
constexpr std::uint32_t every_member = 0xFFFFFF;
constexpr std::size_t message_bytes = 8;
constexpr std::size_t slot_bytes = verbs::grh_bytes + message_bytes;
constexpr std::uint64_t sends = 1U << 20U;  // added to the numbers of sends

struct End {
  explicit End(const Host& host)
      : context(host.open()),
        domain(context.create_domain()),
        queue(context.create_completion_queue(512)),
        region(domain.allocate<std::uint8_t>(slot_bytes * 200, Access::all)),
        pair(domain.queue_pair(queue, queue, IBV_QPT_UD)
                 .max_send_requests(200)
                 .max_receive_requests(200)
                 .build()
                 .activate(key)) {}

  [[nodiscard]] verbs::AddressHandle handle_of(const End& peer) const {
    return domain.create_address_handle({.gid = peer.context.query_gid(1, 0)});
  }
  void post_receives(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(pair.post_receive(region.slice(i * slot_bytes, slot_bytes), i), 0);
    }
  }
  // Each has its number as its first byte.
  void send(const verbs::AddressHandle& to, std::uint32_t number, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = i * slot_bytes;
      region[at] = static_cast<std::uint8_t>(i);
      ASSERT_EQ(pair.post_send_to({to, number, key}, region.slice(at, message_bytes), sends + i),
                0);
    }
  }
  // The first bytes of the messages that have arrived, in the order of their arrival.
  std::vector<int> arrived(World& world) {
    std::vector<int> found;
    world.run_for(1s);
    std::array<Completion, 16> some;
    for (auto got = queue.poll(some); !got.empty(); got = queue.poll(some)) {
      for (const Completion& each : got) {
        EXPECT_TRUE(each.ok()) << each.status();
        if (each.id() < sends) found.push_back(region[each.id() * slot_bytes + verbs::grh_bytes]);
      }
    }
    return found;
  }

  verbs::Context context;
  verbs::ProtectionDomain domain;
  verbs::CompletionQueue queue;
  verbs::TypedRegion<std::uint8_t> region;
  verbs::QueuePair pair;
};

// What of 100 datagrams arrives, in order.
std::vector<int> run(std::uint64_t seed, const Link& link) {
  World world({.seed = seed, .link = link, .polls_advance = false});
  End a(world.add_host());
  End b(world.add_host());
  b.post_receives(100);
  a.send(a.handle_of(b), b.pair.number(), 100);
  return b.arrived(world);
}

TEST(SimulatedDatagrams, AMessageArrivesAndCanBeAnswered) {
  World world({.seed = 1, .polls_advance = false});
  End a(world.add_host());
  End b(world.add_host());
  b.post_receives(1);
  a.send(a.handle_of(b), b.pair.number(), 1);
  std::array<Completion, 1> one;
  ASSERT_TRUE(world.run_until([&] { return !b.queue.poll(one).empty(); }, 1s));
  EXPECT_EQ(one[0].size_bytes(), slot_bytes);
  EXPECT_EQ(one[0].source_queue_pair(), a.pair.number());
  const auto front =
      std::span<const std::uint8_t, verbs::grh_bytes>(b.region.elements().first(verbs::grh_bytes));
  const auto back = b.domain.reply_address(one[0], front);
  a.post_receives(1);
  b.region[0] = 9;
  ASSERT_EQ(b.pair.post_send_to({back, one[0].source_queue_pair(), key},
                                b.region.slice(0, message_bytes), sends),
            0);
  EXPECT_THAT(a.arrived(world), ElementsAre(9));
}

TEST(SimulatedDatagrams, TheyOvertakeEachOtherByTheJitter) {
  const auto order = run(2, {.jitter = 10us});
  EXPECT_THAT(order, SizeIs(100));
  EXPECT_FALSE(std::ranges::is_sorted(order));
  EXPECT_TRUE(std::ranges::is_sorted(
      run(2, {.latency = 5us, .jitter = 0ns, .bits_per_second = 1'000'000'000})))
      << "one behind the other, at the rate of the link";
}

TEST(SimulatedDatagrams, AShareOfThemIsLost) {
  EXPECT_THAT(run(3, {.loss = 0.5}), SizeIs(::testing::AllOf(Ge(20U), Le(80U))));
  EXPECT_THAT(run(3, {.loss = 1}), IsEmpty());
}

TEST(SimulatedDatagrams, TheSeedRepeatsLossAndOrder) {
  EXPECT_EQ(run(4, {.loss = 0.3}), run(4, {.loss = 0.3}));
  EXPECT_NE(run(4, {.loss = 0.3}), run(5, {.loss = 0.3}));
}

TEST(SimulatedDatagrams, ACutLosesWhatIsUnderWay) {
  World world({.seed = 6, .link = {.latency = 1ms}, .polls_advance = false});
  const Host here = world.add_host();
  const Host there = world.add_host();
  End a(here);
  End b(there);
  b.post_receives(3);
  const auto to = a.handle_of(b);
  a.send(to, b.pair.number(), 1);
  world.cut(here, there);
  a.send(to, b.pair.number(), 1);
  world.mend(here, there);
  EXPECT_THAT(b.arrived(world), IsEmpty());
  a.send(to, b.pair.number(), 1);
  EXPECT_THAT(b.arrived(world), SizeIs(1));
}

TEST(SimulatedDatagrams, AGroupReachesItsMembersOnAllHosts) {
  World world({.seed = 7, .polls_advance = false});
  End a(world.add_host());
  End b(world.add_host());
  End c(world.add_host());
  const verbs::Gid group = verbs::Gid::parse("::ffff:239.192.6.1").value();
  a.pair.join_group(group);
  b.pair.join_group(group);
  for (End* each : {&a, &b, &c}) each->post_receives(2);
  const auto to = a.domain.create_address_handle({.gid = group, .hop_limit = 1});
  a.send(to, every_member, 1);
  EXPECT_THAT(a.arrived(world), SizeIs(1)) << "the sender is a member, too";
  EXPECT_THAT(b.arrived(world), SizeIs(1));
  EXPECT_THAT(c.arrived(world), IsEmpty());
  b.pair.leave_group(group);
  a.send(to, every_member, 1);
  EXPECT_THAT(b.arrived(world), IsEmpty());
}

TEST(SimulatedDatagrams, AProcessThatHasEndedGetsNone) {
  World world({.seed = 8, .polls_advance = false});
  const Host there = world.add_host();
  End a(world.add_host());
  End b(there);
  b.post_receives(1);
  a.send(a.handle_of(b), b.pair.number(), 1);
  world.kill(there);
  EXPECT_THAT(b.arrived(world), IsEmpty());
  EXPECT_THAT(a.arrived(world), IsEmpty());
}

// TCP sends again what is lost, so all of it arrives, but later.
TEST(SimulatedDatagrams, LossDelaysAConnection) {
  const auto duration = [](double loss) {
    World world({.seed = 9, .link = {.loss = loss}});
    const auto host = world.add_host();
    const auto peer = world.add_host();
    verbs::Context a = host.open();
    verbs::Context b = peer.open();
    const auto domain_a = a.create_domain();
    const auto domain_b = b.create_domain();
    const auto queue_a = a.create_completion_queue(16);
    const auto queue_b = b.create_completion_queue(16);
    const auto from = domain_a.allocate<std::uint8_t>(8, Access::all);
    const auto to = domain_b.allocate<std::uint8_t>(8, Access::all);
    auto one = domain_a.queue_pair(queue_a, queue_a).access(Access::all).build();
    auto other = domain_b.queue_pair(queue_b, queue_b).access(Access::all).build();
    const auto of_one = one.endpoint();
    const auto of_other = other.endpoint();
    const auto left = std::move(one).handshake(of_other);
    const auto right = std::move(other).handshake(of_one);
    std::array<Completion, 1> done;
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(left.post_write(from.slice(), to.remote(), 1), 0);
      EXPECT_TRUE(world.run_until([&] { return !queue_a.poll(done).empty(); }, 60s));
      EXPECT_TRUE(done[0].ok()) << done[0].status();
    }
    return world.now();
  };
  EXPECT_GT(duration(0.3), duration(0) + 200ms);
}

}  // namespace
}  // namespace weft::simulation
