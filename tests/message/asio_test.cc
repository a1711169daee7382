// Messages within Asio's own event loop, by objects of Asio.
#include "weft/message/asio.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/asio.h"
#include "support/empty_handle.h"
#include "support/host.h"

#define AsioMessages WEFT_ASIO_SUITE(AsioMessages)
#define AsioMessagesAlone WEFT_ASIO_SUITE(AsioMessagesAlone)

namespace weft::message {
namespace {

using test::AsioCode;
using test::run_to_end;

std::string text_of(const Received& message) {
  return {reinterpret_cast<const char*>(message.bytes().data()), message.size_bytes()};
}

// Two ends that are connected, and a loop that a test runs itself.
class AsioMessages : public testing::Test {
 protected:
  AsioMessages() {
    listener_->async_accept([&](AsioCode failed, AsioConnection peer) {
      EXPECT_FALSE(failed) << failed.message();
      passive_ = std::move(peer);
    });
    loop_.async_connect({test::host(), listener_->port()},
                        [&](AsioCode failed, AsioConnection peer) {
                          EXPECT_FALSE(failed) << failed.message();
                          active_ = std::move(peer);
                        });
    until([&] { return active_ && passive_; });
  }
  // The context has work as long as there are connections.
  template <typename Done>
  void until(Done done) {
    const Deadline deadline = test::asio_timeout;
    context_.restart();
    while (!done() && !deadline.passed()) context_.run_one_for(std::chrono::seconds(1));
    EXPECT_TRUE(done()) << "it did not happen";
  }
  // Until no connection is left.
  void end() {
    active_.connection().disconnect_after_sending();
    listener_.reset();
    run_to_end(context_);
    EXPECT_EQ(loop_.loop().connections(), 0U);
  }

  asio::io_context context_;
  AsioLoop loop_{context_.get_executor(), {.send_queue_messages = 4}};
  std::optional<AsioListener> listener_{std::in_place, loop_, Address{test::host(), 0}};
  AsioConnection active_;
  AsioConnection passive_;
};

TEST_F(AsioMessages, MessagesOfAnySizeArriveInOrder) {
  std::vector<std::string> sent;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{5'000'000}}) {
    sent.emplace_back(size, static_cast<char>('a' + sent.size()));
  }
  int done = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    active_.async_send(asio::buffer(sent[i]), {.tag = i, .confirm = true},
                       [&](AsioCode failed, const Sending& sending) {
                         EXPECT_FALSE(failed) << failed.message();
                         EXPECT_EQ(sending.status(), Status::delivered);
                         ++done;
                       });
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    passive_.async_receive([&, i](AsioCode failed, const std::optional<Received>& got) {
      EXPECT_FALSE(failed) << failed.message();
      ASSERT_TRUE(got);
      EXPECT_EQ(got->tag(), i);
      EXPECT_TRUE(text_of(*got) == sent[i]);
      ++done;
    });
  }
  until([&] { return done == 6; });
  end();
}

TEST_F(AsioMessages, MoreThanTheQueueTakesWaits) {
  constexpr std::size_t count = 100;
  std::size_t sent = 0;
  std::size_t got = 0;
  const std::string text(100, 'x');
  for (std::size_t i = 0; i < count; ++i) {
    active_.async_send(asio::buffer(text), {}, [&](AsioCode failed, const Sending&) {
      EXPECT_FALSE(failed) << failed.message();
      ++sent;
    });
    passive_.async_receive([&](AsioCode failed, const std::optional<Received>&) {
      EXPECT_FALSE(failed) << failed.message();
      ++got;
    });
  }
  until([&] { return sent == count && got == count; });
  end();
}

TEST_F(AsioMessages, ABufferOfThePoolIsSentWithoutACopy) {
  auto buffer = active_.connection().allocate(3);
  std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{'p'});
  std::string got;
  active_.async_send(std::move(buffer), {.type = 3}, [](AsioCode failed, const Sending& sending) {
    EXPECT_FALSE(failed) << failed.message();
    EXPECT_EQ(sending.type(), 3U);
  });
  passive_.async_receive(
      [&](AsioCode, const std::optional<Received>& message) { got = text_of(*message); });
  until([&] { return !got.empty(); });
  EXPECT_EQ(got, "ppp");
  end();
}

TEST_F(AsioMessages, TheEndIsEofBehindAllMessages) {
  std::optional<AsioCode> last;
  std::string got;
  active_.async_send(asio::buffer("last", 4), {}, [&](AsioCode failed, const Sending&) {
    EXPECT_FALSE(failed) << failed.message();
    active_.connection().disconnect_after_sending();
  });
  passive_.async_receive([&](AsioCode, const std::optional<Received>& message) {
    got = text_of(*message);
    passive_.async_receive([&](AsioCode failed, const std::optional<Received>& none) {
      EXPECT_FALSE(none);
      last = failed;
    });
  });
  listener_.reset();
  run_to_end(context_);
  EXPECT_EQ(got, "last");
  ASSERT_TRUE(last);
  EXPECT_EQ(*last, asio::error::eof) << last->message();
  std::optional<AsioCode> late;
  active_.async_send(asio::buffer("x", 1), {}, [&](AsioCode failed, auto) { late = failed; });
  run_to_end(context_);
  EXPECT_EQ(late, AsioCode(asio::error::not_connected));
}

TEST_F(AsioMessages, CancelEndsWhatWaitsAndNothingElse) {
  std::vector<AsioCode> ends;
  for (int i = 0; i < 2; ++i) {
    passive_.async_receive(
        [&](AsioCode failed, const std::optional<Received>&) { ends.push_back(failed); });
  }
  listener_->async_accept([&](AsioCode failed, const AsioConnection&) { ends.push_back(failed); });
  asio::post(context_, [&] {
    loop_.cancel();
    listener_->cancel();
  });
  until([&] { return ends.size() == 3; });
  for (const auto& one : ends) EXPECT_EQ(one, asio::error::operation_aborted) << one.message();
  std::string got;
  active_.async_send(asio::buffer("still", 5), {}, [](AsioCode, const Sending&) {});
  passive_.async_receive(
      [&](AsioCode, const std::optional<Received>& message) { got = text_of(*message); });
  until([&] { return !got.empty(); });
  EXPECT_EQ(got, "still");
  end();
}

#ifndef WEFT_USE_BOOST_ASIO
TEST_F(AsioMessages, ASlotCancelsItsOperationOnly) {
  asio::cancellation_signal signal;
  std::optional<AsioCode> cancelled;
  std::string got;
  passive_.async_receive(asio::bind_cancellation_slot(
      signal.slot(), [&](AsioCode failed, const std::optional<Received>&) {
        cancelled = failed;
        active_.async_send(asio::buffer("two", 3), {}, [](AsioCode, const Sending&) {});
      }));
  passive_.async_receive(
      [&](AsioCode, const std::optional<Received>& message) { got = text_of(*message); });
  asio::post(context_, [&] { signal.emit(asio::cancellation_type::total); });
  until([&] { return !got.empty(); });
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(*cancelled, asio::error::operation_aborted);
  EXPECT_EQ(got, "two");
  end();
}
#endif

TEST_F(AsioMessages, CallbacksOfTheLoopWorkBesideThem) {
  std::string got;
  auto other = loop_.loop().listen({test::host(), 0}, [&](Request request) {
    request.accept({.message = [&](Connection& peer, Received& message) {
      got = text_of(message);
      peer.disconnect_after_sending();
    }});
  });
  bool lost = false;
  loop_.async_connect({test::host(), other.port()}, [&](AsioCode failed, AsioConnection peer) {
    EXPECT_FALSE(failed) << failed.message();
    peer.async_send(asio::buffer("by callback", 11), {}, [](AsioCode, const Sending&) {});
    peer.async_receive([&, peer](AsioCode end, const std::optional<Received>&) mutable {
      EXPECT_EQ(end, asio::error::eof) << end.message();
      lost = true;
    });
  });
  until([&] { return lost; });
  EXPECT_EQ(got, "by callback");
  end();
}

TEST_F(AsioMessages, CoroutinesAwaitThem) {
  int rounds = 0;
  const auto echo = [](AsioConnection side) -> asio::awaitable<void> {
    try {
      while (true) {
        const auto got = co_await side.async_receive(asio::use_awaitable);
        co_await side.async_send(asio::buffer(got->bytes().data(), got->size_bytes()), {},
                                 asio::use_awaitable);
      }
    } catch (const test::AsioThrown& ended) {
      EXPECT_EQ(ended.code(), asio::error::eof) << ended.what();
    }
  };
  const auto ask = [](AsioConnection side, int& count) -> asio::awaitable<void> {
    for (int i = 0; i < 100; ++i) {
      const std::string text = std::to_string(i);
      co_await side.async_send(asio::buffer(text), {}, asio::use_awaitable);
      const auto got = co_await side.async_receive(asio::use_awaitable);
      if (text_of(*got) == text) ++count;
    }
    side.connection().disconnect_after_sending();
  };
  asio::co_spawn(context_, echo(passive_), test::expect_no_exception);
  asio::co_spawn(context_, ask(active_, rounds), test::expect_no_exception);
  listener_.reset();
  run_to_end(context_);
  EXPECT_EQ(rounds, 100);
}

TEST(AsioMessagesAlone, AConnectionThatIsRefusedFails) {
  asio::io_context context;
  AsioLoop loop(context.get_executor());
  std::optional<AsioListener> listener(std::in_place, loop, Address{test::host(), 0});
  const std::uint16_t port = listener->port();
  listener.reset();
  std::optional<AsioCode> end;
  loop.async_connect({test::host(), port}, [&](AsioCode failed, const AsioConnection& none) {
    EXPECT_FALSE(none);
    end = failed;
  });
  run_to_end(context);
  ASSERT_TRUE(end);
  EXPECT_EQ(*end, asio::error::connection_refused) << end->message();
}

TEST(AsioMessagesAlone, ALoopThatIsDestroyedEndsWhatWaits) {
  asio::io_context context;
  std::optional<AsioLoop> loop(std::in_place, context.get_executor());
  std::optional<AsioListener> listener(std::in_place, *loop, Address{test::host(), 0});
  std::vector<AsioCode> ends;
  listener->async_accept([&](AsioCode failed, const AsioConnection&) { ends.push_back(failed); });
  AsioConnection peer;
  {
    AsioListener silent(*loop, {test::host(), 0});
    loop->async_connect({test::host(), silent.port()},
                        [&](AsioCode failed, const AsioConnection&) { ends.push_back(failed); });
    while (context.poll() != 0) continue;
    loop.reset();
  }
  listener.reset();
  run_to_end(context);
  ASSERT_EQ(ends.size(), 2U);
  for (const auto& one : ends) EXPECT_EQ(one, asio::error::operation_aborted) << one.message();
  EXPECT_THROW(peer.async_receive([](auto...) {}), Error);
}

// The handlers are destroyed with the context, and with them what they own.
TEST(AsioMessagesAlone, AContextThatEndsDestroysItsHandlers) {
  auto context = std::make_unique<asio::io_context>();
  auto loop = std::make_shared<AsioLoop>(context->get_executor());
  auto listener = std::make_shared<AsioListener>(*loop, Address{test::host(), 0});
  const std::weak_ptr<AsioLoop> owned = loop;
  AsioListener& used = *listener;
  used.async_accept(
      [loop = std::exchange(loop, nullptr), listener = std::exchange(listener, nullptr)](
          AsioCode, const auto&) { ADD_FAILURE() << "the context has ended"; });
  while (context->poll() != 0) continue;
  EXPECT_FALSE(owned.expired());
  context.reset();
  EXPECT_TRUE(owned.expired());
}

TEST(AsioMessagesAlone, EmptyHandlesSaySo) {
  asio::io_context context;
  AsioLoop loop(context.get_executor());
  AsioListener listener(loop, {test::host(), 0});
  const AsioListener kept_listener = std::move(listener);
  const AsioLoop kept = std::move(loop);
  const auto ignore = [](auto...) {};
  test::expect_empty(
      "weft::message::AsioLoop", [&] { (void)loop.get_executor(); }, [&] { (void)loop.loop(); },
      [&] { loop.cancel(); },
      [&] {
        loop.async_connect({test::host(), 1}, ignore);
      });
  test::expect_empty(
      "weft::message::AsioListener", [&] { (void)listener.get_executor(); },
      [&] { (void)listener.port(); }, [&] { listener.cancel(); },
      [&] { listener.async_accept(ignore); });
}

}  // namespace
}  // namespace weft::message
