// Hosts with devices in memory, under a virtual clock and a seed: for unit tests of programs that
// use verbs. No socket and no thread is made, and the same seed gives the same run.
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
// the clock, random numbers, TCP and UDP are replaced. rdma_cm does not exist here: creating an id
// fails with ENODEV.
//
// A world belongs to the thread that has made it. While it exists, devices that this thread uses
// must belong to it; other threads are not affected, and may have worlds of their own.
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
  // something is there needs no change. Otherwise only World::step() and its relatives do.
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
  [[nodiscard]] WEFT_API std::string address() const;  // "10.0.0.1"

 private:
  friend class World;
  Host(Network& network, std::size_t number) : network_(&network), number_(number) {}

  Network* network_;
  std::size_t number_;
};

// Not thread-safe. Contexts and what was made from them may be destroyed before or after it; after
// it they do nothing any more.
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

  // --- Time

  // Since the world was made. It moves with events only.
  [[nodiscard]] WEFT_API std::chrono::nanoseconds now() const;
  // Carries out the next event, and moves the clock to it. False where nothing will ever happen
  // again by itself.
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
  // Their contexts go on accepting calls, without any effect, and receive nothing any more.
  // Host::open() starts a new process.
  WEFT_API void kill(const Host& host);
  [[nodiscard]] WEFT_API bool is_alive(const Host& host) const;  // it has a process
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
  std::uint64_t seed_;
  std::shared_ptr<Network> network_;
  std::uint64_t began_ns_;
};

}  // namespace weft::simulation
