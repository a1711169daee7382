// weft::connection within Asio's own event loop.
#include <gtest/gtest.h>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <thread>

#include "support/host.h"
#include "weft/asio.hpp"
#include "weft/connection.hpp"

namespace weft::connection {
namespace {

using namespace std::chrono_literals;
constexpr auto patience = 30s;

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

TEST(AsioConnection, AnAwaitableOfAsioAwaitsOurs) {
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

TEST(AsioConnection, FuturesAndErrors) {
  asio::io_context context;
  AsioExecutor executor(context.get_executor());
  auto value = executor.run(later(42), asio::use_future);
  auto failed = executor.run(fails(), asio::use_future);
  context.run();
  EXPECT_EQ(value.get(), 42);
  EXPECT_THROW(failed.get(), Error);
}

}  // namespace
}  // namespace weft::connection
