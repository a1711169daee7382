// Many connections on one thread, in two processes: each gets its share.
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

#include "message/processes.h"
#include "support/host.h"
#include "support/needs.h"
#include "weft/verbs.hpp"

namespace weft::message::testing {
namespace {

std::size_t resident_bytes() {
  std::size_t ignored = 0;
  std::size_t pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%zu %zu", &ignored, &pages) != 2) pages = 0;
  if (file) fclose(file);
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int fd = 0; fd < 65536; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

// Each connection has one message under way. When there have been `rounds` messages per connection
// on average, the slowest connection must have had at least half as many as the fastest. Beside
// other work a thread that has to wake up may wait for a processor for milliseconds, in which a
// connection that needs no wake-up has some hundred messages: there must be many more rounds than
// that.
void share_a_thread(Child& server, std::size_t count, std::uint64_t rounds) {
  EventLoop loop;
  const auto port = server.read<std::uint16_t>();
  const std::size_t before = resident_bytes();
  const std::size_t descriptors = open_descriptors();
  std::vector<std::uint64_t> answers(count);
  std::vector<Connection> connections;
  std::size_t established = 0;
  std::uint64_t total = 0;
  bool running = false;
  Handlers handlers;
  handlers.established = [&](Connection&) { ++established; };
  handlers.message = [&](Connection& from, Received& got) {
    ++answers[got.tag()];
    ++total;
    if (running) from.send("x", {.tag = got.tag()});
  };
  handlers.error = [](Connection&, const Error& error) { throw error; };
  Options options;
  options.connect_timeout = 60s;
  for (std::size_t i = 0; i < count; ++i) {
    connections.push_back(loop.connect({test::host(), port}, handlers, options));
    // As many attempts at once as the listener's queue holds.
    if (i % 64 == 63) until(loop, [&] { return established == i + 1; });
  }
  until(loop, [&] { return established == count; });
  const std::size_t each = (resident_bytes() - before) / count;
  printf("%zu connections, %zu bytes each, %zu descriptors\n", count, each,
         open_descriptors() - descriptors);
  fflush(stdout);
  running = true;
  for (std::size_t i = 0; i < count; ++i) connections[i].send("x", {.tag = i});
  until(loop, [&] { return total >= count * rounds; });
  const auto [least, most] = std::ranges::minmax_element(answers);
  printf("%lu to %lu messages\n", *least, *most);
  fflush(stdout);
  EXPECT_GE(2 * *least, *most);
  running = false;
  for (Connection& connection : connections) connection.disconnect_after_sending();
  until(loop, [&] { return loop.connections() == 0; });
}

TEST(Many, ConnectionsOnOneThreadGetTheirShare) {
  in_two_processes(echo, [](Child& server) { share_a_thread(server, test::turns(300, 12), 400); });
}

// After a sleep all connections have messages, and an event each. Those whose events were first
// must not be served again and again while the others wait.
TEST(Many, AfterASleepEachConnectionIsServedInOneStep) {
  if (verbs::default_backend() != verbs::Backend::embedded) {
    GTEST_SKIP() << "counts the events of a device of its own, which only Weft's library opens";
  }
  constexpr std::size_t count = 200;
  const auto device = verbs::open_own_device({.address = "127.0.0.1"});
  EventLoop server({}, device);
  EventLoop client;
  std::size_t served = 0;
  const auto listener = server.listen({"127.0.0.1", 0}, [&](Request request) {
    Handlers handlers;
    handlers.message = [&](Connection&, Received&) { ++served; };
    request.accept(std::move(handlers));
  });
  std::size_t established = 0;
  Handlers handlers;
  handlers.established = [&](Connection&) { ++established; };
  std::size_t sent = 0;
  handlers.sent = [&](Connection&, const Sending&) { ++sent; };
  std::vector<Connection> connections;
  for (std::size_t i = 0; i < count; ++i) {
    connections.push_back(client.connect({"127.0.0.1", listener.port()}, handlers));
    if (i % 64 == 63) until(client, server, [&] { return established == i + 1; });
  }
  until(client, server, [&] { return established == count; });
  while (server.step(1ms) > 0) continue;  // it waits for events of all of them now
  const auto events = [&] { return device.counters().completion_queues.events; };
  const std::uint64_t before = events();
  for (Connection& connection : connections) connection.send("x");
  // A message whose sending is complete has arrived. An event may still be on its way then, or is
  // none: a connection that had one after the last step has no second one now.
  const Deadline patience = 5s;
  until(client, [&] { return sent == count && (events() >= before + count || patience.passed()); });
  server.step();
  EXPECT_EQ(served, count);
}

TEST(Many, TenThousandConnectionsOnOneThread) {
  if (!getenv("WEFT_TEST_LONG")) GTEST_SKIP() << "a long test";
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr std::size_t count = 10'000;
  if (limit.rlim_max < count + 100) GTEST_SKIP() << "too few descriptors";
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  in_two_processes(echo, [](Child& server) { share_a_thread(server, count, 40); });
}

}  // namespace
}  // namespace weft::message::testing
