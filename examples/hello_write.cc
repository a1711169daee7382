// An RDMA write: "hello_write HOST PORT" writes a text into the memory of "hello_write serve",
// which prints it. The target makes no call for the write.
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

constexpr std::size_t text_bytes = 64;
// Enables advertisements in both directions.
Options options() {
  return {.advertisements = true};
}

void serve() {
  Listener listener({"", 0}, options());
  std::printf("port %u\n", listener.port());
  std::fflush(stdout);
  auto peer = listener.accept(60s);
  const auto memory = peer.allocate(text_bytes, Access::remote_write);
  peer.advertise(memory.remote());
  // Wait for the end of the connection: an RDMA write raises no event at its target.
  if (!peer.await_disconnect(60s)) throw std::runtime_error("the peer does not disconnect");
  std::printf("in my memory: %s\n", reinterpret_cast<const char*>(memory.bytes().data()));
}

void write_to(const char* host, std::uint16_t port) {
  auto peer = connect({host, port}, 10s, options());
  const auto remote = peer.await_advertisement(10s);
  if (!remote) throw std::runtime_error("the peer has advertised no memory");
  const auto text = peer.allocate(text_bytes);
  std::strcpy(reinterpret_cast<char*>(text.bytes().data()), "hello by RDMA write");
  // `text` must live until the write has completed.
  if (peer.post_write(text.slice(), remote->buffer, 0, /*id=*/1) != 0) {
    throw std::runtime_error("cannot post the write");
  }
  for (const Outcome& outcome : peer.await(Queue::send, 1, 10s)) {
    std::printf("write %llu: %s\n", static_cast<unsigned long long>(outcome.id),
                std::string(outcome.status_name()).c_str());
  }
  peer.disconnect();
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count == 2 && std::string_view(arguments[1]) == "serve") {
      serve();
    } else if (count == 3) {
      write_to(arguments[1], static_cast<std::uint16_t>(std::atoi(arguments[2])));
    } else {
      std::fprintf(stderr, "hello_write serve | hello_write HOST PORT\n");
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hello_write: %s\n", error.what());
    return 1;
  }
}
