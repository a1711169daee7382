// Websockets of Boost.Beast on weft::AsioStream.
#include <gtest/gtest.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "stream/sides.h"
#include "support/host.h"
#include "weft/stream/asio.hpp"

namespace weft::stream {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = boost::beast::websocket;
using error_code = boost::system::error_code;
using Socket = websocket::stream<AsioStream>;

std::string text_of(const beast::flat_buffer& buffer) {
  return beast::buffers_to_string(buffer.data());
}

// A client and a server that have shaken hands, and a loop that a test runs itself.
class Websockets : public testing::Test {
 protected:
  Websockets() {
    listener_.async_accept([this](error_code failed, AsioStream peer) {
      ASSERT_FALSE(failed) << failed.message();
      server_.emplace(std::move(peer));
      server_->async_accept([](error_code refused) { EXPECT_FALSE(refused); });
    });
    client_.next_layer().async_connect({test::host(), listener_.port()}, [this](error_code failed) {
      ASSERT_FALSE(failed) << failed.message();
      client_.async_handshake("host", "/", [](error_code refused) { EXPECT_FALSE(refused); });
    });
    run();
    EXPECT_TRUE(client_.is_open());
    EXPECT_TRUE(server_ && server_->is_open());
  }
  // Until no operation is left.
  void run() {
    context_.restart();
    context_.run_for(test_timeout);
    EXPECT_TRUE(context_.stopped()) << "operations do not end";
  }

  // Sends back what arrives, until the peer closes. Then `end` has how reading has ended.
  void echo() {
    server_->async_read(server_buffer_, [this](error_code failed, std::size_t) {
      if (failed) {
        server_end_ = failed;
        return;
      }
      server_->text(server_->got_text());
      server_->async_write(server_buffer_.data(), [this](error_code lost, std::size_t bytes) {
        EXPECT_FALSE(lost) << lost.message();
        server_buffer_.consume(bytes);
        echo();
      });
    });
  }
  // Sends a message, and expects it back.
  void ask(const std::string& text, const std::function<void()>& then) {
    client_.async_write(asio::buffer(text), [this, &text, then](error_code failed, std::size_t) {
      EXPECT_FALSE(failed) << failed.message();
      client_.async_read(client_buffer_, [this, &text, then](error_code lost, std::size_t) {
        EXPECT_FALSE(lost) << lost.message();
        EXPECT_EQ(text_of(client_buffer_), text);
        client_buffer_.clear();
        then();
      });
    });
  }
  // Both sides have sent their last byte, and received all of the other's.
  void expect_orderly_end() {
    std::array<char, 8> into{};
    for (AsioStream* side : {&client_.next_layer(), &server_->next_layer()}) {
      error_code end;
      EXPECT_EQ(side->read_some(asio::buffer(into), end), 0U);
      EXPECT_EQ(end, asio::error::eof) << end.message();
      EXPECT_TRUE(side->stream().close(test_timeout));
    }
  }

  asio::io_context context_;
  AsioListener listener_{context_.get_executor(), {test::host(), 0}};
  Socket client_{context_.get_executor()};
  std::optional<Socket> server_;
  beast::flat_buffer client_buffer_;
  beast::flat_buffer server_buffer_;
  std::optional<error_code> server_end_;
};

TEST_F(Websockets, TheClientClosesAfterAnEcho) {
  const std::string brief = "hello";
  const std::string much(1'000'000, 'x');
  std::optional<error_code> closed;
  echo();
  ask(brief, [&] {
    ask(much, [&] {
      client_.async_close(websocket::close_code::normal, [&](error_code end) { closed = end; });
    });
  });
  run();
  ASSERT_TRUE(closed);
  EXPECT_FALSE(*closed) << closed->message();
  EXPECT_EQ(server_end_, error_code(websocket::error::closed));
  EXPECT_EQ(server_->reason().code, websocket::close_code::normal);
  expect_orderly_end();
}

TEST_F(Websockets, TheServerCloses) {
  std::optional<error_code> closed;
  std::optional<error_code> read;
  client_.async_read(client_buffer_, [&](error_code end, std::size_t) { read = end; });
  server_->async_close(websocket::close_code::going_away, [&](error_code end) { closed = end; });
  run();
  ASSERT_TRUE(closed);
  EXPECT_FALSE(*closed) << closed->message();
  EXPECT_EQ(read, error_code(websocket::error::closed));
  EXPECT_EQ(client_.reason().code, websocket::close_code::going_away);
  expect_orderly_end();
}

TEST_F(Websockets, BothSidesCloseAtOnce) {
  int closed = 0;
  const auto end = [&](error_code failed) {
    EXPECT_FALSE(failed) << failed.message();
    ++closed;
  };
  client_.async_close(websocket::close_code::normal, end);
  server_->async_close(websocket::close_code::normal, end);
  run();
  EXPECT_EQ(closed, 2);
  expect_orderly_end();
}

TEST_F(Websockets, CallsThatBlockClose) {
  std::jthread serving([this] {
    error_code end;
    server_->read(server_buffer_, end);
    EXPECT_FALSE(end) << end.message();
    server_->write(server_buffer_.data(), end);
    EXPECT_FALSE(end) << end.message();
    beast::flat_buffer rest;
    server_->read(rest, end);
    EXPECT_EQ(end, error_code(websocket::error::closed)) << end.message();
  });
  error_code failed;
  client_.write(asio::buffer("ping", 4), failed);
  EXPECT_FALSE(failed) << failed.message();
  client_.read(client_buffer_, failed);
  EXPECT_FALSE(failed) << failed.message();
  EXPECT_EQ(text_of(client_buffer_), "ping");
  client_.close(websocket::close_code::normal, failed);
  EXPECT_FALSE(failed) << failed.message();
  serving.join();
  expect_orderly_end();
}

TEST_F(Websockets, APeerThatIsLostIsNoOrderlyEnd) {
  std::optional<error_code> read;
  client_.async_read(client_buffer_, [&](error_code end, std::size_t) { read = end; });
  asio::post(context_, [this] { server_->next_layer().stream().abort(); });
  run();
  ASSERT_TRUE(read);
  EXPECT_TRUE(*read);
  EXPECT_NE(*read, error_code(websocket::error::closed));
}

// Beast's own timeout ends a stream whose peer does not answer.
TEST(WebsocketAlone, AServerThatDoesNotAnswerTimesOut) {
  asio::io_context context;
  AsioListener listener(context.get_executor(), {test::host(), 0});
  std::optional<AsioStream> silent;
  listener.async_accept([&](error_code failed, AsioStream peer) {
    EXPECT_FALSE(failed);
    silent.emplace(std::move(peer));
  });
  Socket client(context.get_executor());
  auto timeouts = websocket::stream_base::timeout::suggested(beast::role_type::client);
  timeouts.handshake_timeout = std::chrono::milliseconds(100);
  client.set_option(timeouts);
  std::optional<error_code> end;
  client.next_layer().async_connect({test::host(), listener.port()}, [&](error_code failed) {
    EXPECT_FALSE(failed);
    client.async_handshake("host", "/", [&](error_code refused) { end = refused; });
  });
  context.run_for(test_timeout);
  ASSERT_TRUE(end);
  EXPECT_EQ(*end, error_code(beast::error::timeout)) << end->message();
}

}  // namespace
}  // namespace weft::stream
