// weft::connection within Asio's own event loop: tasks, and objects of Asio.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "support/asio.h"
#include "support/empty_handle.h"
#include "support/host.h"
#include "weft/asio.hpp"
#include "weft/connection.hpp"
#include "weft/connection/asio.hpp"

#define AsioConnections WEFT_ASIO_SUITE(AsioConnections)
#define AsioConnectionAlone WEFT_ASIO_SUITE(AsioConnectionAlone)
#define AsioTasks WEFT_ASIO_SUITE(AsioTasks)

namespace weft::connection {
namespace {

using namespace std::chrono_literals;
using test::AsioCode;
using test::run_to_end;
constexpr auto patience = 30s;

// --- Tasks ---------------------------------------------------------------------------------------

Task<int> later(int value) {
  co_return value;
}

Task<> fails() {
  throw Error(EIO, "as it should");
  co_return;
}

asio::awaitable<bool> greet(AsioExecutor& executor, std::uint16_t port) {
  const Async async(executor);
  auto peer =
      co_await executor.run(async.connect({test::host(), port}, patience), asio::use_awaitable);
  const auto text = peer->allocate(8);
  const auto sent =
      co_await executor.run(async.send(*peer, text.slice(), patience), asio::use_awaitable);
  co_return sent && sent->ok();
}

TEST(AsioTasks, AnAwaitableOfAsioAwaitsOurs) {
  asio::io_context context;
  AsioExecutor executor(context.get_executor());
  Listener listener({test::host(), 0});
  std::thread passive([&] {
    auto request = listener.next(patience);
    const auto into = request->allocate(8);
    EXPECT_EQ(request->post_receive(into.slice(), 1), 0);
    auto peer = std::move(*request).accept({}, patience);
    EXPECT_EQ(peer.await(Queue::receive, 1, patience).size(), 1U);
    static_cast<void>(peer.await_disconnect(patience));
  });
  bool sent = false;
  asio::co_spawn(context, greet(executor, listener.port()),
                 [&](const std::exception_ptr& failed, bool answer) {
                   EXPECT_FALSE(failed);
                   sent = answer;
                 });
  context.run();
  passive.join();
  EXPECT_TRUE(sent);
}

TEST(AsioTasks, FuturesAndErrors) {
  asio::io_context context;
  AsioExecutor executor(context.get_executor());
  auto value = executor.run(later(42), asio::use_future);
  auto failed = executor.run(fails(), asio::use_future);
  context.run();
  EXPECT_EQ(value.get(), 42);
  EXPECT_THROW(failed.get(), Error);
}

TEST(AsioTasks, NoHandlerIsCalledByRun) {
  asio::io_context context;
  AsioExecutor executor(context.get_executor());
  bool returned = false;
  bool called = false;
  asio::post(context, [&] {
    executor.run(later(1), [&](const std::exception_ptr& failed, int value) {
      EXPECT_TRUE(returned);
      EXPECT_FALSE(failed);
      called = value == 1;
    });
    returned = true;
  });
  run_to_end(context);
  EXPECT_TRUE(called);
}

int errno_of(const std::exception_ptr& failed) {
  try {
    if (failed) std::rethrow_exception(failed);
  } catch (const Error& error) {
    return error.error_number();
  }
  return 0;
}

// What waits without end, and whether it was destroyed.
Task<bool> waits(AsioExecutor& executor, Listener& listener, std::shared_ptr<int> held,
                 std::stop_token stop) {
  const auto request = co_await Async(executor).next(listener, Deadline::never(), std::move(stop));
  co_return held && !request;
}

TEST(AsioTasks, AnExecutorThatIsDestroyedEndsItsTasks) {
  asio::io_context context;
  std::optional<AsioExecutor> executor(std::in_place, context.get_executor());
  Listener listener({test::host(), 0});
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> alive = held;
  int ended = 0;
  executor->run(waits(*executor, listener, std::exchange(held, nullptr), {}),
                [&](const std::exception_ptr& failed, bool) { ended = errno_of(failed); });
  while (context.poll() != 0) continue;
  EXPECT_FALSE(alive.expired());
  executor.reset();
  EXPECT_TRUE(alive.expired());
  run_to_end(context);
  EXPECT_EQ(ended, ECANCELED);
}

TEST(AsioTasks, ALoopThatEndsDestroysTasksAndHandlers) {
  auto context = std::make_unique<asio::io_context>();
  Listener listener({test::host(), 0});
  auto executor = std::make_shared<AsioExecutor>(context->get_executor());
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> alive = held;
  AsioExecutor& used = *executor;
  used.run(waits(used, listener, std::exchange(held, nullptr), {}),
           [owner = std::exchange(executor, nullptr)](const std::exception_ptr&, bool) {
             ADD_FAILURE() << "the loop has ended";
           });
  while (context->poll() != 0) continue;
  EXPECT_FALSE(alive.expired());
  context.reset();
  EXPECT_TRUE(alive.expired());
}

#ifndef WEFT_USE_BOOST_ASIO
TEST(AsioTasks, ASlotDestroysATask) {
  asio::io_context context;
  AsioExecutor executor(context.get_executor());
  Listener listener({test::host(), 0});
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> alive = held;
  asio::cancellation_signal signal;
  int ended = 0;
  executor.run(
      waits(executor, listener, std::exchange(held, nullptr), {}),
      asio::bind_cancellation_slot(signal.slot(), [&](const std::exception_ptr& failed, bool) {
        ended = errno_of(failed);
      }));
  asio::post(context, [&] { signal.emit(asio::cancellation_type::terminal); });
  run_to_end(context);
  EXPECT_EQ(ended, ECANCELED);
  EXPECT_TRUE(alive.expired());
}

TEST(AsioTasks, ASlotRequestsAStop) {
  asio::io_context context;
  AsioExecutor executor(context.get_executor());
  Listener listener({test::host(), 0});
  asio::cancellation_signal signal;
  bool stopped = false;
  executor.run(
      [&](std::stop_token stop) {
        return waits(executor, listener, std::make_shared<int>(), std::move(stop));
      },
      asio::bind_cancellation_slot(signal.slot(), [&](const std::exception_ptr& failed, bool end) {
        EXPECT_FALSE(failed) << "the task itself has ended";
        stopped = end;
      }));
  asio::post(context, [&] { signal.emit(asio::cancellation_type::total); });
  run_to_end(context);
  EXPECT_TRUE(stopped);
}
#endif

// --- Objects -------------------------------------------------------------------------------------

// Two ends that are connected, and a loop that a test runs itself.
class AsioConnections : public testing::Test {
 protected:
  AsioConnections() {
    std::optional<AsioCode> connected;
    listener_.async_accept([&](AsioCode failed, AsioConnection peer) {
      EXPECT_FALSE(failed) << failed.message();
      passive_.emplace(std::move(peer));
    });
    active_.async_connect({test::host(), listener_.port()}, options(),
                          [&](AsioCode failed) { connected = failed; });
    run_to_end(context_);
    EXPECT_TRUE(connected && !*connected);
    EXPECT_TRUE(passive_.has_value());
  }
  static Options options() { return {.queue_depth = 4, .advertisements = true}; }
  // Expects that the operation is successful.
  static auto succeeds(int& count) {
    return [&count](AsioCode failed, const Outcome& outcome) {
      EXPECT_FALSE(failed) << failed.message();
      EXPECT_TRUE(outcome.ok());
      ++count;
    };
  }

  asio::io_context context_;
  AsioListener listener_{context_.get_executor(), {test::host(), 0}, options()};
  AsioConnection active_{context_.get_executor()};
  std::optional<AsioConnection> passive_;
};

TEST_F(AsioConnections, SendsAndReceivesByEitherKindOfSlice) {
  const auto from = active_.connection().allocate(8);
  const auto into = passive_->connection().allocate(8);
  from.bytes()[0] = std::byte{7};
  int done = 0;
  passive_->async_receive(into.slice(), [&](AsioCode failed, const Outcome& outcome) {
    EXPECT_FALSE(failed) << failed.message();
    EXPECT_EQ(outcome.size_bytes, 8U);
    EXPECT_EQ(into.bytes()[0], std::byte{7});
    ++done;
  });
  passive_->async_receive(passive_->connection().allocate(8).keep(), succeeds(done));
  active_.async_send(from.slice(), succeeds(done));
  active_.async_send(active_.connection().allocate(8).keep(), succeeds(done));
  run_to_end(context_);
  EXPECT_EQ(done, 4);
}

TEST_F(AsioConnections, MoreThanTheQueueHoldsWaitsForRoom) {
  constexpr int count = 40;
  int done = 0;
  const auto target = passive_->connection().allocate(8, Access::all);
  for (int i = 0; i < count; ++i) {
    active_.async_write(active_.connection().allocate(8).keep(), target.remote(), 0,
                        succeeds(done));
  }
  run_to_end(context_);
  EXPECT_EQ(done, count);
}

TEST_F(AsioConnections, AdvertisedMemoryIsWrittenAndRead) {
  const auto target = passive_->connection().allocate(64, Access::all);
  std::optional<RemoteBuffer> remote;
  active_.async_await_advertisement([&](AsioCode failed, const Advertisement& found) {
    EXPECT_FALSE(failed) << failed.message();
    EXPECT_EQ(found.tag, 5U);
    remote = found.buffer;
  });
  passive_->connection().advertise(target.remote(), 5);
  run_to_end(context_);
  ASSERT_TRUE(remote);
  const auto mine = active_.connection().allocate(8);
  mine.bytes()[0] = std::byte{9};
  int done = 0;
  active_.async_write(mine.slice(), *remote, 16, [&](AsioCode failed, const Outcome&) {
    EXPECT_FALSE(failed) << failed.message();
    EXPECT_EQ(target.bytes()[16], std::byte{9});
    target.bytes()[16] = std::byte{10};
    active_.async_read(mine.slice(), *remote, 16, succeeds(done));
  });
  run_to_end(context_);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(mine.bytes()[0], std::byte{10});
  // What is beyond the peer's buffer is refused before it is posted.
  std::optional<AsioCode> refused;
  active_.async_write(mine.slice(), *remote, 60,
                      [&](AsioCode failed, const Outcome&) { refused = failed; });
  run_to_end(context_);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->value(), EMSGSIZE);
}

TEST_F(AsioConnections, TheEndOfAConnectionEndsWhatWaits) {
  std::optional<AsioCode> received;
  std::optional<AsioCode> advertised;
  std::optional<AsioCode> disconnected;
  passive_->async_receive(passive_->connection().allocate(8).keep(),
                          [&](AsioCode failed, const Outcome& outcome) {
                            received = failed;
                            EXPECT_FALSE(outcome.ok());
                          });
  passive_->async_await_advertisement(
      [&](AsioCode failed, const Advertisement&) { advertised = failed; });
  passive_->async_await_disconnect([&](AsioCode failed) { disconnected = failed; });
  asio::post(context_, [&] { active_.connection().disconnect(); });
  run_to_end(context_);
  ASSERT_TRUE(received && advertised && disconnected);
  EXPECT_EQ(*received, asio::error::connection_aborted) << received->message();
  EXPECT_EQ(*advertised, asio::error::eof) << advertised->message();
  EXPECT_FALSE(*disconnected) << disconnected->message();
}

TEST_F(AsioConnections, CancelEndsWhatWaitsAndNothingElse) {
  std::optional<AsioCode> received;
  int done = 0;
  passive_->async_receive(passive_->connection().allocate(8).keep(),
                          [&](AsioCode failed, const Outcome&) { received = failed; });
  asio::post(context_, [&] { passive_->cancel(); });
  run_to_end(context_);
  ASSERT_TRUE(received);
  EXPECT_EQ(*received, asio::error::operation_aborted);
  // The receive has stayed posted.
  active_.async_send(active_.connection().allocate(8).keep(), succeeds(done));
  run_to_end(context_);
  EXPECT_EQ(done, 1);
}

TEST_F(AsioConnections, DestructionEndsWhatWaits) {
  std::optional<AsioCode> received;
  std::optional<AsioCode> accepted;
  passive_->async_receive(passive_->connection().allocate(8).keep(),
                          [&](AsioCode failed, const Outcome&) { received = failed; });
  {
    AsioListener other(context_.get_executor(), {test::host(), 0});
    other.async_accept([&](AsioCode failed, const AsioConnection&) { accepted = failed; });
    while (context_.poll() != 0) continue;
  }
  passive_.reset();
  run_to_end(context_);
  ASSERT_TRUE(received && accepted);
  EXPECT_EQ(*received, asio::error::operation_aborted);
  EXPECT_EQ(*accepted, asio::error::operation_aborted);
}

#ifndef WEFT_USE_BOOST_ASIO
TEST_F(AsioConnections, ASlotCancelsItsOperationOnly) {
  asio::cancellation_signal signal;
  std::optional<AsioCode> cancelled;
  int done = 0;
  passive_->async_receive(
      passive_->connection().allocate(8).keep(),
      asio::bind_cancellation_slot(signal.slot(), [&](AsioCode failed, const Outcome&) {
        cancelled = failed;
        active_.async_send(active_.connection().allocate(8).keep(), succeeds(done));
        active_.async_send(active_.connection().allocate(8).keep(), succeeds(done));
      }));
  passive_->async_receive(passive_->connection().allocate(8).keep(), succeeds(done));
  asio::post(context_, [&] { signal.emit(asio::cancellation_type::total); });
  run_to_end(context_);
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(*cancelled, asio::error::operation_aborted);
  EXPECT_EQ(done, 3);
}
#endif

TEST_F(AsioConnections, ARequestCanHaveReceivesBeforeItIsAccepted) {
  AsioConnection other(context_.get_executor());
  std::optional<AsioConnection> accepted;
  std::optional<Buffer> into;
  std::vector<Outcome> got;
  listener_.async_next([&](AsioCode failed, std::optional<Request> request) {
    ASSERT_FALSE(failed) << failed.message();
    into.emplace(request->allocate(8));
    EXPECT_EQ(request->post_receive(into->slice(), 3), 0);
    listener_.async_accept(std::move(*request), {}, [&](AsioCode lost, AsioConnection peer) {
      EXPECT_FALSE(lost) << lost.message();
      accepted.emplace(std::move(peer));
    });
  });
  other.async_connect({test::host(), listener_.port()}, [&](AsioCode failed) {
    ASSERT_FALSE(failed) << failed.message();
    other.async_send(other.connection().allocate(4).keep(),
                     [&](AsioCode lost, const Outcome&) { EXPECT_FALSE(lost) << lost.message(); });
  });
  run_to_end(context_);
  ASSERT_TRUE(accepted);
  got = accepted->connection().await(Queue::receive, 1, patience);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].id, 3U);
}

TEST_F(AsioConnections, CoroutinesAwaitThem) {
  int rounds = 0;
  const auto echo = [](AsioConnection& side, int& count) -> asio::awaitable<void> {
    const auto into = side.connection().allocate(8);
    for (int i = 0; i < 100; ++i) {
      const auto got = co_await side.async_receive(into.keep(), asio::use_awaitable);
      co_await side.async_send(into.slice().slice(0, got.size_bytes), asio::use_awaitable);
      ++count;
    }
  };
  const auto ask = [](AsioConnection& side, int& count) -> asio::awaitable<void> {
    const auto text = side.connection().allocate(8);
    for (int i = 0; i < 100; ++i) {
      co_await side.async_send(text.slice(), asio::use_awaitable);
      co_await side.async_receive(text.slice(), asio::use_awaitable);
      ++count;
    }
  };
  asio::co_spawn(context_, echo(*passive_, rounds), test::expect_no_exception);
  asio::co_spawn(context_, ask(active_, rounds), test::expect_no_exception);
  run_to_end(context_);
  EXPECT_EQ(rounds, 200);
}

TEST(AsioConnectionAlone, ErrorsAreThoseOfAsio) {
  asio::io_context context;
  AsioConnection connection(context.get_executor());
  std::optional<AsioCode> early;
  std::optional<AsioCode> refused;
  EXPECT_THROW(static_cast<void>(connection.connection()), Error);
  connection.async_receive(LocalSlice(), [&](AsioCode failed, const Outcome&) { early = failed; });
  std::uint16_t free_port = 0;
  {
    const Listener listener({test::host(), 0});
    free_port = listener.port();
  }
  connection.async_connect({test::host(), free_port}, [&](AsioCode failed) { refused = failed; });
  run_to_end(context);
  ASSERT_TRUE(early && refused);
  EXPECT_EQ(*early, asio::error::not_connected) << early->message();
  EXPECT_EQ(*refused, asio::error::connection_refused) << refused->message();
}

TEST(AsioConnectionAlone, EmptyHandlesSaySo) {
  asio::io_context context;
  AsioConnection connection(context.get_executor());
  const AsioConnection kept = std::move(connection);
  const auto ignore = [](auto...) {};
  test::expect_empty(
      "weft::connection::AsioConnection", [&] { (void)connection.get_executor(); },
      [&] { (void)connection.connection(); }, [&] { connection.cancel(); },
      [&] { connection.async_receive(LocalSlice(), ignore); },
      [&] { connection.async_await_disconnect(ignore); });
  AsioListener listener(context.get_executor(), {test::host(), 0});
  const AsioListener kept_listener = std::move(listener);
  test::expect_empty(
      "weft::connection::AsioListener", [&] { (void)listener.get_executor(); },
      [&] { (void)listener.port(); }, [&] { listener.async_accept(ignore); },
      [&] { listener.async_next(ignore); });
}

}  // namespace
}  // namespace weft::connection
