// Connections with coroutines, in weft's own event loop and in Asio's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <thread>

#include "support/host.h"
#include "support/loops.h"
#include "weft/connection.hpp"

namespace weft::connection::testing {
namespace {

using namespace std::chrono_literals;
constexpr auto patience = 30s;

template <typename Loop>
class AsyncConnection : public test::InLoop<Loop> {
 protected:
  // Connects both sides with coroutines.
  void connect_sides(const Options& options = {}) {
    this->run(
        [](auto& self, Options wanted) -> Task<> {
          self.listener.emplace(Address{test::host(), 0}, wanted);
          self.passive.emplace(co_await self.async.accept(*self.listener, patience));
        }(*this, options),
        [](auto& self, Options wanted) -> Task<> {
          const std::uint16_t port = self.listener->port();
          self.active.emplace(co_await self.async.connect({test::host(), port}, patience, wanted));
        }(*this, options));
  }

  Async async{this->loop.executor()};
  std::optional<Listener> listener;
  std::optional<Connection> active;
  std::optional<Connection> passive;
};

TYPED_TEST_SUITE(AsyncConnection, test::Loops, test::LoopNames);

// Receives of coroutines and of await() do not take each other's outcomes.
TYPED_TEST(AsyncConnection, ReceivesGoToTheirOwnCoroutine) {
  this->connect_sides();
  Connection& from = *this->active;
  Connection& to = *this->passive;
  const auto source = from.allocate(3);
  const auto into = to.allocate(4);
  for (std::size_t i = 0; i < 3; ++i) source[i] = static_cast<std::byte>('a' + i);
  std::vector<std::optional<Outcome>> got(3);
  std::vector<Outcome> others;
  this->run(
      [](auto& self, Connection& peer, const Buffer& buffer, auto& outcome) -> Task<> {
        outcome = co_await self.async.receive(peer, buffer.slice(0, 1), patience, {}, 10);
      }(*this, to, into, got[0]),
      [](auto& self, Connection& peer, const Buffer& buffer, auto& outcomes) -> Task<> {
        if (peer.post_receive(buffer.slice(1, 1), 11) != 0) co_return;
        outcomes = co_await self.async.await(peer, Queue::receive, 1, patience);
      }(*this, to, into, others),
      [](auto& self, Connection& peer, const Buffer& buffer, auto& outcome) -> Task<> {
        outcome = co_await self.async.receive(peer, buffer.slice(2, 1), patience, {}, 12);
      }(*this, to, into, got[1]),
      [](auto& self, Connection& peer, const Buffer& buffer) -> Task<> {
        for (std::size_t i = 0; i < 3; ++i) {
          (void)co_await self.async.send(peer, buffer.slice(i, 1), patience);
        }
      }(*this, from, source));
  ASSERT_TRUE(got[0] && got[1]);
  EXPECT_EQ(got[0]->id, 10U);
  EXPECT_EQ(got[1]->id, 12U);
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].id, 11U);
  EXPECT_TRUE(std::ranges::equal(into.elements().first(3), source.elements()));
  // After its deadline a receive stays posted, and await() returns its outcome.
  this->run([](auto& self, Connection& peer, const Buffer& buffer, auto& outcome) -> Task<> {
    outcome = co_await self.async.receive(peer, buffer.slice(3, 1), Deadline::now(), {}, 13);
  }(*this, to, into, got[2]));
  EXPECT_FALSE(got[2]);
  ASSERT_EQ(from.post_send(source.slice(1, 1), 1), 0);
  const auto late = to.await(Queue::receive, 1, patience);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].id, 13U);
  EXPECT_EQ(into[3], std::byte{'b'});
}

Task<> write_and_read_back(Async async, Connection& peer, bool& right) {
  const auto told = co_await async.await_advertisement(peer, patience);
  if (!told) co_return;
  const auto text = peer.allocate(4096);
  for (std::size_t i = 0; i < 4096; ++i) text[i] = static_cast<std::byte>(i * 7);
  const auto written = co_await async.write(peer, text.slice(), told->buffer, 100, patience);
  const auto back = peer.allocate(4096);
  const auto read = co_await async.read(peer, back.slice(), told->buffer, 100, patience);
  right = written && written->ok() && read && read->ok() &&
          std::ranges::equal(text.elements(), back.elements());
}

TYPED_TEST(AsyncConnection, ConnectsAdvertisesWritesAndReads) {
  Options options;
  options.advertisements = true;
  this->connect_sides(options);
  const auto shared = this->active->allocate(8192, Access::remote_read_write);
  this->active->advertise(shared.remote());
  bool right = false;
  this->run(write_and_read_back(this->async, *this->passive, right));
  EXPECT_TRUE(right);
}

// Each side waits for the other, and both run on one thread.
Task<> ping(Async async, Connection& peer, int rounds, int& done) {
  const auto buffer = peer.allocate(16);
  for (; done < rounds; ++done) {
    EXPECT_EQ(peer.post_receive(buffer.slice(8, 8), 1), 0);
    buffer[0] = static_cast<std::byte>(done);
    const auto sent = co_await async.send(peer, buffer.slice(0, 8), patience);
    if (!sent || !sent->ok()) co_return;
    const auto got = co_await async.await(peer, Queue::receive, 1, patience);
    if (got.size() != 1 || !got[0].ok() || buffer[8] != buffer[0]) co_return;
  }
}

Task<> pong(Async async, Connection& peer) {
  const auto buffer = peer.allocate(8);
  EXPECT_EQ(peer.post_receive(buffer.slice(), 1), 0);
  while (true) {
    const auto got = co_await async.await(peer, Queue::receive, 1, patience);
    if (got.size() != 1 || !got[0].ok()) co_return;
    const auto copy = peer.allocate(8);
    copy[0] = buffer[0];
    EXPECT_EQ(peer.post_receive(buffer.slice(), 1), 0);
    EXPECT_TRUE((co_await async.send(peer, copy.slice(), patience))->ok());
  }
}

TYPED_TEST(AsyncConnection, BothEndsOnOneThread) {
  this->connect_sides();
  int done = 0;
  this->run(pong(this->async, *this->passive), [](auto& self, int& count) -> Task<> {
    co_await ping(self.async, *self.active, 200, count);
    self.active->disconnect();
  }(*this, done));
  EXPECT_EQ(done, 200);
}

TYPED_TEST(AsyncConnection, ManyWaitForOneQueueAndEachGetsItsOwn) {
  Options options;
  options.queue_depth = 4;  // fewer than the requests that are posted at once
  this->connect_sides(options);
  const auto theirs = this->passive->allocate(64, Access::remote_read_write);
  std::set<std::uint64_t> ids;
  int left = 64;
  const auto write = [](auto& self, RemoteBuffer to, std::uint64_t i, auto& seen,
                        int& open) -> Task<> {
    const auto own = self.active->allocate(1);
    own[0] = static_cast<std::byte>(i);
    const auto done = co_await self.async.write(*self.active, own.slice(), to, i, patience, {}, i);
    EXPECT_TRUE(done && done->ok());
    if (done) seen.insert(done->id);
    --open;
  };
  for (std::uint64_t i = 0; i < 64; ++i) {
    this->loop.start(write(*this, theirs.remote(), i, ids, left));
  }
  while (left > 0) this->loop.step(patience);
  EXPECT_EQ(ids.size(), 64U);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(theirs[i], static_cast<std::byte>(i));
  EXPECT_TRUE(this->active->await(Queue::send, 1, Deadline::now()).empty());
}

Task<int> error_of(Task<Connection> attempt) {
  try {
    const Connection made = co_await attempt;
    co_return 0;
  } catch (const Error& failed) {
    co_return failed.error_number();
  }
}

Task<> wait_for_nothing(Async async, Connection& active, Connection& passive) {
  Listener nobody({test::host(), 0});
  EXPECT_FALSE(co_await async.next(nobody, 1ms));
  EXPECT_FALSE(co_await async.next(nobody, Deadline::now()));
  EXPECT_EQ(co_await error_of(async.accept(nobody, 1ms)), ETIMEDOUT);
  const Address address{test::host(), nobody.port()};
  EXPECT_EQ(co_await error_of(async.connect(address, 5ms)), ETIMEDOUT);
  EXPECT_TRUE((co_await async.await(active, Queue::receive, 1, 1ms)).empty());
  EXPECT_FALSE(co_await async.await_advertisement(active, 5ms));
  EXPECT_FALSE(co_await async.await_disconnect(active, 1ms));
  passive.disconnect();
  EXPECT_TRUE(co_await async.await_disconnect(active, patience));
  EXPECT_TRUE(co_await async.await_disconnect(active, patience)) << "it stays so";
}

TYPED_TEST(AsyncConnection, EveryWaitHasADeadline) {
  Options options;
  options.advertisements = true;
  this->connect_sides(options);
  this->run(wait_for_nothing(this->async, *this->active, *this->passive));
}

enum class Wait { advertisement, outcome, end, connection };

Task<> wait_until_stopped(Async async, Connection& peer, Address nobody, Wait which,
                          std::stop_token stop, int& ended) {
  const auto never = Deadline::never();
  if (which == Wait::advertisement) {
    EXPECT_FALSE(co_await async.await_advertisement(peer, never, stop));
  } else if (which == Wait::outcome) {
    EXPECT_TRUE((co_await async.await(peer, Queue::receive, 1, never, stop)).empty());
  } else if (which == Wait::end) {
    EXPECT_FALSE(co_await async.await_disconnect(peer, never, stop));
  } else {
    auto attempt = async.connect(nobody, never, {}, {}, stop);
    EXPECT_EQ(co_await error_of(std::move(attempt)), ECANCELED);
  }
  ++ended;
}

TYPED_TEST(AsyncConnection, EveryWaitCanBeStoppedFromAnyThread) {
  Options options;
  options.advertisements = true;
  this->connect_sides(options);
  Listener silent({test::host(), 0});
  std::stop_source source;
  int ended = 0;
  for (const auto which : {Wait::advertisement, Wait::outcome, Wait::end, Wait::connection}) {
    this->loop.start(wait_until_stopped(this->async, *this->active, {test::host(), silent.port()},
                                        which, source.get_token(), ended));
  }
  // Started after the others, so the others are waiting when it has ended.
  this->run([](auto& self) -> Task<> {
    EXPECT_FALSE(co_await self.async.await_disconnect(*self.active, 1ms));
  }(*this));
  EXPECT_EQ(ended, 0);
  std::thread other([&] { source.request_stop(); });
  while (ended < 4) this->loop.step(patience);
  other.join();
}

// A stop ends the wait, not the request: in roce, a send waits until the peer posts a receive.
TYPED_TEST(AsyncConnection, AStoppedRequestIsStillUnderWay) {
  this->connect_sides();
  const auto own = this->active->allocate(8);
  const auto into = this->passive->allocate(8);
  this->run([](auto& self, const Buffer& from) -> Task<> {
    EXPECT_FALSE(co_await self.async.send(*self.active, from.slice(), 1ms, {}, 77));
  }(*this, own));
  ASSERT_EQ(this->passive->post_receive(into.slice(), 1), 0);
  const auto outcomes = this->active->await(Queue::send, 1, patience);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].id, 77U);
  EXPECT_TRUE(outcomes[0].ok());
}

// The outcome of the write is polled by the send's waiter, which goes on waiting: in roce, a send
// waits until the peer posts a receive.
TYPED_TEST(AsyncConnection, AnOutcomeThatAnotherWaiterHasPolledIsReturned) {
  this->connect_sides();
  const auto own = this->active->allocate(8);
  const auto into = this->passive->allocate(8, Access::remote_write);
  ASSERT_EQ(this->active->post_write(own.slice(), into.remote(), 0, 9), 0);
  this->run(
      [](auto& self, const Buffer& from) -> Task<> {
        const auto outcome = co_await self.async.send(*self.active, from.slice(), patience);
        EXPECT_TRUE(outcome && outcome->ok());
      }(*this, own),
      [](auto& self, const Buffer& to) -> Task<> {
        const auto outcomes = co_await self.async.await(*self.active, Queue::send, 1, patience);
        EXPECT_EQ(outcomes.size(), 1U);
        if (!outcomes.empty()) {
          EXPECT_EQ(outcomes[0].id, 9U);
        }
        EXPECT_EQ(self.passive->post_receive(to.slice(), 1), 0);
      }(*this, into));
}

TYPED_TEST(AsyncConnection, DestroyedWhereItWaitsNothingIsLeft) {
  this->connect_sides();
  {
    TypeParam other;
    other.start([](Executor& executor, Connection& peer) -> Task<> {
      co_await Async(executor).await(peer, Queue::receive, 1, Deadline::never());
      ADD_FAILURE() << "resumed";
    }(other.executor(), *this->active));
    other.step(Deadline::now());
  }
  // The destroyed waiter has left the wait queue to the next one.
  int done = 0;
  this->run(pong(this->async, *this->passive), [](auto& self, int& count) -> Task<> {
    co_await ping(self.async, *self.active, 3, count);
    self.active->disconnect();
  }(*this, done));
  EXPECT_EQ(done, 3);
}

Task<> go_wrong(Async async, Connection& active, Connection& passive) {
  const auto own = active.allocate(64);
  const auto theirs = passive.allocate(32, Access::remote_write);
  int error = 0;
  try {
    EXPECT_FALSE(co_await async.write(active, own.slice(), theirs.remote(), 0, patience));
  } catch (const Error& failed) {
    error = failed.error_number();
  }
  EXPECT_EQ(error, EMSGSIZE);
  const RemoteBuffer wrong(theirs.remote().address(), 8, theirs.remote().rkey() ^ 0x100);
  const auto refused = co_await async.write(active, own.slice(0, 8), wrong, 0, patience);
  EXPECT_EQ(refused.value_or(Outcome{}).status, IBV_WC_REM_ACCESS_ERR);
  std::uint16_t port = 0;
  { port = Listener({test::host(), 0}).port(); }
  const Address closed{test::host(), port};
  EXPECT_EQ(co_await error_of(async.connect(closed, patience)), ECONNREFUSED);
}

TYPED_TEST(AsyncConnection, ErrorsComeOutOfTheAwait) {
  this->connect_sides();
  this->run(go_wrong(this->async, *this->active, *this->passive));
}

TYPED_TEST(AsyncConnection, ARequestIsLookedAtAndRefused) {
  Listener polite({test::host(), 0});
  this->run(
      [](auto& self, Listener& at) -> Task<> {
        auto request = co_await self.async.next(at, patience);
        EXPECT_TRUE(request);
        if (request) std::move(*request).reject(std::as_bytes(std::span("no", 2)));
      }(*this, polite),
      [](auto& self, std::uint16_t port) -> Task<> {
        auto prepared = co_await self.async.prepare({test::host(), port}, patience);
        const auto buffer = prepared.allocate(8);
        EXPECT_EQ(prepared.post_receive(buffer.slice(), 1), 0);
        try {
          co_await self.async.connect(std::move(prepared), {}, patience);
          ADD_FAILURE() << "connected";
        } catch (const Rejected& rejected) {
          EXPECT_GE(rejected.private_data().size(), 2U);
        }
      }(*this, polite.port()));
}

}  // namespace
}  // namespace weft::connection::testing
