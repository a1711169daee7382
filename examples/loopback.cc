// The smallest program that transfers bytes: a queue pair that is connected to itself.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <weft/verbs.hpp>

int main() {
  try {
    const auto context = weft::verbs::open_device();
    const auto domain = context.create_domain();
    const auto queue = context.create_completion_queue(2);
    const auto region = domain.allocate<char>(64);

    auto prepared = domain.queue_pair(queue, queue).build();
    const auto endpoint = prepared.endpoint();  // usually that of the peer
    const auto queue_pair = std::move(prepared).handshake(endpoint);

    std::strcpy(&region[32], "Hello, myself!");
    if (queue_pair.post_receive(region.slice(0, 32), /*id=*/1) != 0 ||
        queue_pair.post_send(region.slice(32, 32), /*id=*/2) != 0) {
      throw std::runtime_error("cannot post");
    }
    std::array<weft::verbs::Completion, 2> done;
    for (std::size_t seen = 0; seen < done.size();) {
      const auto some = queue.wait(std::span(done).subspan(seen), std::chrono::seconds(10));
      if (some.empty()) throw std::runtime_error("no completion within 10 s");
      for (const auto& completion : some) {
        std::printf("request %d: %s\n", static_cast<int>(completion.id()),
                    std::string(completion.status_name()).c_str());
      }
      seen += some.size();
    }
    std::printf("received: %s\n", &region[0]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loopback: %s\n", error.what());
    return 1;
  }
}
