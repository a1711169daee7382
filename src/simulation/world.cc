#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include <arpa/inet.h>

#include "base/kernel_random.h"
#include "base/log.h"
#include "simulation/network.h"
#include "weft/error.hpp"
#include "weft/simulation.hpp"
#include "weft/verbs/device.hpp"

namespace weft::simulation {
namespace {

constexpr std::uint32_t first_address = 10U << 24U;  // 10.0.0.0/8

std::uint64_t seed_of_environment(const char* text) {
  const std::string_view digits(text);
  std::uint64_t seed = 0;
  const auto [end, failed] = std::from_chars(digits.begin(), digits.end(), seed);
  if (failed != std::errc() || end != digits.end() || digits.empty()) {
    throw Error(EINVAL, "WEFT_SEED=" + std::string(text) + ": not a number; give one below 2^64");
  }
  return seed;
}

std::uint64_t random_seed() {
  const std::uint64_t seed = std::uint64_t{random_word()} << 32U | random_word();
  log(LogLevel::info, "simulation",
      "this simulation has seed " + std::to_string(seed) + "; WEFT_SEED=" + std::to_string(seed) +
          " repeats it");
  return seed;
}

std::uint64_t choose_seed(const Options& options) {
  if (options.seed) return *options.seed;
  const char* const given = secure_getenv("WEFT_SEED");
  return given ? seed_of_environment(given) : random_seed();
}

std::uint32_t parse(const std::string& address) {
  in_addr parsed{};
  if (inet_pton(AF_INET, address.c_str(), &parsed) != 1) {
    throw std::invalid_argument("weft::simulation::World::add_host: " + address +
                                " is no IPv4 address; give one like 10.0.0.1, or none");
  }
  return ntohl(parsed.s_addr);
}

Time time_of(std::chrono::nanoseconds duration) {
  return static_cast<Time>(std::max<std::int64_t>(duration.count(), 0));
}

// Added without wrap-around: "at most for ever" is a usual limit.
Time later(Time now, std::chrono::nanoseconds duration) {
  const Time longest = never - 1 - now;
  return now + std::min(time_of(duration), longest);
}

void check_world(const Network* network, const std::string& function) {
  if (SimulatedKernel::current() == network) return;
  throw std::logic_error("weft::simulation::Host::" + function +
                         ": the world is over, or belongs to another thread");
}

std::string text_of(std::uint32_t host_order) {
  const in_addr address{.s_addr = htonl(host_order)};
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

verbs::Context Host::open(const DeviceOptions& options) const {
  check_world(network_, "open");
  struct Opening {
    explicit Opening(Network& network, std::size_t host) : of(network) { of.open_on(host); }
    ~Opening() { of.open_on(std::nullopt); }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;
    Network& of;
  } const opening(*network_, number_);
  return verbs::open_own_device(options);
}

// The process has its options before the program can use its device.
void Host::run(std::function<void()> program, const std::string& name,
               const DeviceOptions& device) const {
  check_world(network_, "run");
  network_->run(number_, name, [program = std::move(program), device] {
    configure(device);
    program();
  });
}

std::string Host::address() const {
  return text_of(network_->address(number_));
}

void sleep_for(std::chrono::nanoseconds duration) {
  SimulatedKernel* const kernel = SimulatedKernel::current();
  if (!kernel) return std::this_thread::sleep_for(duration);
  const Time end = later(kernel->now_ns(), duration);
  while (kernel->now_ns() < end && kernel->poll({}, end) == 0) continue;
  kernel->end_if_killed();
}

// --- World ---------------------------------------------------------------------------------------

World::World(const Options& options)
    : seed_(choose_seed(options)),
      network_(std::make_shared<Network>(seed_, options.link, options.polls_advance)),
      began_ns_(network_->now_ns()) {
  if (!network_->enter()) {
    throw std::logic_error(
        "weft::simulation::World: this thread has a world already; destroy that one first");
  }
}

World::~World() {
  network_->end();
  network_->leave();
}

Host World::add_host(const std::string& address) {
  std::uint32_t chosen = first_address + 1;
  if (!address.empty()) {
    chosen = parse(address);
    if (network_->host_at(chosen)) {
      throw std::invalid_argument("weft::simulation::World::add_host: there is a host with " +
                                  address + " already");
    }
  }
  while (address.empty() && network_->host_at(chosen)) ++chosen;
  return {*network_, network_->add_host(chosen)};
}

std::chrono::nanoseconds World::now() const {
  return std::chrono::nanoseconds(network_->now_ns() - began_ns_);
}

void World::check_outside() const {
  if (!network_->programs().inside()) return;
  throw std::logic_error(
      "weft::simulation::World: a program must not carry out events; it waits by its own calls, "
      "or by sleep_for()");
}

bool World::carry_out(std::optional<std::uint64_t> until_ns) {
  check_outside();
  const bool done = network_->step(until_ns);
  if (const auto failed = network_->programs().take_failure()) std::rethrow_exception(failed);
  return done;
}

std::string World::programs() const {
  return network_->programs().describe(
      [this](std::size_t host) { return text_of(network_->address(host)); }, began_ns_);
}

void World::run(std::chrono::nanoseconds limit) {
  check_outside();
  const Time end = later(network_->now_ns(), limit);
  while (network_->programs().any()) {
    if (network_->now_ns() >= end) {
      throw Error(ETIMEDOUT,
                  "the programs of the simulation have not ended in time: " + programs());
    }
    if (network_->is_idle()) {
      throw Error(
          EDEADLK,
          "nothing happens any more in the simulation, and programs wait for ever: " + programs());
    }
    carry_out(end);
  }
}

bool World::step() {
  return carry_out(std::nullopt);
}

bool World::run_until(const std::function<bool()>& done, std::chrono::nanoseconds limit) {
  const Time end = later(network_->now_ns(), limit);
  while (!done()) {
    if (network_->now_ns() >= end) return false;
    if (!carry_out(end)) return done();
  }
  return true;
}

void World::run_for(std::chrono::nanoseconds duration) {
  const Time end = later(network_->now_ns(), duration);
  while (carry_out(end)) continue;
}

void World::call_after(std::chrono::nanoseconds duration, std::function<void()> function) {
  network_->call_at(later(network_->now_ns(), duration), std::move(function));
}

void World::kill(const Host& host) {
  network_->kill(host.number_);
  network_->end_if_killed();
}

bool World::is_alive(const Host& host) const {
  return network_->is_alive(host.number_);
}

void World::set_link(const Host& a, const Host& b, const Link& link) {
  network_->set_link(a.number_, b.number_, link);
}

void World::cut(const Host& a, const Host& b) {
  network_->cut(a.number_, b.number_);
}

void World::mend(const Host& a, const Host& b) {
  network_->mend(a.number_, b.number_);
}

void World::stall(const Host& a, const Host& b, std::chrono::nanoseconds duration) {
  cut(a, b);
  call_after(duration, [this, a, b] { mend(a, b); });
}

void World::reset(const Host& a, const Host& b) {
  network_->reset(a.number_, b.number_);
}

std::uint64_t World::random(std::uint64_t bound) {
  return network_->random().below(bound);
}

std::uint64_t World::events() const {
  return network_->events();
}

std::uint64_t World::trace() const {
  return network_->schedule().trace();
}

}  // namespace weft::simulation
