// Accepts connections and prints their messages; exits when the first connection ends.
//
// weft-recv IP [PORT=12345]     port 0: any free port, which is printed
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <weft/message.hpp>

namespace {

using namespace weft::message;  // NOLINT(google-build-using-namespace)

int receive(const std::string& host, std::uint16_t port) {
  EventLoop loop;
  int result = 1;
  Handlers handlers;
  handlers.established = [](Connection&) { std::puts("connection established"); };
  handlers.message = [](Connection&, Received& message) {
    std::puts("message received");
    bool as_sent = true;
    for (std::size_t i = 0; i < message.size_bytes(); ++i) {
      as_sent &= message.bytes()[i] == static_cast<std::byte>(i);
    }
    std::printf("%zu bytes%s\n", message.size_bytes(), as_sent ? "" : ", not as weft-send sends");
  };
  handlers.disconnected = [&](Connection&, const Ending& ending) {
    result = ending.by == Ending::By::peer ? 0 : 1;
    loop.stop();
  };
  handlers.error = [](Connection&, const weft::Error& error) {
    std::fprintf(stderr, "weft-recv: %s\n", error.what());
  };
  const Listener listener =
      loop.listen({host, port}, [&](Request request) { request.accept(handlers); });
  if (port == 0) std::printf("port %d\n", listener.port());
  std::fflush(stdout);
  loop.run();
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2 || count > 3) {
    std::fprintf(stderr, "usage: weft-recv IP [PORT=12345]\n");
    return 2;
  }
  try {
    return receive(arguments[1],
                   static_cast<std::uint16_t>(count > 2 ? std::atoi(arguments[2]) : 12345));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft-recv: %s\n", error.what());
    return 1;
  }
}
