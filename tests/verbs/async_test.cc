// Coroutines of queue pairs, in weft's own event loop and in Asio's.
#include "weft/verbs/async.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "support/loops.h"
#include "verbs/operation_pair.h"

namespace weft::verbs::testing {
namespace {

using namespace std::chrono_literals;
constexpr auto patience = 30s;

template <typename Loop>
class AsyncVerbs : public test::InLoop<Loop> {
 protected:
  // Of the first and of the second queue pair.
  [[nodiscard]] AsyncOperations a() { return {this->loop.executor(), *pair.a_operations}; }
  [[nodiscard]] AsyncOperations b() { return {this->loop.executor(), *pair.b_operations}; }

  OperationPair pair{64, 8};
};

TYPED_TEST_SUITE(AsyncVerbs, test::Loops, test::LoopNames);

// Each side waits for the other, and both run on one thread.
Task<> ask(AsyncOperations async, OperationPair& pair, int rounds, int& right) {
  for (int round = 0; round < rounds; ++round) {
    const KeptSlice question = pair.make(8);
    const KeptSlice answer = pair.make(8);
    bytes_of(question)[0] = static_cast<std::byte>(round);
    const Operation coming = pair.a_operations->receive(*pair.a, answer);
    const auto sent = co_await async.send(*pair.a, question, patience);
    const auto got = co_await async.wait(coming, patience);
    if (sent && sent->ok() && got && got->ok() && bytes_of(answer)[0] == bytes_of(question)[0]) {
      ++right;
    }
  }
}

Task<> answer(AsyncOperations async, OperationPair& pair, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const KeptSlice message = pair.make(8);
    const auto got = co_await async.receive(*pair.b, message, patience);
    if (!got || !got->ok()) co_return;
    EXPECT_TRUE((co_await async.send(*pair.b, message, patience))->ok());
  }
}

TYPED_TEST(AsyncVerbs, BothEndsOnOneThread) {
  int right = 0;
  this->run(answer(this->b(), this->pair, 100), ask(this->a(), this->pair, 100, right));
  EXPECT_EQ(right, 100);
}

Task<> every_kind(AsyncOperations async, const OperationPair& pair) {
  auto theirs = pair.domain.allocate<std::uint64_t>(1, Access::all);
  const RemoteSlice target = theirs.remote();
  const KeptSlice own = pair.make(8);
  const std::uint64_t seven = 7;
  std::memcpy(bytes_of(own), &seven, sizeof seven);
  EXPECT_TRUE((co_await async.write(*pair.a, own, target, patience))->ok());
  EXPECT_EQ(theirs[0], 7U);
  EXPECT_TRUE((co_await async.fetch_and_add(*pair.a, own, target, 5, patience))->ok());
  EXPECT_EQ(theirs[0], 12U);
  EXPECT_TRUE((co_await async.compare_and_swap(*pair.a, own, target, 12, 9, patience))->ok());
  EXPECT_TRUE((co_await async.read(*pair.a, own, target, patience))->ok());
  std::uint64_t value = 0;
  std::memcpy(&value, bytes_of(own), sizeof value);
  EXPECT_EQ(value, 9U);
}

TYPED_TEST(AsyncVerbs, EveryKindOfRequest) {
  // Posted first: in roce, a send waits until the peer posts a receive.
  const Operation first = this->pair.b_operations->receive(*this->pair.b, KeptSlice());
  const Operation second = this->pair.b_operations->receive(*this->pair.b, this->pair.make(8));
  const Operation third = this->pair.b_operations->receive(*this->pair.b, this->pair.make(8));
  ASSERT_TRUE(first && second && third);
  this->run(every_kind(this->a(), this->pair), [](auto& self) -> Task<> {
    const auto theirs = self.pair.domain.template allocate<std::uint64_t>(1, Access::all);
    const RemoteSlice target = theirs.remote();
    const KeptSlice own = self.pair.make(8);
    const auto& queue_pair = *self.pair.a;
    auto done = co_await self.a().write_with_immediate(queue_pair, own, target, 5, patience);
    EXPECT_TRUE(done && done->ok());
    done = co_await self.a().send_with_immediate(queue_pair, own, 6, patience);
    EXPECT_TRUE(done && done->ok());
  }(*this));
  this->run([](auto& self, Operation written, Operation sent) -> Task<> {
    const auto first_got = co_await self.b().wait(written, patience);
    const auto second_got = co_await self.b().wait(sent, patience);
    EXPECT_EQ(first_got->immediate(), 5U);
    EXPECT_EQ(second_got->immediate(), 6U);
  }(*this, first, second));
  EXPECT_FALSE(third.settled());
}

// More coroutines than the queue pair has room for: each posts when it can.
TYPED_TEST(AsyncVerbs, ManyWaitAndEachGetsItsOwn) {
  constexpr std::uint64_t count = 64;
  const auto theirs = this->pair.domain.template allocate<std::byte>(count, Access::all);
  int left = count;
  std::set<std::uint64_t> ids;
  const auto write = [](auto& self, RemoteSlice to, std::uint64_t i, auto& seen,
                        int& open) -> Task<> {
    const KeptSlice own = self.pair.make(1);
    bytes_of(own)[0] = static_cast<std::byte>(i);
    const auto done = co_await self.a().write(*self.pair.a, own, to.slice(i, 1), patience);
    EXPECT_TRUE(done && done->ok());
    if (done) seen.insert(done->id());
    --open;
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    this->loop.start(write(*this, theirs.remote(), i, ids, left));
  }
  while (left > 0) this->loop.step(patience);
  EXPECT_EQ(ids.size(), count);
  for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(theirs[i], static_cast<std::byte>(i));
}

// The wait ends, the request goes on, and its memory is kept until it has completed.
TYPED_TEST(AsyncVerbs, AfterADeadlineOrAStopTheRequestKeepsItsMemory) {
  Watched late{};
  Watched stopped{};
  Watched destroyed{};
  std::stop_source source;
  this->run([](auto& self, Watched& watched) -> Task<> {
    const KeptSlice into = self.pair.make(8, watched);
    EXPECT_FALSE(co_await self.b().receive(*self.pair.b, into, 1ms));
  }(*this, late));
  std::thread stopper([&] { source.request_stop(); });
  this->run([](auto& self, Watched& watched, std::stop_token stop) -> Task<> {
    const KeptSlice into = self.pair.make(8, watched);
    EXPECT_FALSE(co_await self.b().receive(*self.pair.b, into, Deadline::never(), stop));
  }(*this, stopped, source.get_token()));
  stopper.join();
  {
    test::OwnLoop other;
    other.start([](Executor& executor, OperationPair& sides, Watched& watched) -> Task<> {
      const AsyncOperations async(executor, *sides.b_operations);
      const KeptSlice into = sides.make(8, watched);
      static_cast<void>(co_await async.receive(*sides.b, into, Deadline::never()));
      ADD_FAILURE() << "the loop ends first";
    }(other.executor(), this->pair, destroyed));
    other.step(Deadline::now());
  }
  for (const Watched* watched : {&late, &stopped, &destroyed}) {
    EXPECT_FALSE(watched->alive.expired());
  }
  EXPECT_EQ(this->pair.b_operations->under_way(), 3U);
  for (int i = 0; i < 3; ++i) {
    this->run([](auto& self) -> Task<> {
      const auto done = co_await self.a().send(*self.pair.a, self.pair.make(8), patience);
      EXPECT_TRUE(done && done->ok());
    }(*this));
  }
  const Operation last = this->pair.b_operations->receive(*this->pair.b, KeptSlice());
  this->run([](auto& self, const Operation& operation) -> Task<> {
    const auto sent = co_await self.a().send(*self.pair.a, KeptSlice(), patience);
    EXPECT_TRUE(sent && sent->ok());
    EXPECT_TRUE(co_await self.b().wait(operation, patience));
  }(*this, last));
  for (const Watched* watched : {&late, &stopped, &destroyed}) {
    EXPECT_TRUE(watched->alive.expired());
  }
}

TYPED_TEST(AsyncVerbs, WhatCannotBePostedThrows) {
  const auto theirs = this->pair.domain.template allocate<std::byte>(4, Access::all);
  const auto error_of = [](Task<std::optional<Completion>> task, int& error) -> Task<> {
    try {
      static_cast<void>(co_await task);
    } catch (const Error& failed) {
      error = failed.error_number();
    }
  };
  int error = 0;
  this->run(error_of(this->a().write(*this->pair.a, this->pair.make(8), theirs.remote(), patience),
                     error));
  EXPECT_EQ(error, EMSGSIZE);
  // Receives fill the queue; the wait for room has a deadline.
  while (this->pair.b_operations->receive(*this->pair.b, this->pair.make(8))) continue;
  this->run(error_of(this->b().receive(*this->pair.b, this->pair.make(8), 1ms), error));
  EXPECT_EQ(error, ETIMEDOUT);
  this->run(error_of(this->a().wait(Operation(), patience), error));
  EXPECT_EQ(error, EINVAL);
}

}  // namespace
}  // namespace weft::verbs::testing
