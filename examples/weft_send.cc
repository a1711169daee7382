// Sends one message of 4096 bytes, waits until it is sent, and disconnects.
//
//   weft-send IP [PORT=12345]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>
#include <weft/message.hpp>

namespace {

using namespace weft::message;  // NOLINT(google-build-using-namespace)

int send_one(const std::string& host, std::uint16_t port) {
  EventLoop loop;
  int result = 1;
  Handlers handlers;
  handlers.established = [](Connection& connection) {
    std::puts("connection established");
    const Buffer buffer = connection.allocate(4096);
    for (std::size_t i = 0; i < buffer.size_bytes(); ++i) {
      buffer.bytes()[i] = static_cast<std::byte>(i);
    }
    connection.send(buffer);
  };
  handlers.sent = [](Connection& connection, const Sending&) {
    std::puts("message sent");
    connection.disconnect_after_sending();
  };
  handlers.disconnected = [&](Connection&, const Ending& ending) {
    result = ending.by == Ending::By::us ? 0 : 1;
    loop.stop();
  };
  handlers.error = [&](Connection&, const weft::Error& error) {
    std::fprintf(stderr, "weft-send: %s\n", error.what());
    loop.stop();
  };
  loop.connect({host, port}, handlers);
  loop.run();
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2 || count > 3) {
    std::fprintf(stderr, "usage: weft-send IP [PORT=12345]\n");
    return 2;
  }
  try {
    return send_one(arguments[1],
                    static_cast<std::uint16_t>(count > 2 ? std::atoi(arguments[2]) : 12345));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft-send: %s\n", error.what());
    return 1;
  }
}
