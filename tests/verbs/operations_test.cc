// Operations: requests that hold their memory until the device is done with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "support/empty_handle.h"
#include "verbs/operation_pair.h"
#include "weft/error.hpp"

namespace weft::verbs::testing {
namespace {

constexpr std::chrono::seconds patience{30};

// Neither the region's handle nor the slice is kept by the program.
TEST(Operations, ARequestHoldsItsMemoryUntilItHasCompleted) {
  OperationPair pair;
  Watched into{};
  const Operation got = pair.b_operations->receive(*pair.b, pair.make(8, into));
  ASSERT_TRUE(got);
  ASSERT_FALSE(into.alive.expired());
  EXPECT_FALSE(got.settled());
  EXPECT_FALSE(got.completion());
  const KeptSlice from = pair.make(8);
  std::memcpy(bytes_of(from), "Operatio", 8);
  const auto kept = into.alive.lock();
  const Operation sent = pair.a_operations->send(*pair.a, from);
  ASSERT_TRUE(sent);
  const auto received = pair.b_operations->wait(got, patience);
  ASSERT_TRUE(received && received->ok());
  EXPECT_EQ(received->size_bytes(), 8U);
  EXPECT_EQ(kept.use_count(), 1) << "the operation has let it go";
  EXPECT_EQ(std::memcmp(kept->data(), "Operatio", 8), 0);
  const auto done = pair.a_operations->wait(sent, patience);
  ASSERT_TRUE(done && done->ok());
  EXPECT_EQ(pair.a_operations->under_way(), 0U);
  EXPECT_TRUE(got.settled() && got.completion());
}

TEST(Operations, EveryKindOfRequest) {
  OperationPair pair;
  auto theirs = pair.domain.allocate<std::uint64_t>(4, Access::all);
  Operations& operations = *pair.a_operations;
  const KeptSlice own = pair.make(8);
  const auto value = [&](const KeptSlice& slice) {
    std::uint64_t number = 0;
    std::memcpy(&number, bytes_of(slice), sizeof number);
    return number;
  };
  const auto succeeds = [&](const Operation& operation) {
    const auto done = operations.wait(operation, patience);
    return operation && done && done->ok();
  };
  const std::uint64_t seven = 7;
  std::memcpy(bytes_of(own), &seven, sizeof seven);
  const RemoteSlice target = theirs.remote().slice(0, 8);
  EXPECT_TRUE(succeeds(operations.write(*pair.a, own, target)));
  EXPECT_EQ(theirs[0], 7U);
  const KeptSlice back = pair.make(8);
  EXPECT_TRUE(succeeds(operations.fetch_and_add(*pair.a, back, target, 5)));
  EXPECT_EQ(value(back), 7U);
  EXPECT_TRUE(succeeds(operations.compare_and_swap(*pair.a, back, target, 12, 40)));
  EXPECT_EQ(value(back), 12U);
  EXPECT_TRUE(succeeds(operations.read(*pair.a, back, target)));
  EXPECT_EQ(value(back), 40U);

  const Operation first = pair.b_operations->receive(*pair.b, KeptSlice());
  const Operation second = pair.b_operations->receive(*pair.b, pair.make(8));
  const Operation third = pair.b_operations->receive(*pair.b, KeptSlice());
  EXPECT_TRUE(succeeds(operations.write_with_immediate(*pair.a, own, target, 0x1234)));
  EXPECT_TRUE(succeeds(operations.send_with_immediate(*pair.a, own, 0x5678)));
  EXPECT_TRUE(succeeds(operations.send(*pair.a, KeptSlice())));
  const auto written = pair.b_operations->wait(first, patience);
  const auto sent = pair.b_operations->wait(second, patience);
  const auto empty = pair.b_operations->wait(third, patience);
  ASSERT_TRUE(written && sent && empty);
  EXPECT_EQ(written->immediate(), 0x1234U);
  EXPECT_EQ(sent->immediate(), 0x5678U);
  EXPECT_TRUE(empty->ok());
  EXPECT_EQ(empty->size_bytes(), 0U);
}

TEST(Operations, AFailedRequestLetsItsMemoryGo) {
  OperationPair pair;
  Watched into{};
  const Operation got = pair.b_operations->receive(*pair.b, pair.make(8, into));
  pair.b->fail();
  const auto flushed = pair.b_operations->wait(got, patience);
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(into.alive.expired());
}

TEST(Operations, TheEndOfOperationsEndsTheirRequestsFirst) {
  OperationPair pair;
  Watched first{};
  Watched second{};
  const Operation one = pair.b_operations->receive(*pair.b, pair.make(8, first));
  const Operation other = pair.b_operations->receive(*pair.b, pair.make(8, second));
  ASSERT_TRUE(one && other);
  pair.b_operations.reset();
  EXPECT_TRUE(first.alive.expired());
  EXPECT_TRUE(second.alive.expired());
  EXPECT_TRUE(one.settled());
  ASSERT_TRUE(one.completion());
  EXPECT_EQ(one.completion()->status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b->state(), IBV_QPS_ERR);
}

// The device forgets the requests of a queue pair that is destroyed: no completion comes.
TEST(Operations, AQueuePairMayBeDestroyedFirst) {
  OperationPair pair;
  Watched into{};
  const Operation got = pair.b_operations->receive(*pair.b, pair.make(8, into));
  ASSERT_TRUE(got);
  pair.b.reset();
  EXPECT_TRUE(got.settled());
  EXPECT_FALSE(got.completion());
  EXPECT_EQ(pair.b_operations->under_way(), 0U);
  pair.b_operations.reset();
}

TEST(Operations, WhatCannotBePostedHoldsNothing) {
  OperationPair pair(64, 4);
  const auto theirs = pair.domain.allocate<std::byte>(4, Access::all);
  Watched from{};
  const Operation longer = pair.a_operations->write(*pair.a, pair.make(8, from), theirs.remote());
  EXPECT_FALSE(longer);
  EXPECT_EQ(longer.error_number(), EMSGSIZE);
  EXPECT_TRUE(from.alive.expired());
  EXPECT_FALSE(longer.settled());
  try {
    static_cast<void>(pair.a_operations->wait(longer, patience));
    ADD_FAILURE() << "an operation that was not posted has no end";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
  }
  int posted = 0;
  Operation last;
  while ((last = pair.b_operations->receive(*pair.b, pair.make(8)))) ++posted;
  EXPECT_EQ(last.error_number(), ENOMEM);
  EXPECT_GE(posted, 4);
  EXPECT_EQ(pair.b_operations->under_way(), static_cast<std::size_t>(posted));
}

// A completion queue that overflows would break its queue pairs.
TEST(Operations, TheCompletionQueueCannotOverflow) {
  OperationPair pair(4, 64);
  const auto capacity = static_cast<std::size_t>(pair.b_operations->queue().capacity());
  std::size_t posted = 0;
  while (pair.b_operations->receive(*pair.b, KeptSlice())) ++posted;
  EXPECT_EQ(posted, std::min<std::size_t>(capacity, 64));
  EXPECT_EQ(pair.b->state(), IBV_QPS_RTS);
}

TEST(Operations, DirectRequestsGoBesideThem) {
  OperationPair pair;
  auto theirs = pair.domain.allocate<char>(8, Access::all);
  auto own = pair.domain.allocate<char>(8);
  own[0] = 'w';
  ASSERT_EQ(pair.a->post_write(own.slice(), theirs.remote(), 42), 0);
  const Operation written = pair.a_operations->write(*pair.a, own.keep(), theirs.remote());
  ASSERT_TRUE(pair.a_operations->wait(written, patience));
  const auto other = pair.a_operations->take_other();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->id(), 42U);
  EXPECT_FALSE(pair.a_operations->take_other());
}

TEST(Operations, AWaitHasADeadlineAndCanBeStopped) {
  OperationPair pair;
  const Operation got = pair.b_operations->receive(*pair.b, pair.make(8));
  EXPECT_FALSE(pair.b_operations->wait(got, std::chrono::milliseconds(1)));
  std::stop_source source;
  std::thread stopper([&] { source.request_stop(); });
  EXPECT_FALSE(pair.b_operations->wait(got, Deadline::never(), source.get_token()));
  stopper.join();
  EXPECT_FALSE(got.settled());
}

// Each thread waits for its own request; whichever of them polls settles those of the others.
TEST(Operations, ThreadsWaitForTheirOwnRequests) {
  OperationPair pair(256, 64);
  constexpr int threads = 4;
  constexpr int rounds = 100;
  std::vector<std::thread> all;
  auto theirs = pair.domain.allocate<std::uint64_t>(threads, Access::all);
  std::atomic<int> right{0};
  for (int thread = 0; thread < threads; ++thread) {
    all.emplace_back([&, thread] {
      const RemoteSlice target = theirs.remote().slice(static_cast<std::uint64_t>(thread) * 8, 8);
      for (int round = 0; round < rounds; ++round) {
        const KeptSlice before = pair.make(8);
        const Operation added = pair.a_operations->fetch_and_add(*pair.a, before, target, 1);
        const auto done = pair.a_operations->wait(added, patience);
        std::uint64_t value = 0;
        std::memcpy(&value, bytes_of(before), sizeof value);
        if (done && done->ok() && value == static_cast<std::uint64_t>(round)) ++right;
      }
    });
  }
  for (auto& thread : all) thread.join();
  EXPECT_EQ(right, threads * rounds);
}

// Each region is deregistered as soon as its request has completed, while later requests are under
// way.
TEST(Deregistering, LeavesRequestsAloneThatUseOtherMemory) {
  OperationPair pair;
  const auto theirs = pair.domain.allocate<std::uint64_t>(4, Access::all);
  std::vector<std::optional<TypedRegion<std::uint64_t>>> own(4);
  for (std::size_t i = 0; i < own.size(); ++i) {
    own[i].emplace(pair.domain.allocate<std::uint64_t>(1));
    const RemoteSlice target = theirs.remote().slice(i * 8, 8);
    ASSERT_EQ(pair.a->post_fetch_and_add(own[i]->slice(), target, 1, i), 0);
  }
  const auto& queue = pair.a_operations->queue();
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::array<Completion, 1> one;
    const auto got = queue.wait(one, patience);
    ASSERT_EQ(got.size(), 1U);
    EXPECT_TRUE(got[0].ok()) << got[0].status_name();
    own[got[0].id()].reset();
  }
}

TEST(KeptSlice, OutlivesItsRegion) {
  OperationPair pair;
  const KeptSlice part = pair.domain.allocate<std::uint32_t>(8).keep(2, 3);
  EXPECT_EQ(part.size_bytes(), 12U);
  std::memset(bytes_of(part), 1, 12);  // not freed: AddressSanitizer would see it
  const auto region = pair.domain.allocate<std::uint32_t>(8);
  EXPECT_EQ(region.keep(2, 3).slice().address(), region.slice(2, 3).address());
  EXPECT_THROW(static_cast<void>(region.keep(7, 2)), std::out_of_range);
}

TEST(EmptyOperations, ThrowWithTheirName) {
  OperationPair pair;
  Operations& empty = *pair.a_operations;
  const QueuePair& queue_pair = *pair.a;
  const RemoteSlice remote{};
  Operations taken = std::move(empty);
  const Operation posted = taken.receive(queue_pair, pair.make(8));
  ASSERT_TRUE(posted);
  test::expect_empty(
      "weft::verbs::Operations", [&] { (void)empty.queue(); },
      [&] { empty.send(queue_pair, pair.make(8)); },
      [&] { empty.send_with_immediate(queue_pair, pair.make(8), 1); },
      [&] { empty.receive(queue_pair, pair.make(8)); },
      [&] { empty.write(queue_pair, pair.make(8), remote); },
      [&] { empty.write_with_immediate(queue_pair, pair.make(8), remote, 1); },
      [&] { empty.read(queue_pair, pair.make(8), remote); },
      [&] { empty.fetch_and_add(queue_pair, pair.make(8), remote, 1); },
      [&] { empty.compare_and_swap(queue_pair, pair.make(8), remote, 1, 2); },
      [&] { empty.poll(); }, [&] { (void)empty.wait(posted, Deadline::now()); },
      [&] { (void)empty.wait(Operation(), Deadline::now()); }, [&] { (void)empty.under_way(); },
      [&] { (void)empty.take_other(); });
  EXPECT_EQ(taken.under_way(), 1U);
  empty = std::move(taken);
  EXPECT_EQ(empty.under_way(), 1U);
}

}  // namespace
}  // namespace weft::verbs::testing
