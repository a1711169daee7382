// Hosts with devices in memory, under a virtual clock and a seed: for unit tests of programs that
// use verbs, connections, messages or streams. No socket is made, and the same seed gives the same
// run. There are two ways to use it.
//
// Programs (Host::run()) are processes on the hosts, each with a thread, of which one runs at a
// time: where a program waits, another one goes on, or the clock moves. They use rdma_cm,
// weft::connection, weft::message and weft::stream as they do elsewhere, with timeouts of virtual
// time:
//
//   simulation::World world({.seed = 7});
//   const auto there = world.add_host(), here = world.add_host();
//   there.run([] {
//     connection::Listener listener({"", 7174});
//     auto peer = listener.accept(1h);
//     ...
//   }, "server");
//   here.run([&] { auto peer = connection::connect({there.address(), 7174}, 10s); ... }, "client");
//   world.run();
//
// Devices (Host::open()) are used by the thread of the test itself, for programs of verbs. No
// thread is made then:
//
//   simulation::World world({.seed = 7});
//   auto a = world.add_host();
//   auto b = world.add_host();
//   verbs::Context here = a.open(), there = b.open();
//   ... queue pairs, connected by endpoints or by ibv_modify_qp(3), and work posted to them ...
//   world.run_until([&] { return done; }, 10s);
//
// The contexts and everything made from them are those of the embedded device, with the real
// structures of verbs.h: RC, UC, XRC and UD queue pairs with all of their checks and errors. Only
// the clock, random numbers, TCP and UDP are replaced. Outside of programs rdma_cm does not exist
// here: creating an id fails with ENODEV.
//
// A world belongs to the thread that has made it, and to its programs. While it exists, devices
// that this thread uses must belong to it; other threads are not affected, and may have worlds of
// their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/device_options.hpp"
#include "weft/export.hpp"
#include "weft/verbs/context.hpp"

namespace weft::simulation {

class Network;

// How bytes travel between two hosts, in each direction. Each connection delivers in order; several
// between the same hosts, and datagrams (UD), overtake each other as far as the jitter allows.
struct Link {
  std::chrono::nanoseconds latency{1000};
  std::chrono::nanoseconds jitter{9000};  // up to this much more, for each packet
  std::uint64_t bits_per_second = 0;      // of each connection; 0: no limit
  // The share of packets that are lost, from 0 to 1. A datagram (UD) is lost; TCP sends it again
  // after 200 ms, for which its connection stalls.
  double loss = 0;
};

struct Options {
  // No value: WEFT_SEED of the environment, or a random one, which is printed (weft/log.hpp).
  std::optional<std::uint64_t> seed{};
  Link link{};  // between all hosts, and within each
  // A poll that finds nothing carries out the next event, so that a program which polls until
  // something is there needs no change. Otherwise only World::step() and its relatives do, and a
  // program must not poll without end.
  bool polls_advance = true;
};

// A host with an address, on which processes run. A value that refers to its world, which must
// exist when it is used.
class Host {
 public:
  // Starts a process with a device of its own. `options`: address, same_host, progress,
  // port_offset and gids have no effect. Throws Error as open_own_device() does, and
  // std::logic_error in another thread than that of the world.
  [[nodiscard]] WEFT_API verbs::Context open(const DeviceOptions& options = {}) const;
  // Starts a process that calls `program` in a thread of its own. It runs from the next event on,
  // and its end is that of the process: what it has not closed is closed then. Several may run on
  // one host, each with a device of its own. `name` is for messages; `device` as for open(): the
  // environment sets no option of it.
  //
  // The program waits by calls of Weft, or by sleep_for(); a wait by other means, as for a mutex or
  // in poll(2), keeps all programs from running. Threads that it starts must not use Weft. Host
  // names are not looked up: addresses are numeric.
  //
  // An exception that leaves the program comes out of the World's function that was carrying out
  // events. Throws std::logic_error where the world is over.
  WEFT_API void run(std::function<void()> program, const std::string& name = "program",
                    const DeviceOptions& device = {}) const;
  [[nodiscard]] WEFT_API std::string address() const;  // "10.0.0.1"

 private:
  friend class World;
  Host(Network& network, std::size_t number) : network_(&network), number_(number) {}

  Network* network_;
  std::size_t number_;
};

// In a program: waits for this time. In the thread of a world: as World::run_for(). In other
// threads: really sleeps.
WEFT_API void sleep_for(std::chrono::nanoseconds duration);

// Not thread-safe. Contexts and what was made from them may be destroyed before or after it; after
// it they do nothing any more. Programs that have not ended are killed by the destructor.
//
// Programs may call its functions, but not those that carry out events: these throw
// std::logic_error there.
class World {
 public:
  // Throws std::logic_error where this thread has a world already, Error(EINVAL) where WEFT_SEED
  // is no number.
  WEFT_API explicit World(const Options& options = {});
  WEFT_API ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // What everything random here depends on: for the message of a test that failed.
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  // An address of IPv4; empty: the next one of 10.0.0.0/8. Throws std::invalid_argument where it is
  // none, or taken.
  WEFT_API Host add_host(const std::string& address = {});

  // --- Programs

  // Carries out events until all programs have ended. Throws the exception that one of them has
  // ended with; Error(EDEADLK) where programs wait and nothing will ever happen any more, and
  // Error(ETIMEDOUT) where some have not ended after `limit` of virtual time, both with the names
  // of these programs.
  WEFT_API void run(std::chrono::nanoseconds limit = std::chrono::hours(24));

  // --- Time

  // Since the world was made. It moves with events only.
  [[nodiscard]] WEFT_API std::chrono::nanoseconds now() const;
  // Carries out the next event, and moves the clock to it. False where nothing will ever happen
  // again by itself. This function and the next two throw what a program has ended with.
  WEFT_API bool step();
  // Carries out events until `done` returns true, for at most `limit` of virtual time. Returns what
  // `done` has returned last; false as well where nothing happens any more.
  WEFT_API bool run_until(const std::function<bool()>& done,
                          std::chrono::nanoseconds limit = std::chrono::hours(1));
  // Carries out the events of this time. The clock moves by exactly that.
  WEFT_API void run_for(std::chrono::nanoseconds duration);
  // Calls `function` after this time, from step() and the other functions that carry out events.
  WEFT_API void call_after(std::chrono::nanoseconds duration, std::function<void()> function);

  // --- Failures

  // The processes of the host end, as by SIGKILL: their connections end, and peers are refused.
  // Contexts of Host::open() go on accepting calls, without any effect, and receive nothing any
  // more. The call in which a program waits ends by an exception that is no std::exception, so that
  // its stack unwinds; what its destructors do has no effect on peers. They, and functions that are
  // noexcept, must not wait at that moment. A program that kills its own host ends in this call.
  // Host::open() and Host::run() start new processes.
  WEFT_API void kill(const Host& host);
  // It has a process: a device of Host::open(), or a program that has not ended.
  [[nodiscard]] WEFT_API bool is_alive(const Host& host) const;
  // The latency, rate and losses between two hosts, in both directions, for what is sent from now
  // on.
  WEFT_API void set_link(const Host& a, const Host& b, const Link& link);
  // Nothing passes between the hosts until mend(): as an unplugged cable. TCP then sends again what
  // was lost; datagrams stay lost.
  WEFT_API void cut(const Host& a, const Host& b);
  // Ends a cut(). Nothing happens where there is none.
  WEFT_API void mend(const Host& a, const Host& b);
  // cut(), and mend() after this time.
  WEFT_API void stall(const Host& a, const Host& b, std::chrono::nanoseconds duration);
  // The connections between the hosts are reset, by both sides at once. New ones are possible.
  WEFT_API void reset(const Host& a, const Host& b);

  // --- Repeating

  // A random number of the seed, in [0, bound), for what the test itself chooses. `bound` > 0.
  [[nodiscard]] WEFT_API std::uint64_t random(std::uint64_t bound);
  // The number of events so far.
  [[nodiscard]] WEFT_API std::uint64_t events() const;
  // A hash of the events so far, with their times and numbers of bytes: two runs with the same seed
  // and the same calls have the same one.
  [[nodiscard]] WEFT_API std::uint64_t trace() const;

 private:
  void check_outside() const;
  bool carry_out(std::optional<std::uint64_t> until_ns);
  [[nodiscard]] std::string programs() const;

  std::uint64_t seed_;
  std::shared_ptr<Network> network_;
  std::uint64_t began_ns_;
};

}  // namespace weft::simulation
