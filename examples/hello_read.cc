// An RDMA read: "hello_read serve" has a text in its memory and only waits, "hello_read HOST PORT"
// reads it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <weft/connection.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::connection;  // NOLINT(google-build-using-namespace)

// Enables advertisements in both directions.
Options options() {
  return {.advertisements = true};
}

void serve() {
  Listener listener({"", 0}, options());
  std::printf("port %u\n", listener.port());
  std::fflush(stdout);
  auto request = listener.next(60s);
  if (!request) throw std::runtime_error("no peer has connected");
  const auto memory = request->allocate(64, Access::remote_read);
  std::strcpy(reinterpret_cast<char*>(memory.bytes().data()), "hello by RDMA read");
  // The acceptance advertises the buffer, so that the peer may read at once.
  auto peer = std::move(*request).accept({.buffer = memory.remote()}, 10s);
  (void)peer.await_disconnect(60s);
}

void read_from(const char* host, std::uint16_t port) {
  auto peer = connect({host, port}, 10s, options());
  const auto remote = peer.await_advertisement(10s);
  if (!remote) throw std::runtime_error("the peer has advertised no memory");
  const auto into = peer.allocate(static_cast<std::size_t>(remote->buffer.size_bytes()));
  if (peer.post_read(into.slice(), remote->buffer, 0, /*id=*/1) != 0) {
    throw std::runtime_error("cannot post the read");
  }
  const auto outcomes = peer.await(Queue::send, 1, 10s);
  if (outcomes.empty() || !outcomes[0].ok()) throw std::runtime_error("the read has failed");
  std::printf("in the peer's memory: %s\n", reinterpret_cast<const char*>(into.bytes().data()));
  peer.disconnect();
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count == 2 && std::string_view(arguments[1]) == "serve") {
      serve();
    } else if (count == 3) {
      read_from(arguments[1], static_cast<std::uint16_t>(std::atoi(arguments[2])));
    } else {
      std::fprintf(stderr, "hello_read serve | hello_read HOST PORT\n");
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hello_read: %s\n", error.what());
    return 1;
  }
}
