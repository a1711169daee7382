// How many operations a second devices in memory carry out (weft/simulation.hpp), beside the copies
// alone that a Write needs at least: from the program's memory into a message, and out of it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "weft/simulation.hpp"
#include "weft/verbs.hpp"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

double per_second(long count, Clock::time_point start) {
  return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - start).count();
}

// Writes per second, `at_once` of them under way.
double write_rate(std::size_t bytes, long at_once, long count) {
  simulation::World world({.seed = 1, .link = {}, .polls_advance = false});
  const verbs::Context here = world.add_host().open();
  const verbs::Context there = world.add_host().open();
  const verbs::ProtectionDomain of_here = here.create_domain();
  const verbs::ProtectionDomain of_there = there.create_domain();
  const verbs::CompletionQueue queue = here.create_completion_queue(256);
  const verbs::CompletionQueue other_queue = there.create_completion_queue(256);
  const auto from = of_here.allocate<std::uint8_t>(bytes, verbs::Access::all);
  const auto to = of_there.allocate<std::uint8_t>(bytes, verbs::Access::all);
  auto a =
      of_here.queue_pair(queue, queue).max_send_requests(64).access(verbs::Access::all).build();
  auto b = of_there.queue_pair(other_queue, other_queue).access(verbs::Access::all).build();
  const verbs::Endpoint of_a = a.endpoint();
  const verbs::QueuePair pair = std::move(a).handshake(b.endpoint());
  const verbs::QueuePair other_pair = std::move(b).handshake(of_a);
  const verbs::RemoteSlice target = to.remote();
  std::array<verbs::Completion, 64> some;
  long posted = 0;
  long done = 0;
  const auto look = [&] {
    for (const auto& one : queue.poll(some)) {
      if (!one.ok()) throw std::runtime_error("a Write has failed");
      ++done;
    }
    return done == posted;
  };
  const Clock::time_point start = Clock::now();
  while (done < count) {
    for (; posted < done + at_once; ++posted) {
      if (pair.post_write(from.slice(0, bytes), target.slice(0, bytes), 0) != 0) {
        throw std::runtime_error("a Write cannot be posted");
      }
    }
    if (!world.run_until(look)) throw std::runtime_error("nothing happens any more");
  }
  return per_second(done, start);
}

double copy_rate(std::size_t bytes, long count) {
  std::vector<std::uint8_t> from(bytes, 1);
  std::vector<std::uint8_t> between(bytes);
  const Clock::time_point start = Clock::now();
  for (long i = 0; i < count; ++i) {
    std::memcpy(between.data(), from.data(), bytes);
    asm volatile("" : : "r"(between.data()) : "memory");  // the copies must not be left out
    std::memcpy(from.data(), between.data(), bytes);
    asm volatile("" : : "r"(from.data()) : "memory");
  }
  return per_second(count, start);
}

void print_row(std::size_t bytes, long at_once, long count, int rounds) {
  std::vector<double> rates;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    rates.push_back(write_rate(bytes, at_once, count));
    ratios.push_back(rates.back() / copy_rate(bytes, 10 * count));
  }
  std::ranges::sort(rates);
  std::ranges::sort(ratios);
  const auto middle = static_cast<std::size_t>(rounds / 2);
  fmt::print(
      "writes of {:>4} B, {:>2} under way  {:>5.2f} M/s  {:.4f} x the copies [{:.4f} to {:.4f}]\n",
      bytes, at_once, rates[middle] * 1e-6, ratios[middle], ratios.front(), ratios.back());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures devices in memory under a virtual clock, on one processor"};
  int rounds = 3;
  long count = 200'000;
  app.add_option("--rounds", rounds, "rounds; medians and ranges are printed")
      ->check(CLI::Range(1, 99));
  app.add_option("--count", count, "Writes in each round")->check(CLI::Range(1000, 1 << 30));
  CLI11_PARSE(app, argc, argv);
  try {
    for (const std::size_t bytes : {8, 4096}) {
      for (const long at_once : {1, 16}) print_row(bytes, at_once, count, rounds);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulation_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
