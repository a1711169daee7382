// Requests that hold their memory until they have completed: KeptSlice at connections.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "support/host.h"
#include "support/loops.h"
#include "weft/connection.hpp"

namespace weft::connection::testing {
namespace {

using namespace std::chrono_literals;
constexpr auto patience = 30s;
using Bytes = std::vector<std::byte>;

struct Connected {
  Connected() : listener({test::host(), 0}) {
    std::thread connecting([&] { active.emplace(connect({test::host(), port()}, patience)); });
    passive.emplace(listener.accept(patience));
    connecting.join();
  }
  [[nodiscard]] std::uint16_t port() const { return listener.port(); }

  Listener listener;
  std::optional<Connection> active;
  std::optional<Connection> passive;
};

// A slice of `bytes`, which the caller gives away.
KeptSlice keep(const Connection& connection, const std::shared_ptr<Bytes>& bytes,
               Access access = Access::local) {
  return connection.register_buffer(*bytes, access).keep().with(bytes);
}

TEST(KeptRequests, AReceiveHoldsItsMemory) {
  Connected sides;
  auto into = std::make_shared<Bytes>(8);
  const std::weak_ptr<Bytes> alive = into;
  ASSERT_EQ(sides.passive->post_receive(keep(*sides.passive, into), 5), 0);
  into.reset();
  ASSERT_FALSE(alive.expired());
  const auto kept = alive.lock();
  const auto from = std::make_shared<Bytes>(8, std::byte{9});
  ASSERT_EQ(sides.active->post_send(keep(*sides.active, from), 6), 0);
  const auto got = sides.passive->await(Queue::receive, 1, patience);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_TRUE(got[0].ok());
  EXPECT_EQ(got[0].id, 5U);
  EXPECT_EQ(*kept, *from);
  EXPECT_EQ(kept.use_count(), 1) << "the connection has let it go";
  const auto sent = sides.active->await(Queue::send, 1, patience);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].id, 6U);
  EXPECT_EQ(from.use_count(), 1);
}

TEST(KeptRequests, WritesAndReadsHoldTheirs) {
  Connected sides;
  const Buffer theirs = sides.passive->allocate(16, Access::remote_read_write);
  const auto from = std::make_shared<Bytes>(8, std::byte{7});
  const auto back = std::make_shared<Bytes>(8);
  Connection& active = *sides.active;
  ASSERT_EQ(active.post_write(keep(active, from), theirs.remote(), 8, 1), 0);
  ASSERT_EQ(active.post_read(keep(active, back), theirs.remote(), 8, 2), 0);
  EXPECT_EQ(active.await(Queue::send, 2, patience).size(), 2U);
  EXPECT_EQ(*back, *from);
  EXPECT_EQ(from.use_count(), 1);
  EXPECT_EQ(back.use_count(), 1);
  // Refused before it is posted.
  EXPECT_EQ(active.post_write(keep(active, from), theirs.remote(), 9, 3), EMSGSIZE);
  EXPECT_EQ(active.post_read(keep(active, back), theirs.remote(), 9, 4), EMSGSIZE);
  EXPECT_EQ(from.use_count(), 1);
}

// The requests with immediates, atomics and invalidation hold theirs as well.
TEST(KeptRequests, ImmediatesAndAtomicsHoldTheirs) {
  Connected sides;
  const Buffer theirs = sides.passive->allocate(16, Access::all);
  const auto from = std::make_shared<Bytes>(8, std::byte{7});
  const auto before = std::make_shared<Bytes>(8);
  Connection& active = *sides.active;
  for (std::uint64_t id = 0; id < 2; ++id) {
    ASSERT_EQ(sides.passive->post_receive(sides.passive->allocate(8).keep(), id), 0);
  }
  ASSERT_EQ(active.post_send_with_immediate(keep(active, from), 1, 1, SendFlags::none), 0);
  ASSERT_EQ(active.post_write_with_immediate(keep(active, from), theirs.remote(), 8, 2, 2,
                                             SendFlags::none),
            0);
  ASSERT_EQ(
      active.post_fetch_and_add(keep(active, before), theirs.remote(), 0, 5, 3, SendFlags::none),
      0);
  EXPECT_EQ(from.use_count(), 3);
  EXPECT_EQ(before.use_count(), 2);
  ASSERT_EQ(active.post_compare_and_swap(keep(active, before), theirs.remote(), 0, 5, 6, 4), 0);
  EXPECT_EQ(active.await(Queue::send, 1, patience).size(), 1U);
  EXPECT_EQ(from.use_count(), 1);
  EXPECT_EQ(before.use_count(), 1);
  EXPECT_EQ(before->at(std::endian::native == std::endian::little ? 0 : 7), std::byte{5});
  const auto got = sides.passive->await(Queue::receive, 2, patience);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[1].immediate, 2U);
  // Refused before they are posted.
  EXPECT_EQ(active.post_write_with_immediate(keep(active, from), theirs.remote(), 9, 2, 5),
            EMSGSIZE);
  EXPECT_EQ(active.post_fetch_and_add(keep(active, before), theirs.remote(), 9, 5, 6), EMSGSIZE);
  EXPECT_EQ(active.post_compare_and_swap(keep(active, before), theirs.remote(), 9, 5, 6, 7),
            EMSGSIZE);
  // An rkey that is none of a memory window cannot be invalidated; the slice is let go all the
  // same.
  ASSERT_EQ(sides.passive->post_receive(sides.passive->allocate(8).keep(), 9), 0);
  ASSERT_EQ(active.post_send_with_invalidate(keep(active, from), theirs.remote().rkey(), 8), 0);
  const auto refused = active.await(Queue::send, 1, patience);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_FALSE(refused[0].ok());
  EXPECT_EQ(from.use_count(), 1);
}

// A later completion covers what was not signaled.
TEST(KeptRequests, UnsignaledOnesAreHeldUntilALaterOneCompletes) {
  Connected sides;
  const Buffer theirs = sides.passive->allocate(16, Access::remote_write);
  const auto from = std::make_shared<Bytes>(8, std::byte{7});
  Connection& active = *sides.active;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(active.post_write(keep(active, from), theirs.remote(), 0, 1, SendFlags::none), 0);
  }
  EXPECT_EQ(from.use_count(), 4);
  const auto other = std::make_shared<Bytes>(8);
  ASSERT_EQ(active.post_write(keep(active, other), theirs.remote(), 8, 2), 0);
  EXPECT_EQ(active.await(Queue::send, 1, patience).size(), 1U);
  EXPECT_EQ(from.use_count(), 1);
}

TEST(KeptRequests, TheEndOfTheConnectionLetsThemGo) {
  Connected sides;
  const auto into = std::make_shared<Bytes>(8);
  ASSERT_EQ(sides.passive->post_receive(keep(*sides.passive, into), 1), 0);
  EXPECT_EQ(into.use_count(), 2);
  sides.passive.reset();
  EXPECT_EQ(into.use_count(), 1);
}

template <typename Loop>
class AsyncKept : public test::InLoop<Loop> {};
TYPED_TEST_SUITE(AsyncKept, test::Loops, test::LoopNames);

// The buffers of a coroutine may end with it: here it waits for 1 ms, and its requests go on.
TYPED_TEST(AsyncKept, ARequestMayOutliveItsCoroutine) {
  Connected sides;
  const Async async(this->loop.executor());
  std::weak_ptr<Bytes> received;
  std::weak_ptr<Bytes> sent;
  this->run(
      [](Async waits, Connection& peer, std::weak_ptr<Bytes>& seen) -> Task<> {
        const auto into = std::make_shared<Bytes>(8);
        seen = into;
        const KeptSlice slice = keep(peer, into);
        EXPECT_FALSE(co_await waits.receive(peer, slice, 1ms, {}, 11));
      }(async, *sides.passive, received),
      // In roce, a send waits until the peer posts a receive.
      [](Async waits, Connection& peer, std::weak_ptr<Bytes>& seen) -> Task<> {
        const auto from = std::make_shared<Bytes>(8, std::byte{3});
        seen = from;
        const KeptSlice slice = keep(peer, from);
        EXPECT_FALSE(co_await waits.send(peer, slice, 1ms, {}, 12));
      }(async, *sides.passive, sent));
  ASSERT_FALSE(received.expired());
  ASSERT_FALSE(sent.expired());
  const auto kept = received.lock();
  this->run([](Async waits, Connection& peer) -> Task<> {
    const KeptSlice into = peer.allocate(8).keep();
    const auto got = co_await waits.receive(peer, into, patience);
    EXPECT_TRUE(got && got->ok());
    const KeptSlice answer = into;
    const auto done = co_await waits.send(peer, answer, patience);
    EXPECT_TRUE(done && done->ok());
  }(async, *sides.active));
  EXPECT_EQ(sides.passive->await(Queue::send, 1, patience)[0].id, 12U);
  EXPECT_EQ(sides.passive->await(Queue::receive, 1, patience)[0].id, 11U);
  EXPECT_TRUE(sent.expired());
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_TRUE(std::ranges::all_of(*kept, [](std::byte byte) { return byte == std::byte{3}; }));
}

TYPED_TEST(AsyncKept, WritesAndReads) {
  Connected sides;
  const Async async(this->loop.executor());
  const Buffer theirs = sides.passive->allocate(8, Access::remote_read_write);
  this->run([](Async waits, Connection& peer, RemoteBuffer remote) -> Task<> {
    const auto from = std::make_shared<Bytes>(8, std::byte{5});
    const auto into = std::make_shared<Bytes>(8);
    const KeptSlice source = keep(peer, from);
    const KeptSlice target = keep(peer, into);
    EXPECT_TRUE((co_await waits.write(peer, source, remote, 0, patience))->ok());
    EXPECT_TRUE((co_await waits.read(peer, target, remote, 0, patience))->ok());
    EXPECT_EQ(*into, *from);
  }(async, *sides.active, theirs.remote()));
}

}  // namespace
}  // namespace weft::connection::testing
