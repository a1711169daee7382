// A chat: each line that a participant types is sent to all others. One poll(2) waits for the
// terminal and, by the event loop's descriptor, for the network.
//
//   chat serve [PORT]              port 0, the default: any; it is printed
//   chat HOST PORT NAME            lines of standard input, until it ends
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>
#include <weft/message.hpp>

namespace {

using namespace weft::message;  // NOLINT(google-build-using-namespace)

// Types of messages.
enum : std::uint32_t { join_message, line_message };

int serve(std::uint16_t port) {
  EventLoop loop;
  struct Guest {
    Connection connection;
    std::string name;
  };
  std::vector<Guest> guests;
  const auto tell_all = [&](const Connection& but, const std::string& line) {
    for (Guest& guest : guests) {
      // A guest that does not read loses lines once its send queue is full: send() fails then.
      if (!(guest.connection == but)) guest.connection.send(line);
    }
  };
  Handlers handlers;
  handlers.established = [&](Connection& connection) { guests.push_back({connection, "?"}); };
  handlers.message = [&](Connection& from, Received& message) {
    const std::string text(reinterpret_cast<const char*>(message.bytes().data()),
                           message.size_bytes());
    for (Guest& guest : guests) {
      if (!(guest.connection == from)) continue;
      if (message.type() == join_message) guest.name = text;
      if (message.type() == join_message) {
        tell_all({}, text + " is here");
      } else {
        tell_all(from, guest.name + ": " + text);
      }
    }
  };
  handlers.disconnected = [&](Connection& connection, const Ending&) {
    for (auto guest = guests.begin(); guest != guests.end(); ++guest) {
      if (!(guest->connection == connection)) continue;
      const std::string name = guest->name;
      guests.erase(guest);
      tell_all(connection, name + " has left");
      if (guests.empty()) loop.stop();
      return;
    }
  };
  const Listener listener =
      loop.listen({"", port}, [&](Request request) { request.accept(handlers); });
  std::printf("port %d\n", listener.port());
  std::fflush(stdout);
  loop.run();
  return 0;
}

int talk(const std::string& host, std::uint16_t port, const std::string& name) {
  EventLoop loop;
  bool over = false;
  int result = 0;
  Handlers handlers;
  handlers.established = [&](Connection& server) { server.send(name, {.type = join_message}); };
  handlers.message = [](Connection&, Received& message) {
    std::printf("%.*s\n", static_cast<int>(message.size_bytes()),
                reinterpret_cast<const char*>(message.bytes().data()));
    std::fflush(stdout);
  };
  handlers.disconnected = [&](Connection&, const Ending&) { over = true; };
  handlers.error = [&](Connection&, const weft::Error& error) {
    std::fprintf(stderr, "chat: %s\n", error.what());
    result = 1;
    over = true;
  };
  Connection server = loop.connect({host, port}, handlers);
  std::array<pollfd, 2> wait{{{loop.fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
  std::string line;
  while (!over) {
    // Lines that are typed before the connection is established are kept.
    wait[1].fd = server.state() == State::established ? STDIN_FILENO : -1;
    if (poll(wait.data(), wait.size(), -1) < 0) throw std::runtime_error("cannot poll");
    loop.step();
    if (wait[1].fd < 0 || wait[1].revents == 0) continue;
    std::array<char, 4096> text;
    const ssize_t got = read(STDIN_FILENO, text.data(), text.size());
    if (got <= 0) server.disconnect_after_sending();
    for (ssize_t i = 0; i < got; ++i) {
      if (text[i] != '\n') {
        line += text[i];
      } else if (server.send(line, {.type = line_message})) {
        line.clear();
      }
    }
  }
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const std::string first = count > 1 ? arguments[1] : "";
    if (first == "serve" && count <= 3) {
      return serve(static_cast<std::uint16_t>(count > 2 ? std::atoi(arguments[2]) : 0));
    }
    if (count != 4) throw std::runtime_error("usage: chat serve [PORT] | chat HOST PORT NAME");
    return talk(first, static_cast<std::uint16_t>(std::atoi(arguments[2])), arguments[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chat: %s\n", error.what());
    return 1;
  }
}
