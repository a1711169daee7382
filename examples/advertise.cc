// One side advertises a buffer, the other writes into it. Both sides are threads of one process
// here; two processes would use the same calls.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>
#include <weft/connection.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::connection;  // NOLINT(google-build-using-namespace)

void offer(std::uint16_t port, const Options& options) {
  auto connection = connect({"127.0.0.1", port}, 10s, options);
  const auto buffer = connection.allocate(64, Access::remote_write);
  connection.advertise(buffer.remote());
  (void)connection.await_disconnect(10s);  // the other side disconnects after its write
  std::printf("found in my memory: %s\n", reinterpret_cast<const char*>(buffer.bytes().data()));
}

}  // namespace

int main() {
  try {
    const Options options{.advertisements = true};
    Listener listener({"127.0.0.1", 0}, options);
    const std::jthread other(offer, listener.port(), options);

    auto connection = listener.accept(10s);
    const auto remote = connection.await_advertisement(10s);
    if (!remote) throw std::runtime_error("nothing was advertised");
    const auto text = connection.allocate(64);
    std::strcpy(reinterpret_cast<char*>(text.bytes().data()), "written from afar");
    if (connection.post_write(text.slice(), remote->buffer, 0, /*id=*/1) != 0 ||
        !connection.await(Queue::send, 1, 10s).at(0).ok()) {
      throw std::runtime_error("cannot write");
    }
    connection.disconnect();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "advertise: %s\n", error.what());
    return 1;
  }
}
