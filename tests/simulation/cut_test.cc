// Connections whose cable is cut while they begin, or while one end waits for room.
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <vector>

#include "simulation/network.h"
#include "simulation/places.h"
#include "weft/connection.hpp"
#include "weft/simulation.hpp"

namespace weft::simulation {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t port = 7174;
constexpr std::uint32_t first_address = 0x0A000001;  // 10.0.0.1

// The virtual time that a connect() takes whose cable is cut `after` its begin, for 100 ms. The
// link is slow enough that each step of the handshake has moments of its own.
std::chrono::nanoseconds time_to_connect(std::chrono::nanoseconds after) {
  World world({.seed = 7, .link = {.latency = 10us, .jitter = 0ns}});
  const Host there = world.add_host();
  const Host here = world.add_host();
  std::chrono::nanoseconds took{};
  there.run([] {
    connection::Listener listener({"", port});
    EXPECT_TRUE(listener.accept(10min).await_disconnect(10min));
  });
  here.run([&] {
    sleep_for(1s);
    const auto begun = world.now();
    world.call_after(after, [&] { world.stall(here, there, 100ms); });
    if (after == 0ns) sleep_for(1us);  // so that the cut precedes the request
    connection::connect({there.address(), port}, 60s).disconnect();
    took = world.now() - begun;
  });
  world.run();
  return took;
}

TEST(Cut, AConnectionThatIsRequestedMeanwhileIsMadeAfterIt) {
  for (const auto after : {0us, 5us, 10us, 15us, 20us, 25us, 30us, 35us, 40us, 45us}) {
    const auto took = time_to_connect(after);
    // Later the initiator has finished, but not the responder.
    if (after < 40us) {
      EXPECT_GE(took, 100ms) << after.count() << " us";
    }
    EXPECT_LT(took, 1s) << after.count() << " us";
  }
}

class Events final : public SimulatedKernel::Watcher {
 public:
  void dispatch_simulated(std::uint64_t /*token*/, std::uint32_t events) override {
    seen |= events;
    network->change(fd, 0);  // once is enough
  }
  void run_simulated_deadlines() override {}
  [[nodiscard]] bool has_deadline_by(std::uint64_t /*until_ns*/) override { return false; }

  Network* network = nullptr;
  int fd = -1;
  std::uint32_t seen = 0;
};

// Two hosts, each with a process. The sockets are those of the simulated kernel.
struct Kernel {
  Kernel() {
    for (const std::size_t host : {0, 1}) {
      network.add_host(first_address + static_cast<std::uint32_t>(host));
    }
  }

  int socket_on(std::size_t host, int type) {
    network.open_on(host);
    return network.socket(AF_INET, type);
  }
  int bind(int fd, std::uint32_t address, std::uint16_t at) {
    sockaddr_storage place{};
    put(place, {.address = address, .port = at});
    return network.bind(fd, reinterpret_cast<const sockaddr*>(&place));
  }
  // Runs until everything has arrived that is under way.
  void run() {
    const std::uint64_t until_ns = network.now_ns() + 1'000'000'000;
    while (network.step(until_ns)) {
    }
  }

  Network network{1, Link{}, false};
};

// A connection from host 0 to host 1.
struct Connected : Kernel {
  Connected() {
    EXPECT_EQ(bind(listener, first_address + 1, port), 0);
    EXPECT_EQ(network.listen(listener, 1), 0);
    sockaddr_storage to{};
    put(to, {.address = first_address + 1, .port = port});
    EXPECT_EQ(network.connect(sender, reinterpret_cast<const sockaddr*>(&to)), -EINPROGRESS);
    run();
    sockaddr_storage from{};
    reader = network.accept(listener, &from);
    network.open_on(0);
    events.network = &network;
    events.fd = sender;
    watcher = network.add(events);
  }

  std::ptrdiff_t send() {
    iovec piece{block.data(), block.size()};
    return network.send(sender, {&piece, 1});
  }
  std::ptrdiff_t receive() {
    iovec piece{block.data(), block.size()};
    return network.receive(reader, {&piece, 1});
  }
  void fill_window() {
    while (send() > 0) {
    }
    run();
  }

  int listener = socket_on(1, SOCK_STREAM);
  int sender = socket_on(0, SOCK_STREAM);
  int reader = -1;
  std::size_t watcher = 0;
  Events events;
  std::vector<std::byte> block = std::vector<std::byte>(Pipe::window_bytes);
};

TEST(Cut, RoomThatIsMadeMeanwhileIsReportedAfterIt) {
  Connected one;
  one.fill_window();
  ASSERT_EQ(one.network.watch(one.watcher, one.sender, EPOLLOUT, 0), 0);
  one.run();
  EXPECT_EQ(one.events.seen, 0U);
  one.network.cut(0, 1);
  EXPECT_GT(one.receive(), 0);
  one.run();
  EXPECT_EQ(one.events.seen, 0U) << "the acknowledgement has passed the cut";
  one.network.mend(0, 1);
  one.run();
  EXPECT_EQ(one.events.seen, std::uint32_t{EPOLLOUT});
}

TEST(Cut, BytesOfASocketThatIsClosedMeanwhileArriveAfterIt) {
  Connected one;
  one.network.cut(0, 1);
  EXPECT_GT(one.send(), 0);
  ASSERT_EQ(one.network.close(one.sender), 0);
  one.run();
  EXPECT_EQ(one.receive(), -EAGAIN);
  one.network.mend(0, 1);
  one.run();
  EXPECT_GT(one.receive(), 0);
  EXPECT_EQ(one.receive(), 0);
}

TEST(Cut, BytesForASocketThatIsClosedAreRefusedAfterIt) {
  Connected one;
  ASSERT_EQ(one.network.close(one.reader), 0);
  one.run();
  one.network.cut(0, 1);
  EXPECT_GT(one.send(), 0);
  one.run();
  EXPECT_GT(one.send(), 0);
  one.network.mend(0, 1);
  one.run();
  EXPECT_EQ(one.send(), -ECONNRESET);
}

TEST(SimulatedSockets, EachHostHasItsOwnLoopbackForDatagrams) {
  Kernel kernel;
  EXPECT_EQ(kernel.bind(kernel.socket_on(0, SOCK_DGRAM), INADDR_LOOPBACK, port), 0);
  EXPECT_EQ(kernel.bind(kernel.socket_on(0, SOCK_DGRAM), INADDR_LOOPBACK, port), -EADDRINUSE);
  EXPECT_EQ(kernel.bind(kernel.socket_on(1, SOCK_DGRAM), INADDR_LOOPBACK, port), 0);
}

}  // namespace
}  // namespace weft::simulation
