// Connects two processes that exchange only one line of text: start it twice and give each process
// the line that the other has printed. Each process then writes into the other's memory.
//
//   endpoints NAME < PEER'S_LINE > OUR_LINE
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <weft/verbs.hpp>

namespace {

using namespace weft::verbs;  // NOLINT(google-build-using-namespace)

constexpr std::size_t greeting_bytes = 64;

void complete(const CompletionQueue& queue, const char* what) {
  std::array<Completion, 1> one;
  const auto got = queue.wait(one, std::chrono::seconds(30));
  if (got.empty()) throw std::runtime_error(std::string(what) + ": no completion");
  if (!got[0].ok()) {
    throw std::runtime_error(std::string(what) + ": " + std::string(got[0].status_name()));
  }
}

void need(int failed, const char* what) {
  if (failed) throw weft::Error(failed, std::string("cannot post the ") + what);
}

void talk(const std::string& name) {
  const Context context = open_device();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(16);
  // This process writes from the first half into the second half of the peer's region.
  const auto region = domain.allocate<char>(2 * greeting_bytes, Access::remote_read_write);
  auto prepared = domain.queue_pair(queue, queue)
                      .access(Access::remote_read_write)
                      .max_send_requests(4)
                      .max_receive_requests(4)
                      .timeout(14)
                      .retry_count(7)
                      .build();
  std::cout << prepared.endpoint().to_string() << ' ' << region.remote().to_string() << std::endl;

  std::string endpoint_text;
  std::string region_text;
  std::cin >> endpoint_text >> region_text;
  const auto peer = Endpoint::parse(endpoint_text);
  const auto peers_region = RemoteSlice::parse(region_text);
  if (!peer || !peers_region) throw std::runtime_error("the line is not an endpoint of a peer");

  const QueuePair queue_pair = std::move(prepared).handshake(*peer);
  // The peer sends an empty message after its write; the receive must be posted before it arrives.
  need(queue_pair.post_receive(region.slice(0, 0), 3), "receive");
  std::copy_n(name.begin(), std::min(name.size(), greeting_bytes - 1), &region[0]);
  auto batch = queue_pair.batch<2>();
  batch.write(region.slice(0, greeting_bytes), peers_region->slice(greeting_bytes, greeting_bytes),
              1, SendFlags::none);
  batch.send(region.slice(0, 0), 2);
  need(batch.submit(), "write and the send");
  complete(queue, "exchange");  // this side's send and the receive, in either order
  complete(queue, "exchange");
  std::cout << name << " was greeted by " << &region[greeting_bytes] << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count != 2) throw std::runtime_error("usage: endpoints NAME");
    talk(arguments[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "endpoints: %s\n", error.what());
    return 1;
  }
}
