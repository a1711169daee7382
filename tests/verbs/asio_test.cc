// Requests of queue pairs within Asio's own event loop, by objects of Asio.
#include "weft/verbs/asio.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "support/asio.h"
#include "support/empty_handle.h"
#include "verbs/operation_pair.h"

#define AsioRequests WEFT_ASIO_SUITE(AsioRequests)

namespace weft::verbs::testing {
namespace {

using test::AsioCode;
using test::run_to_end;

class AsioRequests : public ::testing::Test {
 protected:
  static auto succeeds(int& count) {
    return [&count](AsioCode failed, const Completion& completion) {
      EXPECT_FALSE(failed) << failed.message();
      EXPECT_TRUE(completion.ok());
      ++count;
    };
  }

  asio::io_context context_;
  OperationPair pair_;
  AsioOperations a_{context_.get_executor(), *pair_.a_operations};
  AsioOperations b_{context_.get_executor(), *pair_.b_operations};
};

TEST_F(AsioRequests, EachRequestEndsWithItsCompletion) {
  const auto target = pair_.domain.allocate<std::uint64_t>(4, Access::all);
  const auto before = pair_.domain.allocate<std::uint64_t>(1);
  int done = 0;
  std::optional<std::uint32_t> immediate;
  b_.async_receive(*pair_.b, pair_.make(64), succeeds(done));
  b_.async_receive(*pair_.b, pair_.make(64), [&](AsioCode failed, const Completion& got) {
    EXPECT_FALSE(failed) << failed.message();
    immediate = got.immediate();
  });
  b_.async_receive(*pair_.b, pair_.make(64), succeeds(done));
  a_.async_send(*pair_.a, pair_.make(64), succeeds(done));
  a_.async_send_with_immediate(*pair_.a, pair_.make(8), 77, succeeds(done));
  a_.async_write(*pair_.a, pair_.make(8), target.remote().slice(8, 8), succeeds(done));
  a_.async_write_with_immediate(*pair_.a, pair_.make(8), target.remote().slice(8, 8), 5,
                                succeeds(done));
  a_.async_read(*pair_.a, pair_.make(8), target.remote().slice(8, 8), succeeds(done));
  a_.async_fetch_and_add(*pair_.a, before.keep(), target.remote(), 5, succeeds(done));
  a_.async_compare_and_swap(*pair_.a, before.keep(), target.remote(), 5, 9, succeeds(done));
  run_to_end(context_);
  EXPECT_EQ(done, 9);
  EXPECT_EQ(immediate, 77U);
  EXPECT_EQ(before[0], 5U);
  EXPECT_EQ(target[0], 9U);
}

TEST_F(AsioRequests, MoreThanTheQueueHoldsWaitsForRoom) {
  constexpr int count = 100;
  const auto target = pair_.domain.allocate<std::uint64_t>(1, Access::all);
  int done = 0;
  for (int i = 0; i < count; ++i) {
    a_.async_write(*pair_.a, pair_.make(8), target.remote(), succeeds(done));
  }
  run_to_end(context_);
  EXPECT_EQ(done, count);
}

TEST_F(AsioRequests, FailuresAreErrorsOfAsio) {
  const auto small = pair_.domain.allocate<std::uint64_t>(1, Access::all);
  std::vector<AsioCode> ends;
  const auto note = [&](AsioCode failed, const Completion& none) {
    EXPECT_FALSE(none.ok());
    ends.push_back(failed);
  };
  a_.async_write(*pair_.a, pair_.make(64), small.remote(), note);  // too long: not posted
  run_to_end(context_);
  b_.async_receive(*pair_.b, pair_.make(8), note);
  while (context_.poll() != 0) continue;
  pair_.b->fail();
  run_to_end(context_);
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ends[0].value(), EMSGSIZE);
  EXPECT_EQ(ends[1], asio::error::connection_aborted) << ends[1].message();
}

// The request goes on, and its memory is kept until it has completed.
TEST_F(AsioRequests, ACancelledOperationLeavesItsRequest) {
  Watched watched;
  std::optional<AsioCode> end;
  int done = 0;
  b_.async_receive(*pair_.b, pair_.make(8, watched),
                   [&](AsioCode failed, const Completion&) { end = failed; });
  asio::post(context_, [&] { b_.cancel(); });
  run_to_end(context_);
  ASSERT_TRUE(end);
  EXPECT_EQ(*end, asio::error::operation_aborted);
  EXPECT_FALSE(watched.alive.expired());
  a_.async_send(*pair_.a, pair_.make(8), succeeds(done));
  run_to_end(context_);
  EXPECT_EQ(done, 1);
  while (pair_.b_operations->under_way() != 0) pair_.b_operations->poll();
  EXPECT_TRUE(watched.alive.expired());
}

TEST_F(AsioRequests, DestructionEndsWhatWaits) {
  std::optional<AsioCode> end;
  {
    AsioOperations other(context_.get_executor(), *pair_.b_operations);
    other.async_receive(*pair_.b, pair_.make(8),
                        [&](AsioCode failed, const Completion&) { end = failed; });
    while (context_.poll() != 0) continue;
  }
  run_to_end(context_);
  ASSERT_TRUE(end);
  EXPECT_EQ(*end, asio::error::operation_aborted);
}

TEST_F(AsioRequests, CoroutinesAwaitThem) {
  int rounds = 0;
  const auto echo = [](AsioOperations& side, OperationPair& pair) -> asio::awaitable<void> {
    for (int i = 0; i < 100; ++i) {
      co_await side.async_receive(*pair.b, pair.make(8), asio::use_awaitable);
      co_await side.async_send(*pair.b, pair.make(8), asio::use_awaitable);
    }
  };
  const auto ask = [](AsioOperations& side, OperationPair& pair,
                      int& count) -> asio::awaitable<void> {
    for (int i = 0; i < 100; ++i) {
      const Operation got = pair.a_operations->receive(*pair.a, pair.make(8));
      co_await side.async_send(*pair.a, pair.make(8), asio::use_awaitable);
      co_await side.async_wait(got, asio::use_awaitable);
      ++count;
    }
  };
  asio::co_spawn(context_, echo(b_, pair_), test::expect_no_exception);
  asio::co_spawn(context_, ask(a_, pair_, rounds), test::expect_no_exception);
  run_to_end(context_);
  EXPECT_EQ(rounds, 100);
}

#ifndef WEFT_USE_BOOST_ASIO
TEST_F(AsioRequests, ASlotCancelsItsOperationOnly) {
  asio::cancellation_signal signal;
  std::optional<AsioCode> cancelled;
  int done = 0;
  b_.async_receive(
      *pair_.b, pair_.make(8),
      asio::bind_cancellation_slot(signal.slot(), [&](AsioCode failed, const Completion&) {
        cancelled = failed;
        for (int i = 0; i < 2; ++i) {
          a_.async_send(*pair_.a, pair_.make(8), succeeds(done));
        }
      }));
  b_.async_receive(*pair_.b, pair_.make(8), succeeds(done));
  asio::post(context_, [&] { signal.emit(asio::cancellation_type::total); });
  run_to_end(context_);
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(*cancelled, asio::error::operation_aborted);
  EXPECT_EQ(done, 3);
}
#endif

TEST_F(AsioRequests, EmptyHandlesSaySo) {
  const AsioOperations kept = std::move(a_);
  test::expect_empty(
      "weft::verbs::AsioOperations", [&] { (void)a_.get_executor(); }, [&] { a_.cancel(); },
      [&] { a_.async_send(*pair_.a, KeptSlice(), [](auto...) {}); });
}

}  // namespace
}  // namespace weft::verbs::testing
