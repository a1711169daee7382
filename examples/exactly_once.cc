// A test that finds a bug in programs which use connections, in virtual time.
//
// A server adds numbers that clients send to it as messages, and answers each. A client whose
// connection ends before the answer connects again and sends the number again. At some moment the
// network resets all connections, so an answer may be lost behind its number, and the first version
// adds that number twice. The mended version sends a number of the request with it, and the server
// knows the last one of each client.
//
// Server and clients are programs on hosts of a simulation: a wait of a program lets the others
// run, timeouts take no time, and the same seed gives the same run.
//
//   exactly_once            tries 200 seeds with each version
//   exactly_once SEED       repeats one run of the first version
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "weft/message.hpp"
#include "weft/simulation.hpp"

namespace {

using namespace weft;
using namespace std::chrono_literals;

constexpr std::uint16_t port = 7174;
constexpr int clients = 3, requests_each = 4;
constexpr unsigned long long seeds = 200;

struct Request {
  int client;
  int number;  // the first one of a client is 1
  int added;
};

struct Run {
  simulation::World world;
  bool mended;
  int sum = 0;
  int clients_done = 0;
};

void serve(Run& run) {
  message::EventLoop loop;
  std::map<int, int> last;  // the last request of each client that was carried out
  const auto listener = loop.listen({"", port}, [&](message::Request request) {
    request.accept({.message = [&](message::Connection& peer, message::Received& received) {
      Request asked{};
      std::memcpy(&asked, received.bytes().data(), sizeof asked);
      if (!run.mended || asked.number > last[asked.client]) run.sum += asked.added;
      last[asked.client] = asked.number;
      peer.send("done");
    }});
  });
  while (run.clients_done < clients) loop.step(1s);
}

// One attempt; returns whether the answer has come.
bool ask(message::EventLoop& loop, const message::Address& server, const Request& request) {
  bool answered = false;
  bool over = false;
  const auto bytes = std::as_bytes(std::span(&request, 1));
  loop.connect(server, {.established = [&](message::Connection& peer) { peer.send(bytes); },
                        .message =
                            [&](message::Connection& peer, message::Received&) {
                              answered = true;
                              peer.disconnect();
                            },
                        .error = [&](auto&, auto&) { over = true; },
                        .disconnected = [&](auto&, auto&) { over = true; }});
  while (!over) loop.step(Deadline::never());
  return answered;
}

void be_client(Run& run, const std::string& server, int client) {
  message::EventLoop loop;
  for (int number = 1; number <= requests_each; ++number) {
    const Request request{client, number, 1};
    while (!ask(loop, {server, port}, request)) simulation::sleep_for(1s);
  }
  ++run.clients_done;
}

// Returns whether the sum is right.
bool is_exact(unsigned long long seed, bool mended) {
  Run run{.world = simulation::World({.seed = seed}), .mended = mended};
  const auto server = run.world.add_host();
  server.run([&] { serve(run); }, "server");
  for (int client = 0; client < clients; ++client) {
    const auto host = run.world.add_host();
    host.run([&run, server, client] { be_client(run, server.address(), client); }, "client");
    const std::chrono::microseconds breaks(run.world.random(500));
    run.world.call_after(breaks, [&run, server, host] { run.world.reset(server, host); });
  }
  run.world.run();
  return run.sum == clients * requests_each;
}

void try_all(const char* version, bool mended) {
  unsigned long long failed = 0;
  unsigned long long first = 0;
  for (unsigned long long seed = 1; seed <= seeds; ++seed) {
    if (is_exact(seed, mended)) continue;
    if (failed++ == 0) first = seed;
  }
  std::printf("%s: %llu of %llu seeds", version, failed, seeds);
  if (failed > 0) std::printf(" count a request twice, the first is %llu", first);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const unsigned long long seed = std::strtoull(argv[1], nullptr, 10);
    const bool exact = is_exact(seed, false);
    std::printf("seed %llu: the sum is %s\n", seed, exact ? "right" : "wrong");
    return exact ? 0 : 1;
  }
  try_all("requests without numbers", false);
  try_all("requests with numbers", true);
}
