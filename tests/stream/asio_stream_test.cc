// weft::stream as a stream of Asio, standalone and Boost's: see CMakeLists.txt.
#include "weft/stream/asio.hpp"

#include <gtest/gtest.h>

#ifdef WEFT_USE_BOOST_ASIO
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>
namespace asio = boost::asio;
using error_code = boost::system::error_code;
#define AsioStreams BoostAsioStreams
#define AsioStreamAlone BoostAsioStreamAlone
#else
#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/read.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <asio/write.hpp>
using asio::error_code;
#endif

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "stream/sides.h"
#include "support/empty_handle.h"
#include "support/host.h"

namespace weft::stream {
namespace {

// All layers have their objects for Asio in their own namespace.
static_assert(std::is_same_v<weft::stream::AsioStream, weft::AsioStream>);
static_assert(std::is_same_v<weft::stream::AsioListener, weft::AsioListener>);

using Bytes = std::vector<unsigned char>;

Bytes some_bytes(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
  return bytes;
}

// Two ends that are connected, and a loop that a test runs itself.
class AsioStreams : public testing::Test {
 protected:
  AsioStreams() {
    std::optional<error_code> connected;
    listener_.async_accept([&](error_code failed, AsioStream peer) {
      EXPECT_FALSE(failed) << failed.message();
      passive_.emplace(std::move(peer));
    });
    active_.async_connect({test::host(), listener_.port()},
                          [&](error_code failed) { connected = failed; });
    run();
    EXPECT_TRUE(connected && !*connected);
    EXPECT_TRUE(passive_.has_value());
  }
  // Until no operation is left.
  void run() {
    context_.restart();
    context_.run_for(test_timeout);
    EXPECT_TRUE(context_.stopped()) << "operations do not end";
  }

  asio::io_context context_;
  AsioListener listener_{context_.get_executor(), {test::host(), 0}};
  AsioStream active_{context_.get_executor()};
  std::optional<AsioStream> passive_;
};

TEST_F(AsioStreams, ComposedOperationsCarryAllBytesInBothDirectionsAtOnce) {
  const Bytes there = some_bytes(3'000'000);
  const Bytes back = some_bytes(2'000'001);
  Bytes got_there(there.size());
  Bytes got_back(back.size());
  int ended = 0;
  const auto end = [&](std::size_t expected) {
    return [&, expected](error_code failed, std::size_t bytes) {
      EXPECT_FALSE(failed) << failed.message();
      EXPECT_EQ(bytes, expected);
      ++ended;
    };
  };
  asio::async_write(active_, asio::buffer(there), end(there.size()));
  asio::async_write(*passive_, asio::buffer(back), end(back.size()));
  asio::async_read(*passive_, asio::buffer(got_there), end(there.size()));
  asio::async_read(active_, asio::buffer(got_back), end(back.size()));
  run();
  EXPECT_EQ(ended, 4);
  EXPECT_EQ(got_there, there);
  EXPECT_EQ(got_back, back);
}

TEST_F(AsioStreams, SequencesOfBuffersKeepTheirOrder) {
  const std::string text = "one two three";
  std::vector<asio::const_buffer> pieces;
  for (const char& letter : text) {
    pieces.emplace_back(&letter, 1);
    pieces.emplace_back(&letter, 0);
  }
  std::string got(text.size(), ' ');
  std::vector<asio::mutable_buffer> into;
  for (char& letter : got) into.emplace_back(&letter, 1);
  asio::async_write(active_, pieces, [&](error_code failed, std::size_t) { EXPECT_FALSE(failed); });
  asio::async_read(*passive_, into, [&](error_code failed, std::size_t) { EXPECT_FALSE(failed); });
  run();
  EXPECT_EQ(got, text);
}

TEST_F(AsioStreams, TheEndIsEofAfterAllBytes) {
  std::string got;
  error_code last;
  asio::async_write(active_, asio::buffer("line\nrest", 9), [&](error_code failed, std::size_t) {
    EXPECT_FALSE(failed);
    active_.stream().finish();
  });
  asio::async_read_until(*passive_, asio::dynamic_buffer(got), '\n',
                         [&](error_code failed, std::size_t bytes) {
                           EXPECT_FALSE(failed);
                           EXPECT_EQ(got.substr(0, bytes), "line\n");
                           asio::async_read(*passive_, asio::dynamic_buffer(got),
                                            [&](error_code end, std::size_t) { last = end; });
                         });
  run();
  EXPECT_EQ(got, "line\nrest");
  EXPECT_EQ(last, asio::error::eof);
}

TEST_F(AsioStreams, APeerThatAbortsIsAResetConnection) {
  error_code got;
  std::array<char, 8> into{};
  passive_->async_read_some(asio::buffer(into), [&](error_code failed, std::size_t bytes) {
    got = failed;
    EXPECT_EQ(bytes, 0U);
  });
  asio::post(context_, [&] { active_.stream().abort(); });
  run();
  EXPECT_EQ(got, asio::error::connection_reset) << got.message();
}

TEST_F(AsioStreams, NoHandlerIsCalledBeforeTheOperationReturns) {
  asio::write(active_, asio::buffer("x", 1));
  std::array<char, 8> into{};
  bool returned = false;
  const auto begin = [&] {
    passive_->async_read_some(asio::buffer(into), [&](error_code failed, std::size_t bytes) {
      EXPECT_TRUE(returned);
      EXPECT_FALSE(failed);
      EXPECT_EQ(bytes, 1U);
    });
    returned = true;
  };
  asio::post(context_, begin);
  run();
  // An empty buffer is full at once.
  passive_->async_read_some(asio::mutable_buffer(), [&](error_code failed, std::size_t bytes) {
    EXPECT_FALSE(failed);
    EXPECT_EQ(bytes, 0U);
  });
  run();
}

TEST_F(AsioStreams, OperationsOfOneDirectionEndInTheirOrder) {
  std::array<std::array<char, 2>, 3> into{};
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    passive_->async_read_some(asio::buffer(into[static_cast<std::size_t>(i)]),
                              [&, i](error_code failed, std::size_t bytes) {
                                EXPECT_FALSE(failed);
                                EXPECT_EQ(bytes, 2U);
                                order.push_back(i);
                              });
  }
  asio::post(context_, [&] { asio::write(active_, asio::buffer("aabbcc", 6)); });
  run();
  EXPECT_EQ(order, (std::vector{0, 1, 2}));
  EXPECT_EQ(into[2][0], 'c');
}

TEST_F(AsioStreams, CancelEndsWhatWaitsAndNothingElse) {
  std::array<char, 8> into{};
  std::vector<error_code> ends;
  const auto note = [&](error_code failed, std::size_t) { ends.push_back(failed); };
  passive_->async_read_some(asio::buffer(into), note);
  passive_->async_read_some(asio::buffer(into), note);
  asio::post(context_, [&] { passive_->cancel(); });
  run();
  ASSERT_EQ(ends.size(), 2U);
  for (const auto& end : ends) EXPECT_EQ(end, asio::error::operation_aborted);
  // The stream goes on, and no byte was lost.
  asio::write(active_, asio::buffer("still", 5));
  std::string got(5, ' ');
  asio::async_read(*passive_, asio::buffer(got),
                   [&](error_code failed, std::size_t) { EXPECT_FALSE(failed); });
  run();
  EXPECT_EQ(got, "still");
}

TEST_F(AsioStreams, DestructionEndsWhatWaits) {
  std::array<char, 8> into{};
  error_code end;
  passive_->async_read_some(asio::buffer(into),
                            [&](error_code failed, std::size_t) { end = failed; });
  passive_.reset();
  run();
  EXPECT_EQ(end, asio::error::operation_aborted);
}

#ifndef WEFT_USE_BOOST_ASIO
TEST_F(AsioStreams, ASlotCancelsItsOperationOnly) {
  std::array<char, 8> first{};
  std::array<char, 8> second{};
  asio::cancellation_signal signal;
  error_code cancelled;
  std::size_t read = 0;
  passive_->async_read_some(
      asio::buffer(first),
      asio::bind_cancellation_slot(signal.slot(), [&](error_code failed, std::size_t) {
        cancelled = failed;
        asio::write(active_, asio::buffer("two", 3));
      }));
  passive_->async_read_some(asio::buffer(second), [&](error_code failed, std::size_t bytes) {
    EXPECT_FALSE(failed);
    read = bytes;
  });
  asio::post(context_, [&] { signal.emit(asio::cancellation_type::total); });
  run();
  EXPECT_EQ(cancelled, asio::error::operation_aborted);
  EXPECT_EQ(read, 3U);
}
#endif

asio::awaitable<void> echo(AsioStream& peer) {
  Bytes buffer(10'000);
  try {
    while (true) {
      const auto bytes = co_await peer.async_read_some(asio::buffer(buffer), asio::use_awaitable);
      co_await asio::async_write(peer, asio::buffer(buffer, bytes), asio::use_awaitable);
    }
  } catch (const std::exception&) {
    peer.stream().finish();
  }
}

TEST_F(AsioStreams, CoroutinesAwaitThem) {
  const Bytes sent = some_bytes(200'000);
  Bytes got(sent.size());
  asio::co_spawn(context_, echo(*passive_), asio::detached);
  asio::co_spawn(
      context_,
      [&]() -> asio::awaitable<void> {
        co_await asio::async_write(active_, asio::buffer(sent), asio::use_awaitable);
        active_.stream().finish();
      },
      asio::detached);
  asio::co_spawn(
      context_,
      [&]() -> asio::awaitable<void> {
        co_await asio::async_read(active_, asio::buffer(got), asio::use_awaitable);
      },
      asio::detached);
  run();
  EXPECT_EQ(got, sent);
}

// A stream with bytes that are not read must not keep the loop busy.
TEST_F(AsioStreams, AWaitingWriteDoesNotSpinForBytesThatCanBeRead) {
  asio::write(active_, asio::buffer("unread", 6));
  const Bytes much = some_bytes(64'000'000);
  bool written = false;
  asio::async_write(*passive_, asio::buffer(much), [&](error_code failed, std::size_t) {
    EXPECT_EQ(failed, asio::error::operation_aborted);
    written = true;
  });
  // What fits into the rings is written; then nothing runs.
  std::size_t calls = 0;
  context_.restart();
  while (context_.run_one_for(std::chrono::milliseconds(200)) != 0) ASSERT_LT(++calls, 10'000U);
  EXPECT_FALSE(written);
  passive_->cancel();
  run();
  EXPECT_TRUE(written);
}

TEST_F(AsioStreams, HandlersRunInTheirOwnExecutor) {
  asio::io_context other;
  std::array<char, 8> into{};
  bool called = false;
  passive_->async_read_some(asio::buffer(into),
                            asio::bind_executor(other, [&](error_code, auto) { called = true; }));
  asio::write(active_, asio::buffer("x", 1));
  run();
  EXPECT_FALSE(called);
  other.run_for(test_timeout);
  EXPECT_TRUE(called);
}

TEST_F(AsioStreams, AListenerCanBeCancelled) {
  error_code end;
  listener_.async_accept([&](error_code failed, const AsioStream&) { end = failed; });
  asio::post(context_, [&] { listener_.cancel(); });
  run();
  EXPECT_EQ(end, asio::error::operation_aborted);
}

TEST(AsioStreamAlone, AConnectionThatIsRefusedFails) {
  asio::io_context context;
  std::uint16_t free_port = 0;
  {
    const AsioListener listener(context.get_executor(), {test::host(), 0});
    free_port = listener.port();
  }
  AsioStream stream(context.get_executor());
  error_code end;
  stream.async_connect({test::host(), free_port}, [&](error_code failed) { end = failed; });
  context.run_for(test_timeout);
  EXPECT_EQ(end, asio::error::connection_refused) << end.message();
}

// The handlers are destroyed with the loop, and with them what they own.
TEST(AsioStreamAlone, ALoopThatEndsDestroysItsHandlers) {
  std::weak_ptr<int> owned;
  {
    asio::io_context context;
    AsioListener listener(context.get_executor(), {test::host(), 0});
    asio::co_spawn(
        context,
        [&]() -> asio::awaitable<void> {
          auto held = std::make_shared<int>(1);
          owned = held;
          auto peer = co_await listener.async_accept(asio::use_awaitable);
          std::array<char, 8> into{};
          asio::post(context, [&] { context.stop(); });  // once the read waits
          co_await peer.async_read_some(asio::buffer(into), asio::use_awaitable);
          ADD_FAILURE() << "the loop has ended";
        },
        asio::detached);
    AsioStream active(context.get_executor());
    active.async_connect({test::host(), listener.port()},
                         [&](error_code failed) { EXPECT_FALSE(failed); });
    context.run_for(test_timeout);
    EXPECT_FALSE(owned.expired());
  }
  EXPECT_TRUE(owned.expired());
}

TEST(AsioStreamAlone, AHandlerThatIsDestroyedMayOwnTheStream) {
  auto owner = std::make_unique<asio::io_context>();
  asio::io_context& context = *owner;
  std::optional<AsioListener> listener;
  listener.emplace(context.get_executor(), stream::Address{test::host(), 0});
  auto stream = std::make_shared<AsioStream>(context.get_executor());
  std::array<char, 8> into{};
  stream->async_connect({test::host(), listener->port()}, [&into, stream](error_code failed) {
    EXPECT_FALSE(failed);
    stream->async_read_some(asio::buffer(into),
                            [stream](error_code, std::size_t) { ADD_FAILURE(); });
  });
  const std::weak_ptr<AsioStream> owned = std::exchange(stream, nullptr);
  std::optional<AsioStream> passive;
  listener->async_accept([&](error_code, AsioStream peer) { passive.emplace(std::move(peer)); });
  while (!passive) context.run_one();
  passive->async_write_some(asio::buffer("", 0), [](error_code, std::size_t) {});
  while (context.poll() != 0) continue;
  EXPECT_FALSE(owned.expired());
  listener.reset();
  owner.reset();
  EXPECT_TRUE(owned.expired());
}

TEST(AsioStreamAlone, EmptyHandlesSaySo) {
  asio::io_context context;
  AsioStream stream(context.get_executor());
  const AsioStream kept = std::move(stream);
  std::array<char, 8> into{};
  const auto ignore = [](auto...) {};
  test::expect_empty(
      "weft::AsioStream", [&] { (void)stream.get_executor(); }, [&] { (void)stream.stream(); },
      [&] { stream.cancel(); }, [&] { stream.async_read_some(asio::buffer(into), ignore); },
      [&] { stream.async_write_some(asio::buffer(into), ignore); },
      [&] {
        stream.async_connect({test::host(), 1}, ignore);
      },
      [&] { (void)stream.read_some(asio::buffer(into)); },
      [&] { (void)stream.write_some(asio::buffer(into)); });
  AsioListener listener(context.get_executor(), {test::host(), 0});
  const AsioListener kept_listener = std::move(listener);
  test::expect_empty(
      "weft::AsioListener", [&] { (void)listener.get_executor(); },
      [&] { (void)listener.listener(); }, [&] { (void)listener.port(); },
      [&] { listener.cancel(); }, [&] { listener.async_accept(ignore); });
}

// The loop runs in several threads, each connection in a strand of its own.
TEST(AsioStreamAlone, StrandsOfALoopWithSeveralThreads) {
  constexpr int connections = 8;
  asio::io_context context;
  AsioListener listener(asio::make_strand(context), {test::host(), 0});
  std::atomic<int> right = 0;
  const Bytes sent = some_bytes(300'000);
  for (int i = 0; i < connections; ++i) {
    asio::co_spawn(
        asio::make_strand(context),
        [&]() -> asio::awaitable<void> {
          AsioStream active(co_await asio::this_coro::executor);
          co_await active.async_connect({test::host(), listener.port()}, asio::use_awaitable);
          Bytes got(sent.size());
          co_await asio::async_write(active, asio::buffer(sent), asio::use_awaitable);
          co_await asio::async_read(active, asio::buffer(got), asio::use_awaitable);
          if (got == sent) ++right;
        },
        asio::detached);
  }
  asio::co_spawn(
      context,
      [&]() -> asio::awaitable<void> {
        for (int i = 0; i < connections; ++i) {
          auto peer = co_await listener.async_accept(asio::use_awaitable);
          asio::co_spawn(
              co_await asio::this_coro::executor,
              [](AsioStream served, std::size_t bytes) -> asio::awaitable<void> {
                Bytes got(bytes);
                co_await asio::async_read(served, asio::buffer(got), asio::use_awaitable);
                co_await asio::async_write(served, asio::buffer(got), asio::use_awaitable);
              }(std::move(peer), sent.size()),
              asio::detached);
        }
      },
      asio::detached);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { context.run_for(test_timeout); });
  }
  threads.clear();
  EXPECT_EQ(right, connections);
}

}  // namespace
}  // namespace weft::stream
