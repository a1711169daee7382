// HTTP over RDMA: Boost.Beast on weft::AsioStream, without a change of Beast.
//
//   http serve                    prints its port, and answers each request with what it was asked
//   http HOST PORT TARGET...      asks for each target in turn, over one connection
#define WEFT_USE_BOOST_ASIO
#include <utility>  // Boost 1.74 forgets it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <weft/stream/asio.hpp>

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::use_awaitable;

namespace {

http::response<http::string_body> answer(const http::request<http::string_body>& request) {
  http::response<http::string_body> response(http::status::ok, request.version());
  response.set(http::field::content_type, "text/plain");
  response.body() = "you asked for " + std::string(request.target()) + "\n";
  response.keep_alive(request.keep_alive());
  response.prepare_payload();
  return response;
}

asio::awaitable<void> serve(weft::AsioStream peer) {
  boost::beast::flat_buffer buffer;
  while (true) {
    http::request<http::string_body> request;
    boost::system::error_code failed;
    co_await http::async_read(peer, buffer, request, asio::redirect_error(use_awaitable, failed));
    if (failed) co_return;  // the client has ended the connection
    const auto response = answer(request);
    co_await http::async_write(peer, response, use_awaitable);
    if (!request.keep_alive()) co_return;
  }
}

asio::awaitable<void> accept(weft::AsioListener& listener) {
  while (true) {
    auto peer = co_await listener.async_accept(use_awaitable);
    asio::co_spawn(listener.get_executor(), serve(std::move(peer)), asio::detached);
  }
}

asio::awaitable<void> ask(weft::stream::Address server, std::span<char* const> targets) {
  weft::AsioStream stream(co_await asio::this_coro::executor);
  co_await stream.async_connect(server, use_awaitable);
  boost::beast::flat_buffer buffer;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    http::request<http::string_body> request(http::verb::get, targets[i], 11);
    request.set(http::field::host, server.host);
    request.keep_alive(i + 1 < targets.size());
    co_await http::async_write(stream, request, use_awaitable);
    http::response<http::string_body> response;
    co_await http::async_read(stream, buffer, response, use_awaitable);
    std::cout << response.result_int() << ' ' << response.body() << std::flush;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  try {
    asio::io_context context;
    if (argc == 2 && std::string_view(arguments[1]) == "serve") {
      weft::AsioListener listener(context.get_executor(), {"", 0});
      std::cout << "port " << listener.port() << std::endl;
      asio::co_spawn(context, accept(listener), asio::detached);
      context.run();
      return 0;
    }
    std::uint16_t port = 0;
    const std::string_view text = argc > 3 ? arguments[2] : "";
    if (std::from_chars(text.begin(), text.end(), port).ec != std::errc()) {
      std::cerr << "usage: http serve | http HOST PORT TARGET...\n";
      return 2;
    }
    asio::co_spawn(context, ask({arguments[1], port}, arguments.subspan(3)),
                   [](const std::exception_ptr& failed) {
                     if (failed) std::rethrow_exception(failed);
                   });
    context.run();
  } catch (const std::exception& error) {
    std::cerr << "http: " << error.what() << '\n';
    return 1;
  }
}
